"""Probes of tensors, with torch operations that wait for no device.

`formats.tensors.statistics.probes` defines what each word means. `insight.rules.probing` computes the same for arrays;
a test compares the two.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from trainyard.formats.tensors.contract import Measure
from trainyard.formats.tensors.statistics import probes as words
from trainyard.formats.tensors.statistics.probes import (
    CHECKSUM_FACTOR,
    QUANTILE_SAMPLE,
    SAMPLE,
    fewest_active,
    sample_stride,
)

Parameters = tuple[float, ...]
ProbeKey = tuple[str, Parameters]
SAMPLED = (words.UPDATE_RATIO, words.UPDATE_NORM_RATIO, words.COSINE, words.CHECKSUM)


@dataclass(frozen=True, slots=True)
class ProbeValues:
    """Values of measures, by their positions among the measures of the table."""

    measures: tuple[int, ...]
    values: torch.Tensor


class ProbeRunner:
    """Measures the probes of a table, and keeps samples of the weights that probes of updates compare with.

    Probes of a sample run for all tensors of a call at once: a single sample is too small to be worth a launch.
    """

    def __init__(self, measures: Sequence[Measure]) -> None:
        self._single: dict[int, list[tuple[int, ProbeKey]]] = {}
        self._sampled: dict[int, list[tuple[int, ProbeKey]]] = {}
        for number, measure in enumerate(measures):
            kind = self._sampled if measure.probe.word in SAMPLED else self._single
            kind.setdefault(measure.tensor, []).append((number, (measure.probe.word, measure.probe.parameters)))
        self._groups: dict[tuple[int, ...], SampledGroup] = {}

    def measure(self, places: Sequence[int], tensors: Sequence[torch.Tensor]) -> Iterator[ProbeValues]:
        """Measure these tensors. Probes of updates start with the second call for the same tensors."""
        if not self._single and not self._sampled:
            return
        sampled: dict[torch.dtype, list[tuple[int, torch.Tensor]]] = {}
        for place, tensor in zip(places, tensors, strict=True):
            for number, (word, parameters) in self._single.get(place, ()):
                yield ProbeValues((number,), probe(word, parameters, tensor).reshape(1))
            if place in self._sampled and tensor.numel() and tensor.layout is torch.strided:
                sampled.setdefault(_sample_dtype(tensor), []).append((place, tensor))
        for group in sampled.values():
            yield from self._measure_sampled(tuple(place for place, _ in group), [tensor for _, tensor in group])

    def _measure_sampled(self, places: tuple[int, ...], tensors: list[torch.Tensor]) -> Iterator[ProbeValues]:
        samples = [_sample(tensor, SAMPLE) for tensor in tensors]
        lengths = tuple(map(len, samples))
        flat = torch.cat([sample.to(_sample_dtype(sample)) for sample in samples])
        group = self._groups.get(places)
        if group is None or not group.fits(flat, lengths):
            group = SampledGroup([self._sampled[place] for place in places], FlatSegments(lengths, flat.device))
            self._groups[places] = group
        yield from group.measure(flat)


class SampledGroup:
    """The samples of some tensors, concatenated, and the measures to take of them."""

    def __init__(self, wanted: Sequence[Sequence[tuple[int, ProbeKey]]], segments: "FlatSegments") -> None:
        self._segments = segments
        self._before: torch.Tensor | None = None
        self._rows: dict[ProbeKey, tuple[list[int], list[int]]] = {}
        for row, measures in enumerate(wanted):
            for number, each in measures:
                numbers, rows = self._rows.setdefault(each, ([], []))
                numbers.append(number)
                rows.append(row)

    def fits(self, flat: torch.Tensor, lengths: tuple[int, ...]) -> bool:
        """Whether these samples are from the same tensors, so that they can be compared with the last ones."""
        return self._segments.lengths == lengths and self._segments.device == flat.device

    def measure(self, flat: torch.Tensor) -> Iterator[ProbeValues]:
        """Measure the samples of a step."""
        before, self._before = self._before, flat
        for (word, parameters), (numbers, rows) in self._rows.items():
            if word == words.CHECKSUM:
                values = self._segments.checksums(flat)
            elif before is None:
                continue
            elif word == words.UPDATE_RATIO:
                values = self._segments.update_ratios(flat, before, *parameters)
            elif word == words.COSINE:
                values = self._segments.cosines(flat, before)
            else:
                values = self._segments.update_norm_ratios(flat, before)
            yield ProbeValues(tuple(numbers), values if len(rows) == len(values) else values[rows])


class FlatSegments:
    """Segments of a flat tensor, and computations over all of them at once."""

    def __init__(self, lengths: tuple[int, ...], device: torch.device) -> None:
        self.lengths = lengths
        self.device = device
        starts = np.cumsum((0, *lengths[:-1]))
        places = np.concatenate([np.arange(length) for length in lengths])
        self._starts = starts
        self._sizes = _send(np.array(lengths, dtype=np.float32), device)
        self._factors = _send((2 * places + 1) * np.int64(CHECKSUM_FACTOR), device)
        if device.type != "cpu":
            columns = np.arange(max(lengths))
            inside = columns < np.array(lengths)[:, None]
            self._index = _send(np.where(inside, starts[:, None] + columns, len(places)), device)

    def sums(self, values: torch.Tensor) -> torch.Tensor:
        """Return the sum of each segment, always added in the same order. A NaN stays within its segment."""
        if self.device.type == "cpu":
            # In a training that diverges, infinity is the right answer.
            with np.errstate(over="ignore", invalid="ignore"):
                return torch.from_numpy(np.add.reduceat(values.numpy(), self._starts))
        return torch.nn.functional.pad(values, (0, 1))[self._index].sum(1)

    def update_ratios(self, now: torch.Tensor, before: torch.Tensor, epsilon: float) -> torch.Tensor:
        """Return the mean of |change| / (|before| + epsilon) for each segment."""
        return self.sums((now - before).abs() / (before.abs() + epsilon)) / self._sizes

    def update_norm_ratios(self, now: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        """Return the norm of the change divided by the current norm, for each segment."""
        return (self.sums((now - before).square()) / self.sums(now.square())).sqrt()

    def cosines(self, now: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        """Return the cosine of the angle between the two, for each segment."""
        return self.sums(now * before) / (self.sums(now.square()) * self.sums(before.square())).sqrt()

    def checksums(self, values: torch.Tensor) -> torch.Tensor:
        """Return the checksum of each segment."""
        bits = values.view(torch.int32).long() if values.dtype is torch.float32 else values.view(torch.int64)
        return ((self.sums(bits * self._factors) >> 40) & 0xFFFFFF).float()


def probe(word: str, parameters: Parameters, tensor: torch.Tensor) -> torch.Tensor:
    """Measure one probe of one tensor; NaN if the probe does not apply to it."""
    if not tensor.numel():
        return torch.full((), torch.nan, device=tensor.device)
    if tensor.layout is not torch.strided:
        return _probe_sparse(word, tensor)
    return PROBES[word](tensor, *parameters)


def _idle_units(tensor: torch.Tensor, low: float, high: float, share: float) -> torch.Tensor:
    batch = tensor.reshape(tensor.shape[0] if tensor.dim() else 1, -1)
    active = ((batch > low) & (batch < high)).sum(0)
    return (active < fewest_active(share, batch.shape[0])).float().mean()


def _quantile_range(tensor: torch.Tensor, low: float, high: float) -> torch.Tensor:
    sample = _sample(tensor, QUANTILE_SAMPLE).float()
    ordered = sample.sort().values
    spread = _interpolate(ordered, high) - _interpolate(ordered, low)
    return torch.where(sample.isnan().any(), torch.nan, spread)


def _interpolate(ordered: torch.Tensor, share: float) -> torch.Tensor:
    position = share * (len(ordered) - 1)
    below = int(position)
    if below == len(ordered) - 1:
        return ordered[below]
    return torch.lerp(ordered[below], ordered[below + 1], position - below)


def _zero_rows(tensor: torch.Tensor) -> torch.Tensor:
    rows = tensor.reshape(tensor.shape[0] if tensor.dim() else 1, -1)
    return (rows == 0).all(1).float().mean()


def _row_entropy(tensor: torch.Tensor) -> torch.Tensor:
    size = tensor.shape[-1] if tensor.dim() else 1
    if size == 1:
        return torch.ones((), device=tensor.device)
    shares = tensor.float()
    shares = shares / shares.sum(-1, keepdim=True)
    return -torch.xlogy(shares, shares).sum(-1).mean() / math.log(size)


def _channel_mean(tensor: torch.Tensor, axis: float, channel: float) -> torch.Tensor:
    if tensor.dim() <= axis or tensor.shape[int(axis)] <= channel:
        return torch.full((), torch.nan, device=tensor.device)
    return tensor.select(int(axis), int(channel)).float().mean()


def _value_share(tensor: torch.Tensor, value: float) -> torch.Tensor:
    return (tensor == value).float().mean()


def _sample(tensor: torch.Tensor, size: int) -> torch.Tensor:
    stride = sample_stride(tensor.numel(), size)
    return tensor.reshape(-1)[::stride]


def _sample_dtype(tensor: torch.Tensor) -> torch.dtype:
    if tensor.is_floating_point():
        return torch.float64 if tensor.dtype is torch.float64 else torch.float32
    return torch.int64


def _send(values: NDArray[np.generic], device: torch.device) -> torch.Tensor:
    sent = torch.from_numpy(values)
    return sent.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else sent.to(device)


def _probe_sparse(word: str, tensor: torch.Tensor) -> torch.Tensor:
    if word != words.ZERO_ROWS or tensor.layout is not torch.sparse_coo or tensor.sparse_dim() != 1:
        return torch.full((), torch.nan, device=tensor.device)
    stored = tensor.coalesce().values()
    used = (stored.reshape(len(stored), -1) != 0).any(1).sum()
    return 1 - used.float() / tensor.shape[0]


PROBES: dict[str, Callable[..., torch.Tensor]] = {
    words.IDLE_UNITS: _idle_units,
    words.QUANTILE_RANGE: _quantile_range,
    words.ZERO_ROWS: _zero_rows,
    words.ROW_ENTROPY: _row_entropy,
    words.CHANNEL_MEAN: _channel_mean,
    words.VALUE_SHARE: _value_share,
}

"""Probes of saved values, for a trial whose hook did not measure them.

`formats.tensors.statistics.probes` defines each of them. A hook measures the same in a running training, with torch.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from trainyard.formats.tensors.contract import Probe
from trainyard.formats.tensors.statistics import probes as words
from trainyard.formats.tensors.statistics.probes import (
    CHECKSUM_FACTOR,
    QUANTILE_SAMPLE,
    SAMPLE,
    fewest_active,
    sample_stride,
)

Array = NDArray[np.generic]
Floats = NDArray[np.float64]


def probe_values(probe: Probe, values: Array, before: Array | None = None) -> float:
    """Return the value of a probe for an array; `before` is the same tensor at the previous step.

    NaN for an empty tensor, and for an update without a previous step.
    """
    if not values.size:
        return math.nan
    if probe.word in UPDATES:
        if before is None or before.shape != values.shape:
            return math.nan
        return UPDATES[probe.word](_sample(values, SAMPLE), _sample(before, SAMPLE), *probe.parameters)
    return PROBES[probe.word](values, *probe.parameters)


def _update_ratio(now: Array, before: Array, epsilon: float) -> float:
    earlier = before.astype(np.float64)
    return float(np.mean(np.abs(now.astype(np.float64) - earlier) / (np.abs(earlier) + epsilon)))


def _update_norm_ratio(now: Array, before: Array) -> float:
    later = now.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.linalg.norm(later - before.astype(np.float64)) / np.linalg.norm(later))


def _cosine(now: Array, before: Array) -> float:
    later, earlier = now.astype(np.float64), before.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(later @ earlier / (np.linalg.norm(later) * np.linalg.norm(earlier)))


def _idle_units(values: Array, low: float, high: float, share: float) -> float:
    batch = _floats(values).reshape(len(values) if values.ndim else 1, -1)
    active = np.count_nonzero((batch > low) & (batch < high), axis=0)
    return float(np.mean(active < fewest_active(share, len(batch))))


def _quantile_range(values: Array, low: float, high: float) -> float:
    least, greatest = np.quantile(_floats(_sample(values, QUANTILE_SAMPLE)), [low, high])
    return float(greatest - least)


def _zero_rows(values: Array) -> float:
    rows = _floats(values).reshape(len(values) if values.ndim else 1, -1)
    return float(np.mean(~rows.any(axis=1)))


def _row_entropy(values: Array) -> float:
    size = values.shape[-1] if values.ndim else 1
    if size == 1:
        return 1.0
    shares = _floats(values)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = shares / shares.sum(axis=-1, keepdims=True)
        parts = np.where(shares == 0, 0.0, shares * np.log(shares))
    return float(-parts.sum(axis=-1).mean() / math.log(size))


def _channel_mean(values: Array, axis: float, channel: float) -> float:
    if values.ndim <= axis or values.shape[int(axis)] <= channel:
        return math.nan
    return float(np.moveaxis(_floats(values), int(axis), 0)[int(channel)].mean())


def _value_share(values: Array, value: float) -> float:
    return float(np.mean(_floats(values) == value))


def _checksum(values: Array) -> float:
    sample = _sample(values, SAMPLE)
    if sample.dtype.kind in "iub":
        bits = sample.astype(np.int64)
    elif sample.dtype == np.float64:
        bits = np.ascontiguousarray(sample).view(np.int64)
    else:
        bits = sample.astype(np.float32).view(np.int32).astype(np.int64)
    factors = (2 * np.arange(len(bits), dtype=np.int64) + 1) * np.int64(CHECKSUM_FACTOR)
    return float((int((bits * factors).sum()) >> 40) & 0xFFFFFF)


def _sample(values: Array, size: int) -> Array:
    return values.reshape(-1)[:: sample_stride(values.size, size)]


def _floats(values: Array) -> Floats:
    return values.astype(np.float64)


UPDATES: dict[str, Callable[..., float]] = {
    words.UPDATE_RATIO: _update_ratio,
    words.UPDATE_NORM_RATIO: _update_norm_ratio,
    words.COSINE: _cosine,
}
PROBES: dict[str, Callable[..., float]] = {
    words.IDLE_UNITS: _idle_units,
    words.QUANTILE_RANGE: _quantile_range,
    words.ZERO_ROWS: _zero_rows,
    words.ROW_ENTROPY: _row_entropy,
    words.CHANNEL_MEAN: _channel_mean,
    words.VALUE_SHARE: _value_share,
    words.CHECKSUM: _checksum,
}

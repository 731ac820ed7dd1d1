"""Reduces tensors on one CUDA GPU without ever waiting for it."""

import logging
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch

from trainyard.instance.hook.statistics.contract import DeviceStatistics, TensorGroup
from trainyard.instance.hook.statistics.ring_buffer import Slot, SlotRing
from trainyard.instance.hook.statistics.torch_operations import FLOATS, count_bins, reduce_each

log = logging.getLogger(__name__)


class CudaReduction(Protocol):
    """Launches the reduction of tensors that are dense, not empty and of a type that the Triton kernels support."""

    def reduce(self, group: TensorGroup, *, statistics: torch.Tensor, counts: torch.Tensor | None) -> None:
        """Write the statistics of each tensor to the row of its place, and add to its histogram if there is one."""


class CudaReducer:
    """Launches the reductions of a step into a slot of the ring, on the stream that is current at the time."""

    def __init__(self, device: torch.device, *, tensors: int, measures: int) -> None:
        self._device = device
        self._ring = SlotRing(device, tensors=tensors, measures=measures)
        self._reduction = choose_reduction(device)
        self._plain = PlainReduction()
        self._indices: dict[tuple[int, ...], torch.Tensor] = {}
        self.is_used = False
        self._slot: Slot | None = None
        self._places: list[int] = []
        self._measures: list[int] = []
        self._histograms: list[int] = []

    def reduce(self, group: TensorGroup, *, has_histograms: bool) -> None:
        slot = self._acquire()
        if slot is None:
            return
        with torch.cuda.device(self._device):
            slot.note_stream(torch.cuda.current_stream())
            self._reduce(group, statistics=slot.statistics, counts=slot.counts() if has_histograms else None)
        self._places.extend(group.places)
        if has_histograms:
            self._histograms.extend(group.places)

    def store_measures(self, measures: Sequence[int], values: torch.Tensor) -> None:
        slot = self._acquire()
        if slot is None:
            return
        numbers = tuple(measures)
        with torch.cuda.device(self._device):
            slot.note_stream(torch.cuda.current_stream())
            if len(numbers) == 1:
                slot.measures[numbers[0] : numbers[0] + 1].copy_(values)
            else:
                slot.measures.index_copy_(0, self._index(numbers), values.double())
        self._measures.extend(numbers)

    def finish(self) -> "CudaPending | None":
        slot, self._slot = self._slot, None
        places, measures, histograms = self._places, self._measures, self._histograms
        self._places, self._measures, self._histograms = [], [], []
        self.is_used = False
        if slot is None:
            return None
        slot.send(self._ring.stream)
        return CudaPending(self._ring, slot, places, measures, histograms)

    def _reduce(self, group: TensorGroup, *, statistics: torch.Tensor, counts: torch.Tensor | None) -> None:
        if group.stored[0].dtype in FLOATS:
            try:
                self._reduction.reduce(group, statistics=statistics, counts=counts)
                return
            # For example a kernel that cannot be compiled for this type. The training must not notice.
            except Exception:
                log.warning("falling back to plain torch operations for statistics", exc_info=True)
                self._reduction = _reductions[self._device] = self._plain
        self._plain.reduce(group, statistics=statistics, counts=counts)

    def _acquire(self) -> Slot | None:
        if not self.is_used:
            self.is_used = True
            self._slot = self._ring.acquire()
        return self._slot

    def _index(self, numbers: tuple[int, ...]) -> torch.Tensor:
        if numbers not in self._indices:
            sent = torch.tensor(numbers, pin_memory=True)
            self._indices[numbers] = sent.to(self._device, non_blocking=True)
        return self._indices[numbers]


class CudaPending:
    """Numbers in flight from a GPU."""

    def __init__(
        self, ring: SlotRing, slot: Slot, places: list[int], measures: list[int], histograms: list[int]
    ) -> None:
        self._ring = ring
        self._slot: Slot | None = slot
        self._places = places
        self._measures = measures
        self._histograms = histograms

    def __del__(self) -> None:
        self._release()

    def is_ready(self) -> bool:
        return self._slot is None or self._slot.is_free

    def result(self) -> DeviceStatistics:
        assert self._slot is not None, "the numbers of a step can be read once"
        try:
            self._slot.wait()
            return self._read_slot(self._slot)
        finally:
            self._release()

    def _read_slot(self, slot: Slot) -> DeviceStatistics:
        numbers = slot.host_numbers()
        statistics = numbers[: slot.statistics.numel()].reshape(-1, 8)
        measures = np.full(slot.measures.numel(), np.nan)
        measures[self._measures] = numbers[slot.statistics.numel() :][self._measures]
        counts = slot.host_counts(self._histograms) if self._histograms else ()
        return DeviceStatistics(self._places, statistics, measures, dict(zip(self._histograms, counts, strict=True)))

    def _release(self) -> None:
        if self._slot is not None:
            self._ring.release(self._slot)
            self._slot = None


class PlainReduction:
    """Reduces tensors one by one with torch operations, a dozen launches for each."""

    def reduce(self, group: TensorGroup, *, statistics: torch.Tensor, counts: torch.Tensor | None) -> None:
        for place, row in zip(group.places, reduce_each(list(group.stored)), strict=True):
            statistics[place].copy_(row)
        if counts is None:
            return
        for place, tensor in zip(group.places, group.stored, strict=True):
            row = count_bins(tensor)
            counts[place, : len(row)].copy_(row)


def choose_reduction(device: torch.device) -> CudaReduction:
    """Return the Triton kernels if they work on this GPU and agree with plain torch operations, else the latter."""
    if device not in _reductions:
        _reductions[device] = _try_fused(device) or PlainReduction()
    return _reductions[device]


_reductions: dict[torch.device, CudaReduction] = {}


def _try_fused(device: torch.device) -> CudaReduction | None:
    try:
        from trainyard.instance.hook.statistics.fused import FusedReduction

        reduction = FusedReduction(device)
        with torch.cuda.device(device), torch.inference_mode(mode=False), torch.no_grad():
            problem = _disagreement(reduction, device)
    # Whatever keeps the kernels from running, plain torch works without them.
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    if not problem:
        return reduction
    log.warning("using plain torch operations for statistics: %s", problem)
    return None


def _disagreement(reduction: CudaReduction, device: torch.device) -> str:
    """Return how the kernels differ from plain torch on tensors of several sizes, or an empty string."""
    generator = torch.Generator(device).manual_seed(7)
    tensors = [torch.randn(size, device=device, generator=generator) for size in (1, 1000, 30_000)]
    tensors[1][::7] = 0
    tensors[2][-1] = torch.inf
    computed = torch.zeros((len(tensors), 8), dtype=torch.float64, device=device)
    sizes, addresses = [tensor.numel() for tensor in tensors], [tensor.data_ptr() for tensor in tensors]
    reduction.reduce(TensorGroup((0, 1, 2), tensors, tensors, sizes, addresses), statistics=computed, counts=None)
    is_right = torch.allclose(computed, reduce_each(tensors), rtol=1e-4, atol=1e-6, equal_nan=True)
    return "" if is_right else "the kernels give different numbers on this GPU"

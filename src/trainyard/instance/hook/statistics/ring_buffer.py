"""Copies the numbers of a step from a GPU: one packed buffer, and one asynchronous copy to pinned memory.

A slot holds the device buffer and the pinned memory for one step. There are a few, so that several steps can be in
flight while the writer thread is busy. If all are in use, a step is dropped rather than waited for.
"""

from collections import deque
from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray

from trainyard.formats.tensors.statistics.histograms import BINS

SLOTS = 6
# Counts per histogram on the device: a power of two. Those from BINS on are unused.
HISTOGRAM_ROW = 256


class Slot:
    """The memory of one step: `numbers` holds eight statistics for each tensor, then the measures."""

    def __init__(self, device: torch.device, *, tensors: int, measures: int) -> None:
        self._tensors = tensors
        self._device = device
        size = tensors * 8 + measures
        self.numbers = torch.zeros(size, dtype=torch.float64, device=device)
        self.statistics = self.numbers[: tensors * 8].view(tensors, 8)
        self.measures = self.numbers[tensors * 8 :]
        self._pinned = torch.empty(size, dtype=torch.float64, pin_memory=True)
        self._counts: torch.Tensor | None = None
        self._pinned_counts: torch.Tensor | None = None
        self._has_counts = False
        self._streams: dict[int, torch.cuda.Stream] = {}
        self._event = torch.cuda.Event(blocking=True)
        self._is_in_flight = False

    @property
    def is_free(self) -> bool:
        """Whether the device has finished with its memory."""
        return not self._is_in_flight or self._event.query()

    def begin(self) -> None:
        """Prepare the slot for another step."""
        self._has_counts = False
        self._streams.clear()

    def note_stream(self, stream: torch.cuda.Stream) -> None:
        """Remember a stream whose work the step's numbers depend on."""
        self._streams.setdefault(stream.cuda_stream, stream)

    def counts(self) -> torch.Tensor:
        """Return the histograms, a row of HISTOGRAM_ROW counts for each tensor, zeroed on the step's first call."""
        if self._counts is None:
            self._counts = torch.empty((self._tensors, HISTOGRAM_ROW), dtype=torch.int32, device=self._device)
            self._pinned_counts = torch.empty((self._tensors, HISTOGRAM_ROW), dtype=torch.int32, pin_memory=True)
        if not self._has_counts:
            self._counts.zero_()
            self._has_counts = True
        return self._counts

    def send(self, stream: torch.cuda.Stream) -> None:
        """Start the copy to the host, after all work of the noted streams.

        It runs on the noted stream if there is only one, otherwise on `stream`. The copy takes about 3 µs of GPU time;
        switching streams takes 40 µs of CPU time, which a training on a fast GPU can spare less.
        """
        if len(self._streams) == 1:
            (stream,) = self._streams.values()
        for used in self._streams.values():
            if used is not stream:
                stream.wait_stream(used)
        if torch.cuda.current_stream(self._device) == stream:
            self._copy()
        else:
            with torch.cuda.stream(stream):
                self._copy()
        self._is_in_flight = True

    def wait(self) -> None:
        """Wait until the numbers have arrived, without using the CPU."""
        self._event.synchronize()

    def host_numbers(self) -> NDArray[np.float64]:
        """Return a copy of the numbers that arrived on the host."""
        numbers: NDArray[np.float64] = self._pinned.numpy().copy()
        return numbers

    def host_counts(self, places: Iterable[int]) -> NDArray[np.uint32]:
        """Return the histograms of some tensors that arrived on the host."""
        assert self._pinned_counts is not None, "no histogram was computed in this step"
        rows: NDArray[np.int32] = self._pinned_counts.numpy()[list(places), :BINS]
        return rows.astype(np.uint32)

    def _copy(self) -> None:
        self._pinned.copy_(self.numbers, non_blocking=True)
        if self._has_counts and self._counts is not None and self._pinned_counts is not None:
            self._pinned_counts.copy_(self._counts, non_blocking=True)
        self._event.record()


class SlotRing:
    """The slots of a table on one GPU, and a stream for numbers that come from several streams."""

    def __init__(self, device: torch.device, *, tensors: int, measures: int, slots: int = SLOTS) -> None:
        self._device = device
        self._tensors = tensors
        self._measures = measures
        self._unallocated = slots
        self._free: deque[Slot] = deque()
        self.stream = torch.cuda.Stream(device)

    def acquire(self) -> Slot | None:
        """Return a slot for a step, allocating one if needed, or None if all are in use."""
        slot = self._reuse()
        if slot is not None or not self._unallocated:
            return slot
        self._unallocated -= 1
        with torch.inference_mode(mode=False), torch.cuda.device(self._device):
            return Slot(self._device, tensors=self._tensors, measures=self._measures)

    def release(self, slot: Slot) -> None:
        """Return a slot to the ring, from any thread. Does not wait for work of the device that still uses it."""
        self._free.append(slot)

    def _reuse(self) -> Slot | None:
        for _ in range(len(self._free)):
            try:
                slot = self._free.popleft()
            except IndexError:
                return None
            if slot.is_free:
                slot.begin()
                return slot
            self._free.append(slot)
        return None

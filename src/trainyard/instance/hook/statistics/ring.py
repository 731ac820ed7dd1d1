"""How the numbers of a step come from a GPU: one packed buffer, and one copy to pinned memory that nobody waits for.

A slot has the buffer on the device and the pinned memory for one step. There are a few, so that several steps can be on
their way while the thread that writes is busy; when all are, a step is dropped rather than waited for.
"""

from collections import deque
from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray

from trainyard.formats.tensors.histograms import BINS

SLOTS = 6
ROW = 256  # counts of a histogram on the device, a power of two; those from BINS on are not used


class Slot:
    """The memory of one step: `numbers` has eight statistics for each tensor, then the measures."""

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
        self._is_under_way = False

    @property
    def is_free(self) -> bool:
        """Whether nothing on the device uses its memory any more."""
        return not self._is_under_way or self._event.query()

    def begin(self) -> None:
        """Makes it ready for another step."""
        self._has_counts = False
        self._streams.clear()

    def note_stream(self, stream: torch.cuda.Stream) -> None:
        """Remembers a stream whose work the step's numbers depend on."""
        self._streams.setdefault(stream.cuda_stream, stream)

    def counts(self) -> torch.Tensor:
        """The histograms, a row of ROW counts for each tensor, all 0 when the step first asks for them."""
        if self._counts is None:
            self._counts = torch.empty((self._tensors, ROW), dtype=torch.int32, device=self._device)
            self._pinned_counts = torch.empty((self._tensors, ROW), dtype=torch.int32, pin_memory=True)
        if not self._has_counts:
            self._counts.zero_()
            self._has_counts = True
        return self._counts

    def send(self, stream: torch.cuda.Stream) -> None:
        """Starts the copy to the host behind all work that was noted, on its stream or, where it has several, on this.

        The copy takes the GPU about 3 µs, and changing streams the processor 40, of which a training on a fast GPU has
        less to spare.
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
        self._is_under_way = True

    def wait(self) -> None:
        """Waits until the numbers have arrived, without using the processor."""
        self._event.synchronize()

    def arrived(self) -> NDArray[np.float64]:
        """The numbers on the host, as a copy."""
        numbers: NDArray[np.float64] = self._pinned.numpy().copy()
        return numbers

    def arrived_counts(self, places: Iterable[int]) -> NDArray[np.uint32]:
        """The histograms of some tensors on the host."""
        assert self._pinned_counts is not None, "no histogram was taken in this step"
        rows: NDArray[np.int32] = self._pinned_counts.numpy()[list(places), :BINS]
        return rows.astype(np.uint32)

    def _copy(self) -> None:
        self._pinned.copy_(self.numbers, non_blocking=True)
        if self._has_counts and self._counts is not None and self._pinned_counts is not None:
            self._pinned_counts.copy_(self._counts, non_blocking=True)
        self._event.record()


class Ring:
    """The slots of a table on one GPU, and a stream for numbers that several streams have made."""

    def __init__(self, device: torch.device, *, tensors: int, measures: int, slots: int = SLOTS) -> None:
        self._device = device
        self._tensors = tensors
        self._measures = measures
        self._to_make = slots
        self._free: deque[Slot] = deque()
        self.stream = torch.cuda.Stream(device)

    def acquire(self) -> Slot | None:
        """A slot for a step, made when there is none yet; None where all are in use."""
        slot = self._reuse()
        if slot is not None or not self._to_make:
            return slot
        self._to_make -= 1
        with torch.inference_mode(mode=False), torch.cuda.device(self._device):
            return Slot(self._device, tensors=self._tensors, measures=self._measures)

    def release(self, slot: Slot) -> None:
        """Takes a slot back, from any thread; what the device still does with it is waited for by nobody."""
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

"""Reduces the tensors of a step, with a second reducer for those that the first is not prepared for."""

import functools
from collections.abc import Sequence

import torch

from trainyard.formats.tensors.contract import TensorTable
from trainyard.instance.hook.recording import HookRecording
from trainyard.instance.hook.statistics.step_reducer import make_reducer
from trainyard.instance.hook.steps import OpenStep, PendingPart

# GPU time is measured in one of this many steps, and counted for all of them.
_TIMED_EVERY_STEPS = 8


class StepReduction:
    """Reduces the tensors of a step.

    A reducer is prepared for a table, and a tensor observed for the first time is not in it yet. Such tensors are
    reduced separately in that step, and with all others from the next one on.
    """

    def __init__(self, recording: HookRecording) -> None:
        self._recording = recording
        self._reducer = make_reducer()
        self._extra = make_reducer()
        self._prepared = TensorTable(())
        self._has_reduced = False
        self._steps = 0

    def reduce(
        self,
        step: OpenStep,
        places: tuple[int, ...],
        tensors: Sequence[torch.Tensor | None],
        *,
        has_histograms: bool = False,
    ) -> None:
        """Start to reduce tensors at these places. Pass the same `places` tuple each time."""
        if self._prepared is not self._recording.table.current and not self._knows(places):
            self._reduce_new(step, places, tensors, has_histograms=has_histograms)
            return
        self._has_reduced = True
        device = _gpu_of(tensors) if self._steps % _TIMED_EVERY_STEPS == 0 else None
        if device is None:
            self._reducer.reduce(places, tensors, has_histograms=has_histograms)
            return
        with torch.cuda.device(device):
            began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            began.record()
            self._reducer.reduce(places, tensors, has_histograms=has_histograms)
            ended.record()
        step.device_ns.append(functools.partial(_elapsed_ns, began, ended))

    def _reduce_new(
        self,
        step: OpenStep,
        places: tuple[int, ...],
        tensors: Sequence[torch.Tensor | None],
        *,
        has_histograms: bool,
    ) -> None:
        table = self._recording.table.subset(places)
        self._extra.prepare(table)
        self._extra.reduce(tuple(range(len(places))), tensors, has_histograms=has_histograms)
        pending = self._extra.finish()
        if pending is not None:
            step.parts.append(PendingPart(table, pending, places))
        self._recording.throttle.exempt()

    def finish(self, step: OpenStep) -> bool:
        """Add the numbers to the step and prepare for the next. Returns False if the device is too far behind."""
        is_complete = True
        if self._has_reduced:
            self._steps += 1
            pending = self._reducer.finish()
            is_complete = pending is not None
            if pending is not None:
                step.parts.insert(0, PendingPart(self._prepared, pending))
        self._has_reduced = False
        if self._prepared is not self._recording.table.current:
            self._prepared = self._recording.table.current
            self._reducer.prepare(self._prepared)
            self._recording.throttle.exempt()
        return is_complete

    def _knows(self, places: tuple[int, ...]) -> bool:
        prepared, current = self._prepared.tensors, self._recording.table.current.tensors
        return all(place < len(prepared) and prepared[place] is current[place] for place in places)


def _gpu_of(tensors: Sequence[torch.Tensor | None]) -> torch.device | None:
    first = next((tensor for tensor in tensors if tensor is not None), None)
    is_measurable = first is not None and first.is_cuda and not torch.cuda.is_current_stream_capturing()
    return first.device if first is not None and is_measurable else None


def _elapsed_ns(began: torch.cuda.Event, ended: torch.cuda.Event) -> int:
    """Return the GPU time between two events, times the number of steps that this one stands for."""
    return int(began.elapsed_time(ended) * 1e6) * _TIMED_EVERY_STEPS if ended.query() else 0

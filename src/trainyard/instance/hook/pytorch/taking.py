"""Hands the tensors of a step to the reducer, and those it was not prepared for to a second one."""

import functools
from collections.abc import Sequence

import torch

from trainyard.formats.tensors.contract import TensorTable
from trainyard.instance.hook.recording import Recording
from trainyard.instance.hook.statistics.reducing import make_reducer
from trainyard.instance.hook.steps import OpenStep, Part

_MEASURED_EVERY = 8  # steps, in one of which the time of a GPU is taken for all of them


class Taking:
    """A reducer is prepared for a table; a tensor that is seen for the first time is in none yet.

    Such tensors are reduced on their own in that step, and from the next one on with all others.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._reducer = make_reducer()
        self._extra = make_reducer()
        self._prepared = TensorTable(())
        self._has_taken = False
        self._steps = 0

    def take(
        self,
        step: OpenStep,
        places: tuple[int, ...],
        tensors: Sequence[torch.Tensor | None],
        *,
        has_histograms: bool = False,
    ) -> None:
        """Start the reduction of tensors at these places; `places` should be the same tuple each time."""
        if self._prepared is not self._recording.table.current and not self._knows(places):
            self._take_new(step, places, tensors, has_histograms=has_histograms)
            return
        self._has_taken = True
        device = _gpu_of(tensors) if self._steps % _MEASURED_EVERY == 0 else None
        if device is None:
            self._reducer.take(places, tensors, has_histograms=has_histograms)
            return
        with torch.cuda.device(device):
            began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            began.record()
            self._reducer.take(places, tensors, has_histograms=has_histograms)
            ended.record()
        step.device_ns.append(functools.partial(_elapsed_ns, began, ended))

    def _take_new(
        self,
        step: OpenStep,
        places: tuple[int, ...],
        tensors: Sequence[torch.Tensor | None],
        *,
        has_histograms: bool,
    ) -> None:
        table = self._recording.table.part(places)
        self._extra.prepare(table)
        self._extra.take(tuple(range(len(places))), tensors, has_histograms=has_histograms)
        pending = self._extra.finish()
        if pending is not None:
            step.parts.append(Part(table, pending, places))
        self._recording.throttle.exempt()

    def finish(self, step: OpenStep) -> bool:
        """Add what was taken to the step, and be ready for the next; False when the device is too far behind."""
        is_complete = True
        if self._has_taken:
            self._steps += 1
            pending = self._reducer.finish()
            is_complete = pending is not None
            if pending is not None:
                step.parts.insert(0, Part(self._prepared, pending))
        self._has_taken = False
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
    """How long a GPU took between two events, for all the steps that this one stands for."""
    return int(began.elapsed_time(ended) * 1e6) * _MEASURED_EVERY if ended.query() else 0

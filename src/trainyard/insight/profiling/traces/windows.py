"""The stretches of a trace that count as steps.

A step lasts from its mark in the program to the end of the last work that it launched on a device, and begins no
earlier than the one before has ended, as torch_tb_profiler defines it. Without marks, which torch writes only for a
profiler with a schedule or with calls of `step`, the whole trace is one window.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainyard.formats.profiles.traces.contract import EventKind, Mask, Trace, Whole
from trainyard.insight.profiling.traces.launches import NONE, Launches

# The number of a window that is no step.
WHOLE_TRACE = -1
_NEVER = np.iinfo(np.int64).min
_WORKING = (EventKind.OPERATOR, EventKind.KERNEL, EventKind.MEMCPY, EventKind.MEMSET, EventKind.RUNTIME)


@dataclass(frozen=True, slots=True)
class StepWindows:
    """Disjoint windows in order of time."""

    numbers: Whole
    starts_ns: Whole
    ends_ns: Whole
    notes: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def are_steps(self) -> bool:
        return len(self) > 0 and int(self.numbers[0]) != WHOLE_TRACE

    @property
    def durations_ns(self) -> Whole:
        return self.ends_ns - self.starts_ns

    @property
    def start_ns(self) -> int:
        return int(self.starts_ns[0]) if len(self) else 0

    @property
    def end_ns(self) -> int:
        return int(self.ends_ns[-1]) if len(self) else 0


def find_windows(trace: Trace, launches: Launches) -> StepWindows:
    if not len(trace.steps):
        return _whole_trace(trace)
    starts, ends = trace.steps.starts_ns, np.maximum(trace.steps.ends_ns, trace.steps.starts_ns)
    work = _find_work(trace, launches, starts, ends)
    has_work = work.ends > _NEVER
    first = _end_of_earlier_work(trace, launches, work.is_of_step, starts[0]) if has_work.any() else int(starts[0])
    # Each step ends no earlier than those before it, so the running maximum is where the next one can begin.
    ends = np.maximum.accumulate(np.maximum(np.maximum(ends, work.ends), first))
    starts = np.maximum(starts, np.concatenate([[first], ends[:-1]]))
    # A profiler that stopped in the middle of a step has seen none of its kernels.
    kept = int(np.flatnonzero(has_work)[-1]) + 1 if has_work.any() else len(starts)
    left_out = len(starts) - kept
    notes = [f"The last {left_out} steps launched nothing on a device and were left out."] if left_out else []
    return StepWindows(trace.steps.numbers[:kept], starts[:kept], np.maximum(starts, ends)[:kept], tuple(notes))


def _whole_trace(trace: Trace) -> StepWindows:
    events = trace.events
    rows = events.of_kind(*_WORKING)
    if not rows.any():
        rows = ~events.of_kind(EventKind.OVERHEAD)
    if not rows.any():
        none = np.zeros(0, np.int64)
        return StepWindows(none, none, none)
    starts, ends = events.starts_ns[rows], events.ends_ns[rows]
    note = "The trace marks no steps; all of it counts as one. A profiler with a schedule marks them."
    return StepWindows(np.array([WHOLE_TRACE]), starts.min(keepdims=True), ends.max(keepdims=True), (note,))


@dataclass(frozen=True, slots=True)
class _DeviceWork:
    """When the work ends that each step launched, if any, and which launches are of a step."""

    ends: Whole
    is_of_step: Mask


def _find_work(trace: Trace, launches: Launches, starts: Whole, ends: Whole) -> _DeviceWork:
    events = trace.events
    known = np.flatnonzero(launches.callers != NONE)
    callers = launches.callers[known]
    # A call is part of a step if it lies in it as a whole.
    step = np.searchsorted(starts, events.starts_ns[callers], side="right") - 1
    inside = (step >= 0) & (events.ends_ns[callers] <= ends[np.maximum(step, 0)])
    reaches = np.full(len(starts), _NEVER)
    np.maximum.at(reaches, step[inside], events.ends_ns[launches.devices[known[inside]]])
    is_of_step = np.zeros(len(launches.devices), np.bool_)
    is_of_step[known[inside]] = True
    return _DeviceWork(reaches, is_of_step)


def _end_of_earlier_work(trace: Trace, launches: Launches, matched: Mask, start: int) -> int:
    """Return when the work ends that was launched before the first step, but runs in it and before its own work."""
    events = trace.events
    own_start = events.starts_ns[launches.devices[matched]].min()
    ends = events.ends_ns[launches.devices[~matched]]
    return max(int(start), int(ends[ends < own_start].max(initial=start)))

"""What the time of steps was spent on, as shares that exclude each other and add up to the whole.

Of all that goes on at a moment, the first in the order of `TimeRole` has it. That is the definition of
torch_tb_profiler, and with it what remains to a role is what a perfect overlap with the roles before it would save.
"""

import re
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from trainyard.formats.profiles.traces.contract import EventKind, EventTable, Mask, Trace, Whole
from trainyard.insight.profiling.traces.intervals import Intervals, union_of
from trainyard.insight.profiling.traces.windows import StepWindows


class TimeRole(IntEnum):
    """What a moment counts as; the value is the column of a table and the order of precedence."""

    KERNEL = 0
    MEMCPY = 1
    MEMSET = 2
    COMMUNICATION = 3
    RUNTIME = 4
    DATA_LOADER = 5
    CPU_EXEC = 6
    OTHER = 7


@dataclass(frozen=True, slots=True)
class RoleTable:
    """Nanoseconds by step, with a column for each role. Rows add up to the durations of the windows."""

    windows: StepWindows
    times_ns: NDArray[np.int64]

    @property
    def mean_s(self) -> dict[TimeRole, float]:
        """The time of each role in a mean step, in seconds."""
        count = max(1, len(self.windows))
        return {role: float(self.times_ns[:, role].sum()) / count / 1e9 for role in TimeRole}

    @property
    def shares(self) -> dict[TimeRole, float]:
        """The share of each role in the time of all steps, from 0 to 1."""
        total = max(1, int(self.times_ns.sum()))
        return {role: float(self.times_ns[:, role].sum()) / total for role in TimeRole}


_LOADER = re.compile(r"^enumerate\(DataLoader\)#.*\.__next__$|^enumerate\(DataPipe\)#")
_COLLECTIVE_OPERATOR = re.compile(r"^(?:nccl|gloo|mpi|ucc|xccl|hccl|rccl):\w+")
_COLLECTIVE_KERNEL = re.compile(r"nccl|rccl|oneccl|msccl|nvshmem", re.IGNORECASE)
# Operators that start a collective and may wait for it; they compute nothing.
_COLLECTIVE_CALL = re.compile(r"^(?:c10d::|_?c10d_functional::|record_param_comms)")
# What old versions of torch write as an operator, and is none.
_ANNOTATION = re.compile(r"^(?:ProfilerStep#|enumerate\(Data|Optimizer\.|(?:Distributed)?DataParallel\.forward)")
_HOST = (EventKind.OPERATOR, EventKind.ANNOTATION)


def split_roles(trace: Trace, windows: StepWindows) -> RoleTable:
    """Divide the windows into roles. The last column is what no role has."""
    events = trace.events
    times = np.zeros((len(windows), len(TimeRole)), np.int64)
    taken = union_of(np.zeros(0, np.int64), np.zeros(0, np.int64))
    covered = np.zeros(len(windows), np.int64)
    for role, rows in role_rows(trace).items():
        if rows.any():
            taken = taken.joined_with(intervals_of(events, rows))
        reached = taken.length_within(windows.starts_ns, windows.ends_ns)
        times[:, role] = reached - covered
        covered = reached
    times[:, TimeRole.OTHER] = windows.durations_ns - covered
    return RoleTable(windows, times)


def role_rows(trace: Trace) -> dict[TimeRole, Mask]:
    """Return which events are of each role, in the order of precedence."""
    events = trace.events
    is_collective = collective_rows(trace)
    is_kernel = events.of_kind(EventKind.KERNEL)
    is_loader = loader_rows(trace)
    return {
        TimeRole.KERNEL: is_kernel & ~is_collective,
        TimeRole.MEMCPY: events.of_kind(EventKind.MEMCPY),
        TimeRole.MEMSET: events.of_kind(EventKind.MEMSET),
        TimeRole.COMMUNICATION: is_collective,
        TimeRole.RUNTIME: events.of_kind(EventKind.RUNTIME),
        TimeRole.DATA_LOADER: is_loader,
        TimeRole.CPU_EXEC: operator_rows(events) & ~is_collective & ~is_loader,
    }


def loader_rows(trace: Trace) -> Mask:
    """Return the waits for batches. Since torch 2 they are annotations, and no operators any more.

    A thread that loads ahead of the steps holds nothing up, so only the threads of the steps count if there are any.
    """
    events = trace.events
    rows = matching(events, _LOADER) & events.of_kind(*_HOST)
    if len(trace.steps):
        rows &= np.isin(events.tracks, np.unique(trace.steps.tracks))
    return rows


def collective_rows(trace: Trace) -> Mask:
    """Return the collectives: their kernels, or where there are none, what the program itself spends on them.

    With kernels, the calls of the program only enqueue and count as any operator.
    """
    events = trace.events
    is_kernel = events.of_kind(EventKind.KERNEL)
    named = matching(events, _COLLECTIVE_KERNEL)
    named[trace.collectives.events] = True
    if (is_kernel & named).any():
        return is_kernel & named
    return matching(events, _COLLECTIVE_OPERATOR) & events.of_kind(*_HOST)


def computing_rows(trace: Trace) -> Mask:
    """Return what computes: kernels, or operators in a program without a device."""
    events = trace.events
    is_kernel = events.of_kind(EventKind.KERNEL)
    if is_kernel.any():
        return is_kernel & ~collective_rows(trace)
    is_call = matching(events, _COLLECTIVE_CALL) | matching(events, _COLLECTIVE_OPERATOR)
    return operator_rows(events) & ~is_call


def operator_rows(events: EventTable) -> Mask:
    """Return the operators, without the annotations that old versions of torch write as such."""
    return events.of_kind(EventKind.OPERATOR) & ~matching(events, _ANNOTATION)


def matching(events: EventTable, pattern: re.Pattern[str]) -> Mask:
    """Return the events in whose names the pattern is found. It looks at each distinct name once."""
    by_name = np.array([bool(pattern.search(text)) for text in events.texts], np.bool_)
    found: Mask = by_name[events.names] if len(by_name) else np.zeros(0, np.bool_)
    return found


def intervals_of(events: EventTable, rows: Mask) -> Intervals:
    starts: Whole = events.starts_ns[rows]
    return union_of(starts, starts + events.durations_ns[rows])

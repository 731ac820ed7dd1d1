"""Collectives: how large, how long, and how much of their time computing hides."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainyard.formats.profiles.traces.contract import EventKind, Trace, Whole
from trainyard.insight.profiling.traces.element_types import element_bytes
from trainyard.insight.profiling.traces.launches import NONE, look_up
from trainyard.insight.profiling.traces.roles import collective_rows, computing_rows, intervals_of
from trainyard.insight.profiling.traces.windows import StepWindows


@dataclass(frozen=True, slots=True)
class CollectiveCalls:
    """The collectives of one rank, in order of time. `sizes_bytes` is what the rank contributes; 0 if unknown."""

    names: Sequence[str]
    starts_ns: Whole
    durations_ns: Whole
    sizes_bytes: Whole

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True, slots=True)
class CollectiveCost:
    """All calls of one collective."""

    name: str
    calls: int
    total_bytes: int
    total_s: float
    mean_s: float
    max_s: float

    @property
    def bytes_per_s(self) -> float:
        return self.total_bytes / self.total_s if self.total_s else 0.0


@dataclass(frozen=True, slots=True)
class OverlapTable:
    """Nanoseconds by step: computing, communicating, and both at once. What is exposed holds the program up."""

    computation_ns: Whole
    communication_ns: Whole
    overlap_ns: Whole
    other_ns: Whole

    @property
    def exposed_ns(self) -> Whole:
        return self.communication_ns - self.overlap_ns

    @property
    def exposed_share(self) -> float:
        """The share of exposed communication in the time of all steps."""
        total = (self.computation_ns + self.exposed_ns + self.other_ns).sum()
        return float(self.exposed_ns.sum() / total) if total else 0.0


@dataclass(frozen=True, slots=True)
class CollectiveWaits:
    """How a collective divides into moving data and waiting for the last rank to arrive, summed for one rank."""

    name: str
    calls: int
    transfer_s: float
    wait_s: float


def find_collectives(trace: Trace) -> CollectiveCalls:
    events = trace.events
    rows = np.flatnonzero(collective_rows(trace))
    rows = rows[np.argsort(events.starts_ns[rows], kind="stable")]
    sizes = _sizes(trace, rows)
    names = [_collective_name(trace, int(row)) for row in rows]
    return CollectiveCalls(names, events.starts_ns[rows], events.durations_ns[rows], sizes)


def list_collectives(calls: CollectiveCalls) -> Sequence[CollectiveCost]:
    """Return the collectives, those with most time first."""
    found = []
    names = np.array(calls.names, dtype=np.str_)
    for name in np.unique(names) if len(calls) else ():
        own = names == name
        durations = calls.durations_ns[own] / 1e9
        found.append(
            CollectiveCost(
                name=str(name),
                calls=int(own.sum()),
                total_bytes=int(calls.sizes_bytes[own].sum()),
                total_s=float(durations.sum()),
                mean_s=float(durations.mean()),
                max_s=float(durations.max()),
            )
        )
    return sorted(found, key=lambda each: (-each.total_s, each.name))


def measure_overlap(trace: Trace, windows: StepWindows) -> OverlapTable:
    computing = intervals_of(trace.events, computing_rows(trace))
    communicating = intervals_of(trace.events, collective_rows(trace))
    both = computing.joined_with(communicating)
    inside = [each.length_within(windows.starts_ns, windows.ends_ns) for each in (computing, communicating, both)]
    return OverlapTable(inside[0], inside[1], inside[0] + inside[1] - inside[2], windows.durations_ns - inside[2])


def split_waits(ranks: Mapping[int, CollectiveCalls]) -> Mapping[int, Sequence[CollectiveWaits]]:
    """Divide the time of collectives of all ranks. Their n-th calls of a name belong together.

    The rank that arrives last waits for none, so the shortest call of all is the transfer, whatever the clocks of the
    ranks say. Names with different numbers of calls are left out: some of them are not in all traces.
    """
    by_name = {rank: _durations_by_name(calls) for rank, calls in ranks.items()}
    shared: set[str] = set.intersection(*(set(each) for each in by_name.values())) if by_name else set()
    found: dict[int, list[CollectiveWaits]] = {rank: [] for rank in ranks}
    for name in sorted(shared):
        durations = [by_name[rank][name] for rank in ranks]
        if len({len(each) for each in durations}) > 1:
            continue
        transfer = np.min(np.stack(durations), axis=0)
        for rank, own in zip(ranks, durations, strict=True):
            waits = CollectiveWaits(name, len(own), float(transfer.sum()) / 1e9, float((own - transfer).sum()) / 1e9)
            found[rank].append(waits)
    return found


def _durations_by_name(calls: CollectiveCalls) -> dict[str, NDArray[np.int64]]:
    names = np.array(calls.names, dtype=np.str_)
    return {str(name): calls.durations_ns[names == name] for name in np.unique(names)} if len(calls) else {}


def _collective_name(trace: Trace, row: int) -> str:
    table = trace.collectives
    place = np.flatnonzero(table.events == row)
    if len(place):
        return table.texts[int(table.names[place[0]])]
    return trace.events.name_of(row)


def _sizes(trace: Trace, rows: Whole) -> Whole:
    """Return the bytes of each collective: as its event says, or else from the inputs of the operator."""
    table, events = trace.collectives, trace.events
    element = np.array([element_bytes(text) for text in table.texts], np.int64)
    stated = table.input_elements * element[table.types] if len(table) else np.zeros(0, np.int64)
    # An event may be the first of all, so that rows count from 1 here.
    own = look_up(table.events.astype(np.int64) + 1, stated, rows + 1)
    by_input: dict[tuple[int, int], int] = {}
    operators = np.flatnonzero(events.of_kind(EventKind.OPERATOR, EventKind.ANNOTATION))
    launched_by = look_up(events.external_ids[operators], operators, events.external_ids[rows])
    sizes = np.zeros(len(rows), np.int64)
    for place, row in enumerate(rows.tolist()):
        if own[place] > 0:
            sizes[place] = own[place]
            continue
        source = row if events.shapes[row] else int(launched_by[place])
        if source == NONE:
            continue
        key = (int(events.shapes[source]), int(events.types[source]))
        if key not in by_input:
            by_input[key] = input_bytes(*(events.shape_texts[each] for each in key))
        sizes[place] = by_input[key]
    return sizes


def input_bytes(shapes: str, types: str) -> int:
    """Return the size of all tensors among the inputs of an operator; 0 for what is not known."""
    try:
        extents, kinds = json.loads(shapes or "[]"), json.loads(types or "[]")
    except ValueError:
        return 0
    if not isinstance(extents, list) or not isinstance(kinds, list):
        return 0
    total = 0
    for extent, kind in zip(extents, kinds, strict=False):
        if isinstance(kind, str) and isinstance(extent, list) and all(isinstance(each, int) for each in extent):
            total += element_bytes(kind) * int(np.prod(extent, dtype=np.int64))
    return total

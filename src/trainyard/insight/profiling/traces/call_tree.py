"""Which operator ran inside which, and what each launched on devices.

Events of one thread lie in each other or apart. So how deep one lies is how many of those before it have not ended when
it starts, and its parent is the last before it that is one less deep. That needs sorting and counting, no walk over a
million events. Where a trace breaks the rule, a child counts for the part that lies in its parent.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from trainyard.formats.profiles.traces.contract import EventKind, Mask, Trace, Whole
from trainyard.insight.profiling.traces.launches import NONE, Launches, look_up
from trainyard.insight.profiling.traces.roles import operator_rows
from trainyard.insight.profiling.traces.tensor_cores import can_use_tensor_cores, uses_tensor_cores


@dataclass(frozen=True, slots=True)
class CallTree:
    """Nodes are operators and calls of the driver, by thread and time; each array has an entry for every node.

    A node whose only child has its own name stands for both: `is_repeated` says of the child that it does not count as
    another call. `device_self_ns` is the time of what a node launched itself, `device_total_ns` with all below it.
    """

    rows: Whole  # of the events
    tracks: NDArray[np.int32]
    starts_ns: Whole
    ends_ns: Whole
    parents: Whole  # nodes; -1 for those at the top
    depths: Whole
    is_operator: Mask
    is_repeated: Mask
    can_use_tensor_cores: Mask
    self_ns: Whole
    device_self_ns: Whole
    device_total_ns: Whole
    tensor_core_self_ns: Whole
    tensor_core_total_ns: Whole

    def __len__(self) -> int:
        return len(self.rows)

    def node_at(self, tracks: NDArray[np.int32], times: Whole) -> Whole:
        """Return the innermost operator that ran on each track at each time; -1 where none did."""
        found = np.full(len(times), NONE)
        for track in np.unique(tracks):
            asked = np.flatnonzero(tracks == track)
            begin, end = np.searchsorted(self.tracks, [track, track + 1])
            node = begin + np.searchsorted(self.starts_ns[begin:end], times[asked], side="right") - 1
            node[node < begin] = NONE
            is_open = node != NONE
            while is_open.any():
                over = is_open & ((self.ends_ns[node] <= times[asked]) | ~self.is_operator[node])
                node[over] = self.parents[node[over]]
                is_open = over & (node != NONE)
            found[asked] = node
        return found


def build_call_tree(trace: Trace, launches: Launches) -> CallTree:
    events = trace.events
    is_operator = operator_rows(events)
    rows = np.flatnonzero(is_operator | events.of_kind(EventKind.RUNTIME))
    rows = rows[np.lexsort((-events.durations_ns[rows], events.starts_ns[rows], events.tracks[rows]))]
    starts, ends, tracks = events.starts_ns[rows], events.ends_ns[rows], events.tracks[rows]
    depths, parents = _nest(tracks, starts, ends)
    operators = is_operator[rows]
    levels = _Levels(depths, parents)
    own, own_tensor_cores = _device_time(trace, launches, rows, parents, operators)
    eligible = np.array([can_use_tensor_cores(text) for text in events.texts], np.bool_)[events.names[rows]]
    eligible = operators & (eligible | (own_tensor_cores > 0))
    return CallTree(
        rows=rows,
        tracks=tracks,
        starts_ns=starts,
        ends_ns=ends,
        parents=parents,
        depths=depths,
        is_operator=operators,
        is_repeated=_find_repetitions(events.names[rows], parents, operators),
        can_use_tensor_cores=levels.sums_of(eligible.astype(np.int64)) > 0,
        self_ns=_self_time(starts, ends, parents),
        device_self_ns=own,
        device_total_ns=levels.sums_of(own),
        tensor_core_self_ns=own_tensor_cores,
        tensor_core_total_ns=levels.sums_of(own_tensor_cores),
    )


class _Levels:
    """The nodes of each depth but the top, deepest first."""

    def __init__(self, depths: Whole, parents: Whole) -> None:
        self._parents = parents
        order = np.argsort(-depths, kind="stable")
        order = order[parents[order] != NONE]
        borders = np.flatnonzero(np.diff(depths[order])) + 1
        self._levels = np.split(order, borders) if len(order) else []

    def sums_of(self, values: Whole) -> Whole:
        """Return for each node the sum over it and all below it."""
        sums = values.copy()
        for nodes in self._levels:
            np.add.at(sums, self._parents[nodes], sums[nodes])
        return sums


def _nest(tracks: NDArray[np.int32], starts: Whole, ends: Whole) -> tuple[Whole, Whole]:
    """Return the depth and the parent of each node."""
    depths, parents = np.zeros(len(starts), np.int64), np.full(len(starts), NONE)
    borders = np.concatenate([[0], np.flatnonzero(np.diff(tracks)) + 1, [len(starts)]])
    for begin, end in pairwise(borders.tolist()):
        if end > begin:
            _nest_track(starts[begin:end], ends[begin:end], depths[begin:end], parents[begin:end])
            parents[begin:end][parents[begin:end] != NONE] += begin
    return depths, parents


def _nest_track(starts: Whole, ends: Whole, depths: Whole, parents: Whole) -> None:
    # One that takes no time still counts as open at its start.
    closed = np.searchsorted(np.sort(np.maximum(ends, starts + 1)), starts, side="right")
    depths[:] = np.arange(len(starts)) - closed
    order = np.argsort(depths, kind="stable")
    levels = np.split(order, np.flatnonzero(np.diff(depths[order])) + 1)
    for above, nodes in pairwise(levels):
        place = np.searchsorted(above, nodes) - 1
        parents[nodes] = np.where(place >= 0, above[np.maximum(place, 0)], NONE)


def _self_time(starts: Whole, ends: Whole, parents: Whole) -> Whole:
    children = np.flatnonzero(parents != NONE)
    above = parents[children]
    inside = np.maximum(np.minimum(ends[children], ends[above]) - starts[children], 0)
    own: Whole = ends - starts
    np.subtract.at(own, above, inside)
    return np.maximum(own, 0)


def _find_repetitions(names: NDArray[np.int32], parents: Whole, operators: Mask) -> Mask:
    children = np.flatnonzero((parents != NONE) & operators)
    count = np.bincount(parents[children], minlength=len(parents))
    above = parents[children]
    is_only = (count[above] == 1) & (names[children] == names[above]) & operators[above]
    repeated = np.zeros(len(parents), np.bool_)
    repeated[children[is_only]] = True
    return repeated


def _device_time(trace: Trace, launches: Launches, rows: Whole, parents: Whole, operators: Mask) -> tuple[Whole, Whole]:
    """Return the time of what each node launched, and the part of it on tensor cores."""
    events = trace.events
    nodes = operator_nodes(trace, launches, rows, parents, operators)
    known = nodes != NONE
    durations = events.durations_ns[launches.devices]
    on_tensor_cores = np.array([uses_tensor_cores(text) for text in events.texts], np.bool_)
    is_used = on_tensor_cores[events.names[launches.devices]] if len(launches.devices) else known
    sums = [np.zeros(len(rows), np.int64) for _ in range(2)]
    np.add.at(sums[0], nodes[known], durations[known])
    np.add.at(sums[1], nodes[known & is_used], durations[known & is_used])
    return sums[0], sums[1]


def operator_nodes(trace: Trace, launches: Launches, rows: Whole, parents: Whole, operators: Mask) -> Whole:
    """Return the node of the operator that launched each work of a device; -1 where none did.

    The profiler names the operator by its id. Where it does not, it is the one around the call.
    """
    if not len(rows):
        return np.full(len(launches.devices), NONE)
    events = trace.events
    own = np.flatnonzero(operators)
    nodes = look_up(events.external_ids[rows[own]], own, events.external_ids[launches.devices])
    node_of_row = np.full(len(events) + 1, NONE)
    node_of_row[rows] = np.arange(len(rows))
    caller = node_of_row[launches.callers]
    around = np.where(caller != NONE, parents[caller], NONE)
    while (inner := (around != NONE) & ~operators[around]).any():
        around[inner] = parents[around[inner]]
    return np.where(nodes != NONE, nodes, around)

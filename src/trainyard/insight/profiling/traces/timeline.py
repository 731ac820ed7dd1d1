"""A trace as a timeline: lanes of nested slices, of which any part is cut out at any level of detail.

A part has every slice that is at least as long as its resolution. Shorter ones are merged where they begin in the same
stretch of that length, so what a part costs follows the width of a screen and not the number of events.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainyard.formats.profiles.traces.contract import ABSENT, DEVICE_KINDS, EventKind, EventTable, Trace, Whole
from trainyard.insight.profiling.traces.launches import NONE, find_launches
from trainyard.insight.profiling.traces.roles import TimeRole, role_rows
from trainyard.insight.profiling.traces.windows import find_windows

# Deeper slices are drawn in the last row.
MAX_DEPTH = 200
# What the rounding of times to nanoseconds may make of slices that touch each other.
_ROUNDING_NS = 2
# Above this, slices of a lane that overlap without being nested are cut where the next one begins.
_MAX_UNNESTED = 200_000
_MAX_RELATED = 50
# What a slice counts as, for its colour: one for each role of time, and for what is none.
PYTHON, ANNOTATION = len(TimeRole), len(TimeRole) + 1
# The category of what torch adds for the recording itself.
_SPAN = "Trace"
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class TimelineLane:
    """A thread of the program or a stream of a device, with as many rows as its slices are deep."""

    name: str
    group: str
    is_device: bool
    rows: int
    slices: int


@dataclass(frozen=True, slots=True)
class TimelinePart:
    """What is seen of a stretch of time. Times count from the start of the timeline, in nanoseconds.

    Slices are by lane, depth and time. `counts` is how many slices one stands for; `numbers` has the number of a single
    one, and -1 for several. `names` are places in `texts`, and `roles` what a slice counts as.
    """

    resolution_ns: int
    texts: Sequence[str]
    lanes: NDArray[np.int32]
    depths: NDArray[np.int32]
    starts: NDArray[np.float64]
    durations: NDArray[np.float64]
    names: NDArray[np.int32]
    roles: NDArray[np.int32]
    counts: NDArray[np.int32]
    numbers: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.starts)


@dataclass(frozen=True, slots=True)
class TimelineSlice:
    """One slice. `number` names it in the timeline."""

    number: int
    name: str
    lane: int
    depth: int
    start_ns: int
    duration_ns: int


@dataclass(frozen=True, slots=True)
class FoundSlices:
    """A page of the slices that were searched for, in order of time, and how many there are and how long all take."""

    slices: Sequence[TimelineSlice]
    total: int
    total_ns: int


@dataclass(frozen=True, slots=True)
class RelatedSlice:
    """A slice that another one belongs together with: `relation` is "launched by" or "launches"."""

    relation: str
    slice: TimelineSlice


@dataclass(frozen=True, slots=True)
class SliceDetails:
    """Everything that is known of a slice. `parents` are the slices around it, the outermost first.

    `self_ns` is its time without the slices in it, and the other figures are of all slices with its name in the trace.
    """

    slice: TimelineSlice
    kind: str
    category: str
    self_ns: int
    parents: Sequence[TimelineSlice]
    related: Sequence[RelatedSlice]
    facts: Sequence[tuple[str, str]]
    same_name_count: int
    same_name_ns: int


@dataclass(frozen=True, slots=True)
class PythonFunction:
    """The calls of a function of Python, in a trace with stacks. `self_ns` is its time without what it calls."""

    name: str
    calls: int
    total_ns: int
    self_ns: int


class Timeline:
    """The lanes of a trace, arranged once. Safe to share between threads."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        events = trace.events
        rows = np.flatnonzero(~events.of_kind(EventKind.OVERHEAD) & ~_spans(events))
        starts = events.starts_ns[rows]
        self.start_ns = int(starts.min()) if len(rows) else 0
        self.end_ns = int(events.ends_ns[rows].max()) if len(rows) else 0
        windows = find_windows(trace, find_launches(events))
        self.steps = windows if windows.are_steps else None
        order, lane_of_track = _order_lanes(trace, rows)
        lanes = lane_of_track[events.tracks[rows]]
        rows, depths, ends = _arrange(events, rows, lanes, len(order))
        lanes = lane_of_track[events.tracks[rows]]
        self.lanes = [_lane(trace, track, lanes, depths, number) for number, track in enumerate(order)]
        self._rows, self._lanes, self._depths = rows, lanes, depths
        self._starts, self._ends = events.starts_ns[rows] - self.start_ns, ends - self.start_ns
        self._roles = _roles(trace)[rows]
        # Where each row of a lane begins among the slices.
        edges = np.flatnonzero(np.diff(lanes * (MAX_DEPTH + 1) + depths)) + 1
        self._borders = np.concatenate([[0], edges, [len(rows)]]) if len(rows) else np.zeros(1, np.int64)
        self._places = np.full(len(events), NONE)
        self._places[rows] = np.arange(len(rows))

    def __len__(self) -> int:
        return len(self._rows)

    def cut(self, first_ns: int, last_ns: int, *, resolution_ns: int, most: int) -> TimelinePart:
        """Return what is seen between two times. The resolution is made coarser until there are at most so many."""
        chosen = self._between(first_ns, last_ns)
        resolution_ns = max(1, resolution_ns)
        # A part with more rows than slices that may be sent ends at the length of the timeline.
        while True:
            firsts = self._merge(chosen, resolution_ns)
            if len(firsts) <= most or resolution_ns > max(1, self.end_ns - self.start_ns):
                break
            resolution_ns *= 2
        return self._part(chosen, firsts[:most], resolution_ns)

    def find(self, text: str, *, after: int, most: int) -> FoundSlices:
        """Return slices whose names contain a text, without regard to case."""
        wanted = text.casefold()
        by_name = np.array([wanted in each.casefold() for each in self._trace.events.texts], np.bool_)
        found = np.flatnonzero(by_name[self._trace.events.names[self._rows]]) if len(by_name) else np.zeros(0, np.int64)
        found = found[np.argsort(self._starts[found], kind="stable")]
        total_ns = int(self._trace.events.durations_ns[self._rows[found]].sum())
        page = [self.slice_at(int(place)) for place in found[after : after + most]]
        return FoundSlices(page, len(found), total_ns)

    def slice_at(self, number: int) -> TimelineSlice:
        """Return a slice by its number. IndexError if there is none."""
        if not 0 <= number < len(self):
            raise IndexError(number)
        events, row = self._trace.events, int(self._rows[number])
        return TimelineSlice(
            number=number,
            name=events.name_of(row),
            lane=int(self._lanes[number]),
            depth=int(self._depths[number]),
            start_ns=int(self._starts[number]),
            duration_ns=int(events.durations_ns[row]),
        )

    def describe(self, number: int) -> SliceDetails:
        """Return the details of a slice. IndexError if there is none."""
        events, found = self._trace.events, self.slice_at(number)
        row = int(self._rows[number])
        same = np.flatnonzero(events.names[self._rows] == events.names[row])
        return SliceDetails(
            slice=found,
            kind=EventKind(int(events.kinds[row])).name.lower(),
            category=events.category_texts[int(events.categories[row])],
            self_ns=self._self_ns(found),
            parents=self._parents(found),
            related=self._find_related(row),
            facts=_facts(self._trace, row),
            same_name_count=len(same),
            same_name_ns=int(events.durations_ns[self._rows[same]].sum()),
        )

    def list_python_functions(self) -> Sequence[PythonFunction]:
        """Return the functions of Python, those with most time of their own first."""
        events = self._trace.events
        places = np.flatnonzero(events.kinds[self._rows] == EventKind.PYTHON)
        if not len(places):
            return ()
        names, group = np.unique(events.names[self._rows[places]], return_inverse=True)
        group = group.reshape(-1)
        # A recursive call is in the time of its caller already, so that a sum would count it twice.
        is_outermost = ~self._is_in_itself(places)
        calls = np.bincount(group)
        total = np.bincount(group[is_outermost], self._lengths[places][is_outermost], minlength=len(names))
        own = np.bincount(group, self._self_lengths()[places], minlength=len(names))
        found = [
            PythonFunction(events.texts[int(name)], int(calls[at]), int(total[at]), int(own[at]))
            for at, name in enumerate(names)
        ]
        return sorted(found, key=lambda each: (-each.self_ns, each.name))

    @property
    def _lengths(self) -> Whole:
        lengths: Whole = self._ends - self._starts
        return lengths

    def _self_lengths(self) -> Whole:
        """Return the time of each slice without the slices that lie in it."""
        parents = self._parent_places()
        own = self._lengths.copy()
        has_parent = parents != NONE
        np.subtract.at(own, parents[has_parent], self._lengths[has_parent])
        return np.maximum(own, 0)

    def _parent_places(self) -> Whole:
        """Return the slice in which each lies; -1 for those in the first row of a lane."""
        parents = np.full(len(self), NONE)
        borders = self._borders.tolist()
        for above, first, end in zip(borders[:-2], borders[1:-1], borders[2:], strict=True):
            if self._lanes[above] != self._lanes[first]:
                continue
            found = above + np.searchsorted(self._starts[above:first], self._starts[first:end], side="right") - 1
            is_inside = (found >= above) & (self._starts[first:end] < self._ends[np.maximum(found, above)])
            parents[first:end] = np.where(is_inside, found, NONE)
        return parents

    def _is_in_itself(self, places: Whole) -> NDArray[np.bool_]:
        """Return which slices lie in another one with their name, at any depth."""
        names, parents = self._trace.events.names[self._rows], self._parent_places()
        found = np.zeros(len(places), np.bool_)
        above = parents[places]
        while (above != NONE).any():
            known = above != NONE
            found |= known & (names[np.maximum(above, 0)] == names[places])
            above = np.where(known, parents[np.maximum(above, 0)], NONE)
        return found

    def _between(self, first_ns: int, last_ns: int) -> Whole:
        """Return the places of the slices that a stretch of time touches."""
        found = [np.zeros(0, np.int64)]
        for first, end in zip(self._borders[:-1].tolist(), self._borders[1:].tolist(), strict=True):
            low = first + int(np.searchsorted(self._ends[first:end], first_ns, side="right"))
            high = first + int(np.searchsorted(self._starts[first:end], last_ns, side="left"))
            if low < high:
                found.append(np.arange(low, high))
        return np.concatenate(found)

    def _merge(self, chosen: Whole, resolution_ns: int) -> Whole:
        """Return where each slice of a part begins among those that were chosen."""
        if not len(chosen):
            return np.zeros(0, np.int64)
        starts, is_long = self._starts[chosen], self._ends[chosen] - self._starts[chosen] >= resolution_ns
        row = self._lanes[chosen] * (MAX_DEPTH + 1) + self._depths[chosen]
        is_new = np.ones(len(chosen), np.bool_)
        stretch = starts // resolution_ns
        is_new[1:] = is_long[1:] | is_long[:-1] | (stretch[1:] != stretch[:-1]) | (row[1:] != row[:-1])
        return np.flatnonzero(is_new)

    def _part(self, chosen: Whole, firsts: Whole, resolution_ns: int) -> TimelinePart:
        places = chosen[firsts]
        counts = np.diff(np.append(firsts, len(chosen)))
        lasts = chosen[firsts + counts - 1] if len(firsts) else places
        names = self._trace.events.names[self._rows[places]]
        known, used = np.unique(names, return_inverse=True)
        return TimelinePart(
            resolution_ns=resolution_ns,
            texts=[self._trace.events.texts[int(name)] for name in known],
            lanes=self._lanes[places].astype(np.int32),
            depths=self._depths[places].astype(np.int32),
            starts=self._starts[places].astype(np.float64),
            durations=(self._ends[lasts] - self._starts[places]).astype(np.float64),
            names=used.reshape(-1).astype(np.int32),
            roles=self._roles[places].astype(np.int32),
            counts=counts.astype(np.int32),
            numbers=np.where(counts == 1, places, NONE).astype(np.int32),
        )

    def _row(self, lane: int, depth: int) -> slice:
        """Return the places of the slices in a row of a lane; empty if there is no such row."""
        keys = self._lanes[self._borders[:-1]] * (MAX_DEPTH + 1) + self._depths[self._borders[:-1]]
        at = np.flatnonzero(keys == lane * (MAX_DEPTH + 1) + depth)
        return slice(*self._borders[at[0] : at[0] + 2].tolist()) if len(at) else slice(0, 0)

    def _self_ns(self, found: TimelineSlice) -> int:
        inner = self._row(found.lane, found.depth + 1)
        starts, end_ns = self._starts[inner], found.start_ns + found.duration_ns
        low, high = np.searchsorted(starts, [found.start_ns, max(end_ns, found.start_ns + 1)])
        durations = self._ends[inner][low:high] - starts[low:high]
        return max(0, found.duration_ns - int(durations.sum()))

    def _parents(self, found: TimelineSlice) -> Sequence[TimelineSlice]:
        parents = []
        for depth in range(found.depth):
            row = self._row(found.lane, depth)
            at = int(np.searchsorted(self._starts[row], found.start_ns, side="right")) - 1
            if at >= 0 and self._ends[row][at] >= found.start_ns:
                parents.append(self.slice_at(row.start + at))
        return parents

    def _find_related(self, row: int) -> Sequence[RelatedSlice]:
        launches = find_launches(self._trace.events)
        callers = launches.callers[launches.devices == row]
        launched = launches.devices[launches.callers == row]
        found = [("launched by", int(each)) for each in callers] + [("launches", int(each)) for each in launched]
        return [
            RelatedSlice(relation, self.slice_at(int(self._places[other])))
            for relation, other in found[:_MAX_RELATED]
            if other != NONE and self._places[other] != NONE
        ]


def _order_lanes(trace: Trace, rows: Whole) -> tuple[Sequence[int], Whole]:
    """Return the tracks in the order of their lanes, and the lane of each track; threads of the steps come first."""
    events = trace.events
    counts = np.bincount(events.tracks[rows], minlength=len(events.track_list))
    stepping = set(np.unique(trace.steps.tracks).tolist())
    devices = _device_tracks(events)
    used = [int(track) for track in np.flatnonzero(counts)]

    def place(track: int) -> tuple[object, ...]:
        known = events.track_list[track]
        group = (_natural(known.process_name or known.process), _natural(known.process))
        if track in devices:
            return (1, *group, _natural(known.thread_name or known.thread))
        return (0, track not in stepping, -int(counts[track]), *group)

    order = sorted(used, key=place)
    lane_of_track = np.zeros(max(1, len(events.track_list)), np.int64)
    lane_of_track[order] = np.arange(len(order))
    return order, lane_of_track


def _spans(events: EventTable) -> NDArray[np.bool_]:
    """Return the events that stand for the whole recording."""
    is_span = np.array([text == _SPAN for text in events.category_texts], np.bool_)
    found: NDArray[np.bool_] = is_span[events.categories] if len(is_span) else np.zeros(len(events), np.bool_)
    return found


def _device_tracks(events: EventTable) -> set[int]:
    return set(np.unique(events.tracks[events.of_kind(*DEVICE_KINDS)]).tolist())


def _natural(text: str) -> tuple[object, ...]:
    """Return a key that sorts stream 7 before stream 13."""
    return (_NUMBER.sub("", text), tuple(int(each) for each in _NUMBER.findall(text[:200])))


def _lane(trace: Trace, track: int, lanes: Whole, depths: Whole, number: int) -> TimelineLane:
    events = trace.events
    known, own = events.track_list[track], lanes == number
    thread = known.thread_name or f"thread {known.thread}"
    if not any(character.isalpha() for character in thread):
        thread = f"thread {thread}"
    return TimelineLane(
        name=thread.strip(),
        group=known.process_name or f"process {known.process}",
        is_device=track in _device_tracks(events),
        rows=int(depths[own].max()) + 1 if own.any() else 1,
        slices=int(own.sum()),
    )


def _arrange(events: EventTable, rows: Whole, lanes: Whole, count: int) -> tuple[Whole, Whole, Whole]:
    """Return the events by lane, depth and time, with their depths, and their ends without overlaps in a row."""
    by_time = np.lexsort((-events.durations_ns[rows], events.starts_ns[rows], lanes))
    rows, lanes = rows[by_time], lanes[by_time]
    depths = np.zeros(len(rows), np.int64)
    borders = np.searchsorted(lanes, np.arange(count + 1))
    for first, end in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True):
        own = rows[first:end]
        depths[first:end] = _nested_depths(events.starts_ns[own], events.durations_ns[own])
    by_row = np.lexsort((np.arange(len(rows)), depths, lanes))
    rows, lanes, depths = rows[by_row], lanes[by_row], depths[by_row]
    ends = events.ends_ns[rows]
    starts = events.starts_ns[rows]
    is_same_row = (lanes[1:] == lanes[:-1]) & (depths[1:] == depths[:-1])
    ends[:-1] = np.where(is_same_row, np.minimum(ends[:-1], np.maximum(starts[1:], starts[:-1])), ends[:-1])
    return rows, depths, ends


def _nested_depths(starts: Whole, durations: Whole) -> Whole:
    """Return in how many others each slice of a lane lies; they are by time, longer ones first."""
    ends = starts + np.maximum(durations - np.minimum(_ROUNDING_NS, durations // 2), 1)
    open_before = np.arange(len(starts)) - np.searchsorted(np.sort(ends), starts, side="right")
    depths: Whole = np.clip(open_before, 0, MAX_DEPTH)
    if len(starts) <= _MAX_UNNESTED and _overlaps_in_rows(starts, ends, depths):
        depths = _first_free_rows(starts, ends)
    return depths


def _overlaps_in_rows(starts: Whole, ends: Whole, depths: Whole) -> bool:
    by_row = np.lexsort((np.arange(len(starts)), depths))
    is_same_row = depths[by_row][1:] == depths[by_row][:-1]
    return bool((is_same_row & (starts[by_row][1:] < ends[by_row][:-1])).any())


def _first_free_rows(starts: Whole, ends: Whole) -> Whole:
    """Return the first row that is free for each slice: works of a device may run side by side."""
    taken: list[int] = []
    depths = np.zeros(len(starts), np.int64)
    for number, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        row = next((row for row, until in enumerate(taken) if until <= start), len(taken))
        row = min(row, MAX_DEPTH)
        if row == len(taken):
            taken.append(end)
        taken[row] = end
        depths[number] = row
    return depths


def _roles(trace: Trace) -> NDArray[np.int64]:
    """Return what each event counts as."""
    events = trace.events
    roles = np.full(len(events), int(TimeRole.OTHER))
    roles[events.of_kind(EventKind.PYTHON)] = PYTHON
    roles[events.of_kind(EventKind.ANNOTATION, EventKind.DEVICE_ANNOTATION)] = ANNOTATION
    for role, rows in role_rows(trace).items():
        roles[rows] = int(role)
    return roles


def _facts(trace: Trace, row: int) -> Sequence[tuple[str, str]]:
    """Return what the trace says about an event besides its times."""
    events = trace.events
    given = {
        "Input shapes": events.shape_texts[int(events.shapes[row])] if len(events.shape_texts) else "",
        "Input types": events.shape_texts[int(events.types[row])] if len(events.shape_texts) else "",
        "Inputs": trace.inputs.get(row, ""),
    }
    table = trace.launches
    for launch in np.flatnonzero(table.events == row)[:1].tolist():
        given |= {
            "Device": _count_text(int(table.devices[launch])),
            "Stream": _count_text(int(table.streams[launch])),
            "Grid": table.extent_texts[int(table.grids[launch])],
            "Block": table.extent_texts[int(table.blocks[launch])],
            "Registers per thread": _count_text(int(table.registers[launch])),
            "Shared memory": _with_unit(_count_text(int(table.shared_memory_bytes[launch])), "B"),
            "Blocks per multiprocessor": _real(float(table.blocks_per_sm[launch])),
            "Estimated occupancy": _with_unit(_real(float(table.occupancy_percent[launch])), "%"),
            "Copied": _with_unit(_count_text(int(table.copied_bytes[launch])), "B"),
        }
    collectives = trace.collectives
    for call in np.flatnonzero(collectives.events == row)[:1].tolist():
        given |= {
            "Collective": collectives.texts[int(collectives.names[call])],
            "Type": collectives.texts[int(collectives.types[call])],
            "Group": collectives.texts[int(collectives.groups[call])],
            "Ranks": _count_text(int(collectives.group_sizes[call])),
            "Elements": _count_text(int(collectives.input_elements[call])),
        }
    return [(name, text) for name, text in given.items() if text]


def _count_text(value: int) -> str:
    return "" if value == ABSENT else f"{value:,}"


def _real(value: float) -> str:
    return f"{value:.3g}" if np.isfinite(value) and value >= 0 else ""


def _with_unit(text: str, unit: str) -> str:
    return f"{text} {unit}" if text else ""

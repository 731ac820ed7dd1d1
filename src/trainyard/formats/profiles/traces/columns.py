"""Events into columns: what a batch of records adds to each table."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainyard.formats.profiles.traces.contract import (
    DEVICE_KINDS,
    CollectiveTable,
    EventKind,
    EventTable,
    LaunchTable,
    MemoryTable,
    TraceTrack,
)
from trainyard.formats.profiles.traces.records import EventArguments, EventRecord

_KINDS = {
    "kernel": EventKind.KERNEL,
    "concurrent_kernel": EventKind.KERNEL,
    "gpu_memcpy": EventKind.MEMCPY,
    "memcpy": EventKind.MEMCPY,
    "gpu_memset": EventKind.MEMSET,
    "memset": EventKind.MEMSET,
    "runtime": EventKind.RUNTIME,
    "driver": EventKind.RUNTIME,
    "cpu_op": EventKind.OPERATOR,
    "operator": EventKind.OPERATOR,
    "user_annotation": EventKind.ANNOTATION,
    "gpu_user_annotation": EventKind.DEVICE_ANNOTATION,
    "python": EventKind.PYTHON,
    "python_function": EventKind.PYTHON,
    "overhead": EventKind.OVERHEAD,
}
# cuda_runtime, cuda_driver, hip_runtime, xpu_runtime, privateuse1_driver …
_DRIVER_ENDINGS = ("_runtime", "_driver")
_MEMORY = "[memory]"
# The operators whose FLOPs depend on more than the shapes of their inputs.
INPUTS_WANTED = frozenset(
    {
        *("aten::convolution", "aten::_convolution", "aten::cudnn_convolution", "aten::mkldnn_convolution"),
        *("aten::convolution_backward", "aten::conv1d", "aten::conv2d", "aten::conv3d", "aten::miopen_convolution"),
    }
)
# What is kept of the numbers of steps in the arguments of events.
_MAX_MARKED_STEPS, _MAX_STEP_DIGITS = 1_000_000, 18
# Beyond these, nanoseconds do not fit into 64 bits.
_MAX_US = 9e15
_INT16, _INT32, _INT64 = (np.iinfo(kind).max for kind in (np.int16, np.int32, np.int64))

_NO_ARGUMENTS = EventArguments()
_Column = NDArray[Any]


class Words:
    """Distinct values in the order in which they first came; looking one up is one call into C."""

    def __init__(self, *first: object) -> None:
        self._numbers: defaultdict[Any, int] = defaultdict()
        self._numbers.default_factory = self._numbers.__len__
        self.numbers_of(first)

    def __len__(self) -> int:
        return len(self._numbers)

    def numbers_of(self, values: Iterable[object]) -> NDArray[np.int32]:
        return np.fromiter(map(self._numbers.__getitem__, values), np.int32)

    def values(self) -> list[Any]:
        return list(self._numbers)


class TraceColumns:
    """What was read so far, as pieces of columns."""

    def __init__(self) -> None:
        self.names, self.categories, self.tracks = Words(), Words(), Words()
        self.shapes, self.extents, self.collective_words = Words(b""), Words(b""), Words("")
        self.process_names: dict[object, str] = {}
        self.thread_names: dict[object, str] = {}
        self.inputs: dict[int, str] = {}
        # Of the events that say which step they are part of, the row of the longest and how long it took, by the step.
        self.marked_steps: dict[str, tuple[int, float]] = {}
        self.epoch_us = 0
        self.count = 0
        self.without_time = 0
        self.unread = 0
        self._kinds: list[EventKind] = []
        self._wants_inputs: list[bool] = []
        self._pieces: defaultdict[str, list[_Column]] = defaultdict(list)

    def add(self, records: Sequence[EventRecord]) -> None:
        complete = [each for each in records if each.ph == "X"]
        if len(complete) != len(records):
            memory = [each for each in records if each.ph == "i" and each.name == _MEMORY and each.args is not None]
            self._add_memory(memory)
            for each in records:
                if each.ph == "M":
                    self._add_name(each)
                elif each.ph in ("B", "E"):
                    self.unread += 1
        if complete:
            self._add_events(complete)

    def first_start_us(self) -> float | None:
        """Return when an event started, on the clock of the file."""
        pieces = self._pieces.get("starts_ns") or self._pieces.get("memory_times")
        return float(pieces[0][0]) / 1000 if pieces and len(pieces[0]) else None

    def event_table(self, base_ns: int) -> EventTable:
        kinds = np.array([int(kind) for kind in self._kinds], np.uint8)
        categories = self._column("categories", np.int16)
        return EventTable(
            texts=self.names.values(),
            category_texts=self.categories.values(),
            track_list=self.track_list(),
            shape_texts=[text.decode(errors="replace") for text in self.shapes.values()],
            names=self._column("names", np.int32),
            categories=categories,
            kinds=kinds[categories] if len(kinds) else np.zeros(0, np.uint8),
            tracks=self._column("tracks", np.int32),
            starts_ns=self._column("starts_ns", np.int64) + base_ns,
            durations_ns=self._column("durations_ns", np.int64),
            correlations=self._column("correlations", np.int64),
            external_ids=self._column("external_ids", np.int64),
            shapes=self._column("shapes", np.int32),
            types=self._column("types", np.int32),
        )

    def launch_table(self) -> LaunchTable:
        return LaunchTable(
            extent_texts=[text.decode(errors="replace") for text in self.extents.values()],
            events=self._column("launch_events", np.int32),
            devices=self._column("devices", np.int16),
            streams=self._column("streams", np.int32),
            grids=self._column("grids", np.int32),
            blocks=self._column("blocks", np.int32),
            registers=self._column("registers", np.int32),
            shared_memory_bytes=self._column("shared_memory", np.int64),
            blocks_per_sm=self._column("blocks_per_sm", np.float32),
            occupancy_percent=self._column("occupancy", np.float32),
            copied_bytes=self._column("copied", np.int64),
        )

    def memory_table(self, base_ns: int) -> MemoryTable:
        return MemoryTable(
            times_ns=self._column("memory_times", np.int64) + base_ns,
            tracks=self._column("memory_tracks", np.int32),
            device_types=self._column("memory_device_types", np.int16),
            devices=self._column("memory_devices", np.int16),
            addresses=self._column("addresses", np.uint64),
            changes_bytes=self._column("changes", np.int64),
            allocated_bytes=self._column("allocated", np.int64),
            reserved_bytes=self._column("reserved", np.int64),
        )

    def collective_table(self) -> CollectiveTable:
        return CollectiveTable(
            texts=self.collective_words.values(),
            events=self._column("collective_events", np.int32),
            names=self._column("collective_names", np.int32),
            types=self._column("collective_types", np.int32),
            groups=self._column("collective_groups", np.int32),
            group_sizes=self._column("group_sizes", np.int32),
            input_elements=self._column("input_elements", np.int64),
            output_elements=self._column("output_elements", np.int64),
        )

    def track_list(self) -> list[TraceTrack]:
        return [
            TraceTrack(
                str(process),
                str(thread),
                self.process_names.get(process, ""),
                self.thread_names.get((process, thread), ""),
            )
            for process, thread in self.tracks.values()
        ]

    def _add_name(self, record: EventRecord) -> None:
        arguments = record.args or _NO_ARGUMENTS
        if arguments.epoch_us:
            self.epoch_us = arguments.epoch_us
        if record.name == "process_name":
            self.process_names[record.pid] = arguments.name
        elif record.name == "process_labels" and arguments.labels:
            known = self.process_names.get(record.pid, "")
            self.process_names[record.pid] = f"{known} {arguments.labels}".strip()
        elif record.name == "thread_name":
            self.thread_names[record.pid, record.tid] = arguments.name

    def _add_events(self, records: Sequence[EventRecord]) -> None:
        count = len(records)
        starts = np.fromiter(map(attrgetter("ts"), records), np.float64, count)
        durations = np.fromiter(map(attrgetter("dur"), records), np.float64, count)
        usable = (np.abs(starts) < _MAX_US) & (np.abs(durations) < _MAX_US)
        if not usable.all():
            self.without_time += int(count - usable.sum())
            records = [each for each, is_usable in zip(records, usable, strict=True) if is_usable]
            starts, durations, count = starts[usable], durations[usable], len(records)
        arguments = [each.args or _NO_ARGUMENTS for each in records]
        names = self.names.numbers_of(map(attrgetter("name"), records))
        categories = self.categories.numbers_of(map(attrgetter("cat"), records))
        self._learn_words()
        external = np.fromiter((each.external_id or each.old_external_id for each in arguments), np.int64, count)
        self._append(
            names=names,
            categories=np.minimum(categories, _INT16),
            tracks=self.tracks.numbers_of(map(attrgetter("pid", "tid"), records)),
            starts_ns=_nanoseconds(starts),
            durations_ns=np.maximum(_nanoseconds(durations), 0),
            correlations=np.fromiter(map(attrgetter("correlation"), arguments), np.int64, count),
            external_ids=external,
            shapes=self.shapes.numbers_of([bytes(each.dimensions) or bytes(each.old_dimensions) for each in arguments]),
            types=self.shapes.numbers_of([bytes(each.types) for each in arguments]),
        )
        kinds = np.array([int(kind) for kind in self._kinds], np.uint8)[categories]
        self._add_launches(np.flatnonzero(np.isin(kinds, DEVICE_KINDS)), records, arguments)
        self._add_collectives([row for row, each in enumerate(arguments) if each.collective], arguments)
        for place in [place for place, each in enumerate(arguments) if each.step != ""]:
            self._mark_step(str(arguments[place].step), self.count + place, float(durations[place]))
        for row in np.flatnonzero(np.array(self._wants_inputs)[names]):
            self.inputs[self.count + int(row)] = bytes(arguments[row].inputs).decode(errors="replace")
        self.count += count

    def _mark_step(self, step: str, row: int, duration_us: float) -> None:
        known = self.marked_steps.get(step)
        if known is None and (len(self.marked_steps) >= _MAX_MARKED_STEPS or len(step) > _MAX_STEP_DIGITS):
            return
        if known is None or duration_us > known[1]:
            self.marked_steps[step] = (row, duration_us)

    def _learn_words(self) -> None:
        """Keep what depends only on a category or a name in step with the words."""
        for category in self.categories.values()[len(self._kinds) :] if len(self.categories) > len(self._kinds) else ():
            self._kinds.append(kind_of(category))
        for name in self.names.values()[len(self._wants_inputs) :] if len(self.names) > len(self._wants_inputs) else ():
            self._wants_inputs.append(name in INPUTS_WANTED)

    def _add_launches(
        self, rows: NDArray[np.int64], records: Sequence[EventRecord], arguments: Sequence[EventArguments]
    ) -> None:
        if not len(rows):
            return
        own = [arguments[row] for row in rows]
        self._append(
            launch_events=(rows + self.count).astype(np.int32),
            devices=_whole([_device(records[row], arguments[row]) for row in rows], _INT16, np.int16),
            streams=_whole([each.stream for each in own], _INT32, np.int32),
            grids=self.extents.numbers_of([bytes(each.grid) for each in own]),
            blocks=self.extents.numbers_of([bytes(each.block) for each in own]),
            registers=_whole([each.registers for each in own], _INT32, np.int32),
            shared_memory=_whole([each.shared_memory for each in own], _INT64, np.int64),
            blocks_per_sm=np.array([each.blocks_per_sm for each in own], np.float32),
            occupancy=np.array([each.occupancy for each in own], np.float32),
            copied=_whole([each.copied for each in own], _INT64, np.int64),
        )

    def _add_collectives(self, rows: Sequence[int], arguments: Sequence[EventArguments]) -> None:
        if not rows:
            return
        own, words = [arguments[row] for row in rows], self.collective_words
        self._append(
            collective_events=np.array(rows, np.int32) + np.int32(self.count),
            collective_names=words.numbers_of([each.collective for each in own]),
            collective_types=words.numbers_of([each.data_type for each in own]),
            collective_groups=words.numbers_of([each.group for each in own]),
            group_sizes=_whole([each.group_size for each in own], _INT32, np.int32),
            input_elements=_whole([each.input_elements for each in own], _INT64, np.int64),
            output_elements=_whole([each.output_elements for each in own], _INT64, np.int64),
        )

    def _add_memory(self, records: Sequence[EventRecord]) -> None:
        times = np.array([each.ts for each in records], np.float64)
        usable = np.abs(times) < _MAX_US
        if not usable.any():
            return
        records = [each for each, is_usable in zip(records, usable, strict=True) if is_usable]
        own = [each.args or _NO_ARGUMENTS for each in records]
        self._append(
            memory_times=_nanoseconds(times[usable]),
            memory_tracks=self.tracks.numbers_of([(each.pid, each.tid) for each in records]),
            memory_device_types=_whole([each.device_type for each in own], _INT16, np.int16),
            memory_devices=_whole([each.device_id for each in own], _INT16, np.int16),
            addresses=np.array([each.address & (2**64 - 1) for each in own], np.uint64),
            changes=_whole([each.change for each in own], _INT64, np.int64),
            allocated=_whole([each.allocated for each in own], _INT64, np.int64),
            reserved=_whole([each.reserved for each in own], _INT64, np.int64),
        )

    def _append(self, **columns: _Column) -> None:
        for name, column in columns.items():
            self._pieces[name].append(column)

    def _column(self, name: str, kind: type[np.generic]) -> _Column:
        """Return a whole column; its pieces are let go of, so that memory holds one column twice and not all."""
        pieces = self._pieces.pop(name, [])
        return np.concatenate(pieces).astype(kind, copy=False) if pieces else np.zeros(0, kind)


def kind_of(category: str) -> EventKind:
    name = category.lower()
    if name.endswith(_DRIVER_ENDINGS):
        return EventKind.RUNTIME
    return _KINDS.get(name, EventKind.OTHER)


def _device(record: EventRecord, arguments: EventArguments) -> int:
    """Return the number of the device; old traces have it as the process alone."""
    if arguments.device >= 0 or not isinstance(record.pid, int):
        return arguments.device
    return record.pid


def _nanoseconds(microseconds: NDArray[np.float64]) -> NDArray[np.int64]:
    # The whole part apart, because Unix times in nanoseconds have more digits than a float.
    whole = np.floor(microseconds)
    nanoseconds: NDArray[np.int64] = whole.astype(np.int64) * 1000 + np.rint((microseconds - whole) * 1000).astype(
        np.int64
    )
    return nanoseconds


def _whole(values: Sequence[int], most: int, kind: type[np.generic]) -> _Column:
    """Return a column of numbers of a file, each at most what the column can hold."""
    return np.array([max(-1 - most, min(each, most)) for each in values], kind)

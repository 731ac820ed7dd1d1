"""Reads a trace of torch.profiler into tables.

Two records of an event exist at a time, the tables are what grows. Nothing in a file makes this fail: what cannot be
read is left out, and a note says so.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from trainyard.formats.profiles.traces.chunks import TraceText
from trainyard.formats.profiles.traces.columns import TraceColumns
from trainyard.formats.profiles.traces.contract import (
    ABSENT,
    DEVICE_KINDS,
    DistributedFacts,
    EventKind,
    EventTable,
    GpuProperties,
    LaunchTable,
    StepTable,
    Trace,
    TraceTrack,
)

# About 5 GB of tables.
MAX_EVENTS = 100_000_000
STEP_PREFIX = "ProfilerStep#"

# From 2001 to 2100: times without a base are Unix times if they lie here.
_UNIX_US = (1e15, 4.1e15)
_PYTORCH, _TENSORFLOW = "PyTorch", "TensorFlow"
# What kineto writes before the events. Versions before 2.0 lack some of them.
_PYTORCH_MEMBERS = ("schemaVersion", "deviceProperties", "baseTimeNanoseconds", "traceName")
_TENSORFLOW_PROCESSES = ("/host:", "/device:", "/job:")


def read_trace(file: BinaryIO, *, max_events: int = MAX_EVENTS) -> Trace:
    """Read a trace, compressed or not, from an open file.

    OSError of the file is all that this raises. A file that is no trace gives empty tables and a note.
    """
    text, columns = TraceText(file), TraceColumns()
    notes = []
    for records in text.batches():
        columns.add(records)
        if columns.count >= max_events:
            text.is_complete = False
            notes.append(f"The trace has more than {max_events:,} events; the rest was not read.")
            break
    notes = [*text.notes, *notes, *_losses(text, columns)]
    return _assemble(text, columns, notes)


@dataclass(frozen=True, slots=True)
class _TraceClock:
    base_ns: int
    is_unix_time: bool


def _losses(text: TraceText, columns: TraceColumns) -> list[str]:
    counts = {
        "damaged": text.damaged,
        "without a usable time": columns.without_time,
        "that only begin or only end": columns.unread,
    }
    return [f"{count:,} events {what} were left out." for what, count in counts.items() if count]


def _assemble(text: TraceText, columns: TraceColumns, notes: list[str]) -> Trace:
    header = text.header
    clock = _clock(header, columns)
    events = columns.event_table(clock.base_ns)
    producer = _producer(header, events) if text.is_trace else ""
    launches = columns.launch_table()
    steps = find_steps(events)
    if producer == _TENSORFLOW:
        events = _with_kinds_of_tracks(events)
        marked = _take_annotations(events, columns.marked_steps)
        launches, steps = _launches_on_tracks(events), _marked_steps(events, marked)
    memory = columns.memory_table(clock.base_ns)
    notes += _remarks(text, producer, events, clock)
    return Trace(
        events=events,
        launches=launches,
        memory=memory,
        collectives=columns.collective_table(),
        steps=steps,
        inputs=columns.inputs,
        gpus=_gpus(header.get("deviceProperties")),
        distributed=_distributed_facts(header.get("distributedInfo")),
        producer=producer,
        host=_text(header.get("host_name")),
        is_unix_time=clock.is_unix_time,
        is_complete=text.is_complete and not text.damaged,
        has_shapes=bool(len(events) and events.shapes.max() > 0),
        has_memory=len(memory) > 0,
        notes=tuple(notes),
    )


def _clock(header: Mapping[str, object], columns: TraceColumns) -> _TraceClock:
    base = header.get("baseTimeNanoseconds")
    if isinstance(base, int) and not isinstance(base, bool) and 0 < base < 2**62:
        return _TraceClock(base, is_unix_time=True)
    if 0 < columns.epoch_us < _UNIX_US[1]:
        return _TraceClock(columns.epoch_us * 1000, is_unix_time=True)
    first_us = columns.first_start_us()
    return _TraceClock(0, is_unix_time=first_us is not None and _UNIX_US[0] <= first_us <= _UNIX_US[1])


def _producer(header: Mapping[str, object], events: EventTable) -> str:
    if any(name in header for name in _PYTORCH_MEMBERS):
        return _PYTORCH
    if any(track.process_name.startswith(_TENSORFLOW_PROCESSES) for track in events.track_list):
        return _TENSORFLOW
    is_known = events.of_kind(EventKind.OPERATOR, EventKind.KERNEL)
    return _PYTORCH if is_known.any() else ""


def _remarks(text: TraceText, producer: str, events: EventTable, clock: _TraceClock) -> list[str]:
    if not text.is_trace:
        return []
    remarks = []
    if not len(events):
        remarks.append("The trace has no events with a duration.")
    elif producer == _TENSORFLOW:
        remarks.append(
            "This is a trace of TensorFlow: it has operators, kernels, copies and steps, but no shapes or memory."
        )
    elif not producer:
        remarks.append("The trace is not one of torch.profiler; its events count as operators only if they say so.")
    if len(events) and not clock.is_unix_time:
        remarks.append("The trace does not say when it was taken; its times fit no other clock.")
    return remarks


def _with_kinds_of_tracks(events: EventTable) -> EventTable:
    """Give events without categories the kind of the device that they are on."""
    by_track = np.array([_track_kind(track) for track in events.track_list], np.uint8)
    kinds = by_track[events.tracks]
    is_copy = np.array(["memcpy" in text.lower() for text in events.texts], np.bool_)[events.names]
    kinds[is_copy & (kinds == EventKind.KERNEL)] = EventKind.MEMCPY
    table = {name: getattr(events, name) for name in events.__slots__}
    return EventTable(**{**table, "kinds": kinds})


def _take_annotations(events: EventTable, marked: Mapping[str, tuple[int, float]]) -> Mapping[int, int]:
    """Make annotations of the events on the host that mark a step, and return their rows by its number."""
    found = {_whole_number(step): row for step, (row, _) in marked.items()}
    rows = {number: row for number, row in found.items() if number >= 0 and events.kinds[row] == EventKind.OPERATOR}
    events.kinds[list(rows.values())] = EventKind.ANNOTATION
    return rows


def _launches_on_tracks(events: EventTable) -> LaunchTable:
    """Return what devices did, of which a trace of TensorFlow says no more than the device and the stream."""
    rows = np.flatnonzero(events.of_kind(*DEVICE_KINDS)).astype(np.int32)
    tracks = events.tracks[rows]
    devices = np.array([_trailing_number(track.process_name) for track in events.track_list], np.int16)
    streams = np.array([_stream_number(track.thread_name) for track in events.track_list], np.int32)
    absent, unknown = np.full(len(rows), ABSENT, np.int32), np.full(len(rows), np.nan, np.float32)
    none = np.zeros(len(rows), np.int32)
    return LaunchTable(
        extent_texts=[""],
        events=rows,
        devices=devices[tracks],
        streams=streams[tracks],
        grids=none,
        blocks=none,
        registers=absent,
        shared_memory_bytes=absent.astype(np.int64),
        blocks_per_sm=unknown,
        occupancy_percent=unknown,
        copied_bytes=absent.astype(np.int64),
    )


def _marked_steps(events: EventTable, rows: Mapping[int, int]) -> StepTable:
    """Return the steps that annotations of the program mark; `rows` has their events by the number of the step."""
    by_start = sorted(rows.items(), key=lambda item: int(events.starts_ns[item[1]]))
    numbers = np.array([number for number, _ in by_start], np.int64)
    steps = np.array([row for _, row in by_start], np.int64)
    starts = events.starts_ns[steps]
    return StepTable(numbers, events.tracks[steps], starts, starts + events.durations_ns[steps])


def _track_kind(track: TraceTrack) -> EventKind:
    if "/device:GPU" in track.process_name:
        is_stream = track.thread_name.lower().startswith("stream")
        # Other lines of a device repeat the same time by operator and by module.
        return EventKind.KERNEL if is_stream else EventKind.DEVICE_ANNOTATION
    return EventKind.OPERATOR if track.process_name.startswith("/host:CPU") else EventKind.OTHER


def find_steps(events: EventTable) -> StepTable:
    """Return the steps that the program's own annotations mark."""
    numbers = np.array([_step_number(text) for text in events.texts], np.int64)
    if not (numbers >= 0).any():
        none = np.zeros(0, np.int64)
        return StepTable(none, none.astype(np.int32), none, none)
    is_step = (numbers[events.names] >= 0) & events.of_kind(EventKind.ANNOTATION, EventKind.OPERATOR)
    rows = np.flatnonzero(is_step)
    rows = rows[np.lexsort((-events.durations_ns[rows], events.starts_ns[rows]))]
    # Some versions write a step both as an operator and as an annotation.
    _, first = np.unique(numbers[events.names[rows]], return_index=True)
    rows = rows[np.sort(first)]
    starts = events.starts_ns[rows]
    return StepTable(numbers[events.names[rows]], events.tracks[rows], starts, starts + events.durations_ns[rows])


def _step_number(name: str) -> int:
    number = name.removeprefix(STEP_PREFIX)
    return _whole_number(number) if number != name else -1


def _whole_number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 18 else -1


def _trailing_number(name: str) -> int:
    return min(_whole_number(name.rpartition(":")[2]), 2**15 - 1)


def _stream_number(name: str) -> int:
    """Return the number of a stream by the name of its line, such as "Stream #14(Compute)"."""
    found = re.search(r"#(\d{1,9})", name)
    return int(found[1]) if found else ABSENT


def _gpus(given: object) -> Sequence[GpuProperties]:
    if not isinstance(given, list):
        return ()
    return tuple(
        GpuProperties(
            number=_number(each.get("id"), number),
            name=_text(each.get("name")),
            memory_bytes=_number(each.get("totalGlobalMem")),
            compute_major=_number(each.get("computeMajor")),
            compute_minor=_number(each.get("computeMinor")),
            sm_count=_number(each.get("numSms")),
            threads_per_sm=_number(each.get("maxThreadsPerMultiprocessor")),
            warp_size=_number(each.get("warpSize")),
        )
        for number, each in enumerate(given[:1024])
        if isinstance(each, dict)
    )


def _distributed_facts(given: object) -> DistributedFacts | None:
    if not isinstance(given, dict):
        return None
    return DistributedFacts(
        backend=_text(given.get("backend")),
        rank=_number(given.get("rank")),
        world_size=_number(given.get("world_size"), 1),
        nccl_version=_text(given.get("nccl_version")),
    )


def _number(value: object, otherwise: int = 0) -> int:
    is_number = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**62
    return int(value) if is_number and isinstance(value, int) else otherwise


def _text(value: object) -> str:
    return value[:1000] if isinstance(value, str) else ""

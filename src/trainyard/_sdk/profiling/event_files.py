"""The files of a profile in AWS's layout: their names, and the events in them, as far as they can be read.

    system/incremental/[YYYYMMDDHH/]<start in seconds>.<instance>.json         a line of JSON for each value
    framework/pevents/YYYYMMDDHH/<end in microseconds>_<process>-<instance>_<kind>.json      a Chrome trace
    framework/<framework>/detailed_profiling/…/*.json[.gz]                     a trace of torch or TensorFlow
    framework/<framework>/user/…/*.json[.gz]                                   a trace that the program made itself

Files may be torn, because a program was killed, and anything may stand in those that a program wrote.
"""

import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from io import RawIOBase
from typing import Any

from trainyard._sdk.profiling.events import ProcessInfo, SystemEvent, TraceEvent
from trainyard.foundation.sources import ByteSource

SYSTEM_FOLDER = "system/incremental"
PEVENTS_FOLDER = "framework/pevents"
FRAMEWORK_FOLDER = "framework"
_TRACE_FOLDERS = ("detailed_profiling", "user")
# Kinds of files below pevents, by the ends of their names.
PYTHONTIMELINE_SUFFIX = "pythontimeline.json"
MODELTIMELINE_SUFFIX = "model_timeline.json"
TENSORBOARDTIMELINE_SUFFIX = "trace.json.gz"
HOROVODTIMELINE_SUFFIX = "horovod_timeline.json"
SMDATAPARALLELTIMELINE_SUFFIX = "smdataparallel_timeline.json"

_SYSTEM_NAME = re.compile(r"(?P<start>\d{10})\.(?P<node>[\w-]+)\.json")
_PEVENTS_NAME = re.compile(r"(?P<end>\d{15,17})_(?P<node>[\w-]+?)_(?P<kind>[a-z]+(?:_timeline)?)\.json")
_TRACE_NAME = re.compile(r"\.json(\.gz)?$")
_TRACE_START = re.compile(r"\.(?P<start>\d{15,17})\.pt\.trace\.json")
_HOUR = re.compile(r"\d{10}")
# "77-algo-1", as the process writes it, becomes "algo-1-77", which sorts by instance.
_PROCESS_NODE = re.compile(r"(?P<process>.*)-(?P<node>algo-.*)")
_BLOCK_BYTES = 1 << 20
# Longer objects are no events.
_MAX_OBJECT = 16 << 20
_MAX_DEPTH = 8
_GZIP = b"\x1f\x8b"
_FILE_TYPES = {
    "pythontimeline": "PythontimelineMetrics",
    "model_timeline": "DetailedframeworkMetrics",
    "horovod_timeline": "HorovodMetrics",
    "smdataparallel_timeline": "SMDataParallelMetrics",
}
_DECODER = json.JSONDecoder()
_BETWEEN = re.compile(r"[\s,\[\]]*")
_NEXT_OBJECT = re.compile(r"\n[\s,\[\]]*(?=\{)")
_LONGEST_LITERAL = len("-Infinity")

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True, order=True)
class MetricsFile:
    """A file with events. `time_us` is when its events begin, for samples and traces, or when they end, for others."""

    time_us: int
    name: str
    size: int
    node: str = ""
    kind: str = ""


def list_system_files(source: ByteSource, *, after_hour: str = "") -> list[MetricsFile]:
    """Return the files with samples, in order of time; with `after_hour`, only those of that hour and later."""
    folders = ["", *(name for name in source.folders(SYSTEM_FOLDER) if _HOUR.fullmatch(name) and name >= after_hour)]
    found = []
    for folder in folders:
        path = f"{SYSTEM_FOLDER}/{folder}".rstrip("/")
        for entry in source.entries(path):
            if match := _SYSTEM_NAME.fullmatch(entry.name):
                start_us = int(match["start"]) * 1_000_000
                found.append(MetricsFile(start_us, f"{path}/{entry.name}", entry.size, match["node"]))
    return sorted(found)


def list_event_files(source: ByteSource, *, after_hour: str = "") -> list[MetricsFile]:
    """Return the files with events of programs, in order of time."""
    found = []
    for folder in source.folders(PEVENTS_FOLDER):
        path = f"{PEVENTS_FOLDER}/{folder}"
        for entry in source.entries(path) if folder >= after_hour else ():
            if match := _PEVENTS_NAME.fullmatch(entry.name):
                name = f"{path}/{entry.name}"
                found.append(MetricsFile(int(match["end"]), name, entry.size, match["node"], match["kind"]))
    return sorted(found)


def list_traces(source: ByteSource) -> list[MetricsFile]:
    """Return the traces of torch and TensorFlow below `framework`, in the order of their names."""
    found = []
    for framework in source.folders(FRAMEWORK_FOLDER):
        folders = (f"{FRAMEWORK_FOLDER}/{framework}/{folder}" for folder in _TRACE_FOLDERS)
        for name, size in (each for folder in folders for each in _walk(source, folder, _MAX_DEPTH)):
            if _TRACE_NAME.search(name):
                file = name.rpartition("/")[2]
                start = _TRACE_START.search(file)
                found.append(MetricsFile(int(start["start"]) if start else 0, name, size, file.partition(".")[0]))
    return sorted(found, key=lambda file: file.name)


def read_system_events(source: ByteSource, file: MetricsFile, note: Note) -> Iterator[SystemEvent]:
    """Yield the samples of a file. Lines that are none are left out, with a note."""
    for line in read_objects(source, file.name, note):
        try:
            name = line.get("Name") or ""
            event = SystemEvent(
                str(line["Type"]),
                str(name),
                str(line["Dimension"]),
                float(line["Value"]),
                str(line["NodeId"]),
                float(line["Timestamp"]),
            )
        except (KeyError, TypeError, ValueError):
            note(f"{file.name} has a line that is no sample.")
            continue
        yield event


def read_trace_events(source: ByteSource, file: MetricsFile, note: Note) -> Iterator[TraceEvent]:
    """Yield the spans of a file below pevents."""
    reading = _TraceReading(file)
    for line in read_objects(source, file.name, note):
        try:
            event = reading.take(line)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError):
            note(f"{file.name} has an entry that is no event.")
            continue
        if event is not None:
            yield event


def read_objects(source: ByteSource, name: str, note: Note) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects in a file, on lines or in an array; of a torn file, those that are whole."""
    text = ""
    for block in _text_blocks(source, name, note):
        text += block
        place = _after_separators(text, 0)
        while place < len(text):
            try:
                value, place = _DECODER.raw_decode(text, place)
            except RecursionError:
                note(f"{name} has an entry that is too deep.")
                return
            except json.JSONDecodeError as error:
                if _is_incomplete(error):
                    break
                note(f"{name} has a torn line.")
                place = _next_line(text, max(error.pos, place + 1))
                continue
            if isinstance(value, dict):
                yield value
            place = _after_separators(text, place)
        text = text[place:]
        if len(text) > _MAX_OBJECT:
            note(f"{name} is not a file of events.")
            return
    if text:
        note(f"{name} ends within an entry.")


class _TraceReading:
    """The state of reading a Chrome trace: its headings, its clock, and calls that have begun."""

    def __init__(self, file: MetricsFile) -> None:
        match = _PROCESS_NODE.fullmatch(file.node)
        self._node = f"{match['node']}-{match['process']}" if match else file.node
        self._type = _FILE_TYPES.get(file.kind, file.kind)
        self._start_us = 0
        self._headings: dict[Any, ProcessInfo] = {}
        self._begun: dict[Any, list[Mapping[str, Any]]] = {}

    def take(self, entry: Mapping[str, Any]) -> TraceEvent | None:
        kind, arguments = entry.get("ph"), entry.get("args") or {}
        if kind == "M":
            self._start_us = int(arguments.get("start_time_since_epoch_in_micros", self._start_us))
            if entry["name"] == "process_name" and "name" in arguments:
                self._headings[entry["pid"]] = ProcessInfo(int(entry["pid"]), str(arguments["name"]))
        elif kind == "B":
            self._begun.setdefault(entry["pid"], []).append(entry)
        elif kind == "E":
            begun = self._begun[entry["pid"]].pop()
            return self._event(begun, int(entry["ts"]) - int(begun["ts"]), arguments or begun.get("args"))
        elif kind == "X":
            return self._event(entry, int(entry["dur"]), arguments)
        return None

    def _event(self, entry: Mapping[str, Any], duration: int, arguments: Any) -> TraceEvent:
        if duration < 0:
            raise ValueError("the event ends before it begins")
        heading = self._headings.get(entry["pid"])
        known = arguments if isinstance(arguments, Mapping) else {}
        return TraceEvent(
            int(entry["ts"]) + self._start_us,
            str(entry["name"]),
            duration,
            self._node,
            heading.name if heading else "Unknown",
            known or None,
            int(known.get("pid", entry["pid"])),
            int(known.get("thread_id", entry.get("tid", 0))),
            file_type=self._type,
            process_info=heading,
        )


class SourceFile(RawIOBase):
    """A file of a source as one that is read in order, for readers of files."""

    def __init__(self, source: ByteSource, name: str) -> None:
        super().__init__()
        self._source, self._name = source, name
        self._place = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._source.read(self._name, start=self._place, size=len(buffer))
        self._place += len(data)
        buffer[: len(data)] = data
        return len(data)


def _walk(source: ByteSource, folder: str, depth: int) -> Iterator[tuple[str, int]]:
    yield from ((f"{folder}/{entry.name}", entry.size) for entry in source.entries(folder))
    for name in source.folders(folder) if depth else ():
        yield from _walk(source, f"{folder}/{name}", depth - 1)


def _text_blocks(source: ByteSource, name: str, note: Note) -> Iterator[str]:
    """Yield the text of a file in blocks, decompressed; bytes that are no text are replaced."""
    place, inflate = 0, None
    while data := source.read(name, start=place, size=_BLOCK_BYTES):
        if place == 0 and data.startswith(_GZIP):
            inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
        place += len(data)
        if inflate is not None:
            try:
                data = inflate.decompress(data)
            except zlib.error:
                note(f"{name} is not completely compressed.")
                return
        yield data.decode(errors="replace")


def _after_separators(text: str, place: int) -> int:
    match = _BETWEEN.match(text, place)
    return match.end() if match else place


def _is_incomplete(error: json.JSONDecodeError) -> bool:
    """Whether the text ends before the value that cannot be decoded does."""
    return error.msg.startswith("Unterminated string") or error.pos >= len(error.doc) - _LONGEST_LITERAL


def _next_line(text: str, place: int) -> int:
    """Return where the next line that begins with an object begins, or the end of the text."""
    # A line that was torn and continued may be found at its first character.
    match = _NEXT_OBJECT.search(text, max(0, text.rfind("\n", 0, place + 1)))
    return match.end() if match else len(text)

"""Tables of traces, kept so that a trace is parsed once.

A file of the cache holds one trace: a header as JSON that describes the columns, then the columns as they are in
memory. Nothing in it is code, and nothing in it is believed: a file that is not exactly as it was written, or that
another version wrote, counts as absent. So a cache may be deleted, in part or whole, at any time.

A trace is recognised by its size, its time of change, and a digest of its first and last 64 KiB. A digest of all would
read gigabytes whenever a report is updated. The two ends have the trace's own id, its first and its last times, which
no two traces share. A program that forges all of that fools the profile of its own job, nothing else: its trace is
read, and its tables are kept, with the rights of the reader and in a folder that the caller chooses.
"""

import hashlib
import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from trainyard.formats.profiles.traces.contract import (
    CollectiveTable,
    DistributedFacts,
    EventTable,
    GpuProperties,
    LaunchTable,
    MemoryTable,
    StepTable,
    Trace,
    TraceTrack,
)
from trainyard.formats.profiles.traces.reader import read_trace

# Of what is written, not of the package: a change of the tables or of what is read into them raises it.
FORMAT = 1

_MAGIC = b"trainyard trace\n"
_SIZE = 8
_MAX_HEADER_BYTES = 1 << 30
_END_BYTES = 1 << 16
_TABLES: Mapping[str, type[Any]] = {
    "events": EventTable,
    "launches": LaunchTable,
    "memory": MemoryTable,
    "collectives": CollectiveTable,
    "steps": StepTable,
}
_KINDS = {kind: np.dtype(kind) for kind in ("<i8", "<i4", "<i2", "<u8", "<u1", "<f4")}


class TraceCache:
    """Reads traces through a folder of tables. The folder must be one that no job can write to.

    Safe to share between threads and processes: files are replaced as a whole.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, file: BinaryIO) -> Trace:
        """Return the tables of an open, seekable file; from the cache if they are there.

        A cache that cannot be written is no error: the trace is then parsed again next time.
        """
        key = trace_key(file)
        kept = self.load(key)
        if kept is not None:
            return kept
        file.seek(0)
        trace = read_trace(file)
        with suppress(OSError):
            self.store(key, trace)
        return trace

    def load(self, key: str) -> Trace | None:
        try:
            data = self._path(key).read_bytes()
        except OSError:
            return None
        try:
            return _decode(data)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
            return None

    def store(self, key: str, trace: Trace) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._path(key)
        new = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
        try:
            with new.open("wb") as file:
                file.writelines(_encode(trace))
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        assert key.isalnum(), f"{key!r} is no key of trace_key"
        return self._folder / f"{key}.trace"


def trace_key(file: BinaryIO) -> str:
    """Return what recognises the trace in an open file."""
    status = os.fstat(file.fileno())
    digest = hashlib.blake2b(f"{FORMAT} {status.st_size} {status.st_mtime_ns} ".encode(), digest_size=20)
    for place in (0, max(0, status.st_size - _END_BYTES)):
        digest.update(os.pread(file.fileno(), _END_BYTES, place))
    return digest.hexdigest()


def _encode(trace: Trace) -> Iterator[bytes]:
    columns: list[bytes] = []
    described: dict[str, Any] = {
        "format": FORMAT,
        "tables": {name: _describe_table(getattr(trace, name), columns) for name in _TABLES},
        "inputs": [[*each] for each in trace.inputs.items()],
        "gpus": [asdict(each) for each in trace.gpus],
        "distributed": asdict(trace.distributed) if trace.distributed else None,
        "notes": list(trace.notes),
    }
    for name in ("producer", "host", "is_unix_time", "is_complete", "has_shapes", "has_memory"):
        described[name] = getattr(trace, name)
    checksum = 0
    for column in columns:
        checksum = zlib.crc32(column, checksum)
    header = json.dumps({**described, "checksum": checksum}).encode()
    yield _MAGIC + len(header).to_bytes(_SIZE, "little") + zlib.crc32(header).to_bytes(_SIZE, "little") + header
    yield from columns


def _describe_table(table: Any, columns: list[bytes]) -> dict[str, object]:
    """Describe the members of a table, and add its columns to those that are written."""
    parts: dict[str, object] = {}
    for each in fields(table):
        value = getattr(table, each.name)
        if isinstance(value, np.ndarray):
            kind = value.dtype.newbyteorder("<").str.replace("|", "<")
            columns.append(value.astype(kind, copy=False).tobytes())
            parts[each.name] = [kind, len(value)]
        elif each.name == "track_list":
            parts[each.name] = {"tracks": [asdict(track) for track in value]}
        else:
            parts[each.name] = {"texts": [str(text) for text in value]}
    return parts


def _decode(data: bytes) -> Trace | None:
    place = len(_MAGIC) + 2 * _SIZE
    size, checksum = (int.from_bytes(data[end - _SIZE : end], "little") for end in (place - _SIZE, place))
    header = data[place : place + size]
    if not data.startswith(_MAGIC) or size > _MAX_HEADER_BYTES or zlib.crc32(header) != checksum:
        return None
    described = json.loads(header)
    body = memoryview(data)[place + size :]
    if described["format"] != FORMAT or zlib.crc32(body) != described["checksum"]:
        return None
    tables, used = {}, 0
    for name, kind in _TABLES.items():
        tables[name], used = _decode_table(kind, described["tables"][name], body, used)
    if used != len(body):
        return None
    distributed = described["distributed"]
    return Trace(
        **tables,
        inputs={int(row): str(text) for row, text in described["inputs"]},
        gpus=tuple(GpuProperties(**each) for each in described["gpus"]),
        distributed=DistributedFacts(**distributed) if distributed else None,
        producer=described["producer"],
        host=described["host"],
        is_unix_time=described["is_unix_time"],
        is_complete=described["is_complete"],
        has_shapes=described["has_shapes"],
        has_memory=described["has_memory"],
        notes=tuple(described["notes"]),
    )


def _decode_table(kind: type[Any], parts: Mapping[str, Any], body: memoryview, used: int) -> tuple[Any, int]:
    values: dict[str, Sequence[object] | np.ndarray[Any, Any]] = {}
    for each in fields(kind):
        part = parts[each.name]
        if isinstance(part, dict):
            values[each.name] = part["texts"] if "texts" in part else [TraceTrack(**each) for each in part["tracks"]]
            continue
        dtype, count = _KINDS[part[0]], int(part[1])
        end = used + dtype.itemsize * count
        if count < 0 or end > len(body):
            raise ValueError("a column is longer than the file")
        values[each.name] = np.frombuffer(body[used:end], dtype)
        used = end
    return kind(**values), used

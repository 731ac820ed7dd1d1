"""Log segments: the files of a stream, and the records of their indexes."""

import os
import re
import struct
from bisect import bisect_left
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from trainyard.formats.watermark import find_first_reaching
from trainyard.foundation.errors import Unavailable

SEGMENT_BYTES = 64 * 1024 * 1024
MAX_EVENT_BYTES = 1024 * 1024

# A flag of an entry: it is one event.
WHOLE = 1

_RECORD = struct.Struct("<QQqqqQII")
_NAME = re.compile(r"([0-9]{20})\.index")

RECORD_BYTES = _RECORD.size


class LogEntry(NamedTuple):
    """One record of an index. A tuple, because reading makes many."""

    offset: int
    # Where the line that continues in this entry begins; `offset` itself if a new line begins.
    line: int
    ms: int
    ingested_ms: int
    peak_ms: int
    lag_ms: int
    size: int
    flags: int

    @property
    def end(self) -> int:
        return self.offset + self.size

    @property
    def is_whole(self) -> bool:
        return bool(self.flags & WHOLE)

    def pack(self) -> bytes:
        return _RECORD.pack(*self)


def segments_of(folder: Path) -> "list[LogSegment]":
    """Return the segments of a stream in order; none if the folder is missing."""
    try:
        names = [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []
    starts = sorted(int(match[1]) for match in map(_NAME.fullmatch, names) if match)
    return [LogSegment(folder, start) for start in starts]


class LogSegment:
    """A snapshot of one segment at its first use; later appends are not seen.

    Raises Unavailable if it is removed meanwhile.
    """

    def __init__(self, folder: Path, start: int) -> None:
        self.start = start
        self.log_file = folder / f"{start:020d}.log"
        self.index_file = folder / f"{start:020d}.index"

    @cached_property
    def count(self) -> int:
        """The number of complete entries."""
        # The index first: bytes are written before their record, so every record counted here has its bytes.
        count = self._index_size() // RECORD_BYTES
        size = self.log_file.stat().st_size if self.log_file.exists() else 0
        while count and not self._is_complete(count - 1, size):
            count -= 1
        return count

    @cached_property
    def last(self) -> LogEntry | None:
        return self.entry(self.count - 1) if self.count else None

    @cached_property
    def end(self) -> int:
        """The offset after the last complete entry."""
        return self.last.end if self.last else self.start

    def entries(self, first: int, stop: int) -> list[LogEntry]:
        data = self._read(self.index_file, first * RECORD_BYTES, (stop - first) * RECORD_BYTES)
        return list(map(LogEntry._make, _RECORD.iter_unpack(data)))

    def entry(self, number: int) -> LogEntry:
        return self.entries(number, number + 1)[0]

    def number_at(self, offset: int) -> int:
        """Return the number of the first entry that begins at `offset` or later."""
        if offset <= self.start:
            return 0
        if offset >= self.end:
            return self.count
        return bisect_left(range(self.count), offset, key=lambda number: self.entry(number).offset)

    def number_reaching(self, ms: int) -> int:
        """Return the number of the first entry whose peak is `ms` or later."""
        return find_first_reaching(ms, self.count, peak_of=lambda number: self.entry(number).peak_ms)

    def read(self, offset: int, size: int) -> bytes:
        """Return the bytes from `offset` on, as far as they are complete."""
        return self._read(self.log_file, offset - self.start, max(0, min(size, self.end - offset)))

    def _is_complete(self, number: int, size: int) -> bool:
        entry = self.entry(number)
        begins_at = self.entry(number - 1).end if number else self.start
        # A power cut leaves a record of zeros if the length of a file reached the disk before its bytes.
        return entry.size > 0 and entry.offset == begins_at and entry.end - self.start <= size

    def _index_size(self) -> int:
        try:
            return self.index_file.stat().st_size
        except FileNotFoundError as error:
            raise self._removal_error() from error

    def _read(self, file: Path, offset: int, size: int) -> bytes:
        try:
            with file.open("rb", buffering=0) as opened:
                data = os.pread(opened.fileno(), size, offset)
        except FileNotFoundError as error:
            raise self._removal_error() from error
        if len(data) < size:
            raise self._removal_error()
        return data

    def _removal_error(self) -> Unavailable:
        return Unavailable(f"The log segment {self.log_file} was removed while it was read; read again.")

"""Writes a log stream."""

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from trainyard.formats.logs.segments import (
    MAX_EVENT_BYTES,
    RECORD_BYTES,
    SEGMENT_BYTES,
    WHOLE,
    LogEntry,
    LogSegment,
    segments_of,
)
from trainyard.formats.watermark import LOWEST, Watermark
from trainyard.foundation.errors import InvalidRequest, Unavailable
from trainyard.foundation.files import PRIVATE_FILE, PRIVATE_FOLDER, sync_folder


@dataclass(frozen=True, slots=True)
class _Tail:
    """The end of a stream, the start of the line that is still open there, and the watermark so far."""

    end: int
    line: int
    watermark: Watermark

    def entry(self, data: bytes, ms: int, *, ingested_ms: int, flags: int = 0) -> LogEntry:
        watermark = self.watermark.with_time(ms)
        return LogEntry(self.end, self.line, ms, ingested_ms, watermark.peak, watermark.lag, len(data), flags)

    def after(self, entry: LogEntry, data: bytes) -> "_Tail":
        newline = data.rfind(b"\n")
        line = entry.line if newline < 0 else entry.offset + newline + 1
        return _Tail(entry.end, line, Watermark(entry.peak_ms, entry.lag_ms))


class _OpenSegment:
    """The segment that is being written: its two files, open for appending."""

    def __init__(self, segment: LogSegment, end: int) -> None:
        self.segment = segment
        self._count = segment.count if segment.index_file.exists() else 0
        # The process that made the files may have died before it synced the folder.
        self._is_folder_synced = False
        with contextlib.ExitStack() as opened:
            self._log = _open(segment.log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            opened.callback(os.close, self._log)
            # The index comes last: a segment exists once it has an index.
            self._index = _open(segment.index_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            opened.callback(os.close, self._index)
            self.truncate(end)
            self.close = opened.pop_all().close

    def write(self, data: bytes, entries: Sequence[LogEntry]) -> None:
        _write_all(self._log, data)
        _write_all(self._index, b"".join(map(LogEntry.pack, entries)))
        self._count += len(entries)

    def truncate(self, end: int) -> None:
        """Truncate everything after the last complete entry, which ends at `end`."""
        for descriptor, size in ((self._index, self._count * RECORD_BYTES), (self._log, end - self.segment.start)):
            if os.fstat(descriptor).st_size > size:
                os.ftruncate(descriptor, size)

    def sync(self) -> None:
        os.fdatasync(self._log)
        os.fdatasync(self._index)
        if not self._is_folder_synced:
            sync_folder(self.segment.log_file.parent)
            sync_folder(self.segment.log_file.parent.parent)
            self._is_folder_synced = True


class LogWriter:
    """Appends to the stream in a folder, which is made if missing.

    A stream has one writer at a time: opening waits while another thread or process has the stream open, then repairs
    what a crash left. One thread uses it at a time. A full or failing disk raises Unavailable; the bytes of that call
    are not appended.
    """

    def __init__(self, folder: Path, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        with self._raising_unavailable(), contextlib.ExitStack() as opened:
            folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            self._lock = _open(folder, os.O_RDONLY | os.O_DIRECTORY)
            opened.callback(os.close, self._lock)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            segments = segments_of(folder)
            self._tail = _tail_of(segments)
            self._files = _OpenSegment(segments[-1] if segments else LogSegment(folder, 0), self._tail.end)
            opened.pop_all()

    @property
    def end(self) -> int:
        """The offset of the next byte."""
        return self._tail.end

    def append(self, data: bytes, ms: int, *, whole: bool = False) -> None:
        """Append the bytes that came at `ms`: the next part of the output or, with `whole`, one message."""
        if whole:
            self.append_messages([(ms, data)], ingested_ms=ms)
            return
        for first in range(0, len(data), MAX_EVENT_BYTES):
            piece = data[first : first + MAX_EVENT_BYTES]
            self._roll_segment(len(piece))
            entry = self._tail.entry(piece, ms, ingested_ms=ms)
            self._write(piece, [entry], self._tail.after(entry, piece))

    def append_messages(self, messages: Iterable[tuple[int, bytes]], *, ingested_ms: int) -> None:
        """Append whole messages, each with its own time, in one write."""
        pieces = [(ms, message + b"\n") for ms, message in messages]
        longest = max((len(piece) - 1 for _, piece in pieces), default=0)
        if longest > MAX_EVENT_BYTES:
            raise InvalidRequest(f"A log message has {longest} bytes; the maximum is {MAX_EVENT_BYTES}.")
        self.end_line(ingested_ms)
        self._roll_segment(sum(len(piece) for _, piece in pieces))
        tail, entries = self._tail, []
        for ms, piece in pieces:
            entries.append(tail.entry(piece, ms, ingested_ms=ingested_ms, flags=WHOLE))
            tail = tail.after(entries[-1], piece)
        self._write(b"".join(piece for _, piece in pieces), entries, tail)

    def end_line(self, ms: int) -> None:
        """End the line that is still open, if any, for example because its program has ended."""
        if self._tail.line < self._tail.end:
            self.append(b"\n", ms)

    def sync(self) -> None:
        """Make everything appended so far durable."""
        with self._raising_unavailable():
            self._files.sync()

    def close(self) -> None:
        self._files.close()
        os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _roll_segment(self, size: int) -> None:
        """Begin a new segment if `size` more bytes would make this one too large."""
        used = self._tail.end - self._files.segment.start
        if not used or used + size <= self._segment_bytes:
            return
        with self._raising_unavailable():
            self._files.sync()
            files = _OpenSegment(LogSegment(self._folder, self._tail.end), self._tail.end)
            self._files.close()
            self._files = files

    def _write(self, data: bytes, entries: Sequence[LogEntry], tail: _Tail) -> None:
        with self._raising_unavailable():
            try:
                self._files.write(data, entries)
            except OSError:
                self._files.truncate(self._tail.end)
                raise
        self._tail = tail

    @contextlib.contextmanager
    def _raising_unavailable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise Unavailable(f"The log in {self._folder} cannot be written: {error.strerror}.") from error


def _tail_of(segments: Sequence[LogSegment]) -> _Tail:
    start = segments[-1].start if segments else 0
    for segment in reversed(segments):
        if (last := segment.last) is None:
            continue
        last_bytes = segment.read(last.offset, last.size)
        tail = _Tail(last.offset, last.line, LOWEST).after(last, last_bytes)
        return tail if tail.end >= start else _Tail(start, start, tail.watermark)
    return _Tail(start, start, LOWEST)


def _open(path: Path, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, PRIVATE_FILE)


def _write_all(descriptor: int, data: bytes) -> None:
    written = os.write(descriptor, data)
    while written < len(data):
        written += os.write(descriptor, data[written:])

"""Writing a stream."""

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
    Entry,
    Segment,
    segments_of,
)
from trainyard.formats.watermark import LOWEST, Watermark
from trainyard.foundation.errors import InvalidRequest, Unavailable
from trainyard.foundation.files import PRIVATE_FILE, PRIVATE_FOLDER, sync_folder


@dataclass(frozen=True, slots=True)
class _Tail:
    """Where a stream ends, where the line begins that is still open there, and the watermark so far."""

    end: int
    line: int
    mark: Watermark

    def entry(self, data: bytes, ms: int, *, ingested_ms: int, flags: int = 0) -> Entry:
        mark = self.mark.raised(ms)
        return Entry(self.end, self.line, ms, ingested_ms, mark.peak, mark.lag, len(data), flags)

    def after(self, entry: Entry, data: bytes) -> "_Tail":
        newline = data.rfind(b"\n")
        line = entry.line if newline < 0 else entry.offset + newline + 1
        return _Tail(entry.end, line, Watermark(entry.peak_ms, entry.lag_ms))


class _SegmentFiles:
    """The two files of the segment that is being written, open at their ends."""

    def __init__(self, segment: Segment, end: int) -> None:
        self.segment = segment
        self._count = segment.count if segment.index_file.exists() else 0
        # Whoever made the files may have died before their names were synced.
        self._has_names = False
        with contextlib.ExitStack() as opened:
            self._log = _open(segment.log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            opened.callback(os.close, self._log)
            # The index comes last: it is what makes a segment exist.
            self._index = _open(segment.index_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            opened.callback(os.close, self._index)
            self.cut(end)
            self.close = opened.pop_all().close

    def write(self, data: bytes, entries: Sequence[Entry]) -> None:
        _write_all(self._log, data)
        _write_all(self._index, b"".join(map(Entry.pack, entries)))
        self._count += len(entries)

    def cut(self, end: int) -> None:
        """Take away what lies behind the last complete entry, which ends at `end`."""
        for descriptor, size in ((self._index, self._count * RECORD_BYTES), (self._log, end - self.segment.start)):
            if os.fstat(descriptor).st_size > size:
                os.ftruncate(descriptor, size)

    def sync(self) -> None:
        os.fdatasync(self._log)
        os.fdatasync(self._index)
        if not self._has_names:
            sync_folder(self.segment.log_file.parent)
            sync_folder(self.segment.log_file.parent.parent)
            self._has_names = True


class LogWriter:
    """Appends to the stream in a folder, which is made when absent.

    There is one writer at a time: opening waits while another, in any thread or process, holds the stream, and repairs
    what a crash left. One thread uses it at a time. A full or failing disk raises Unavailable, and what met it has not
    been appended.
    """

    def __init__(self, folder: Path, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        with self._failing_as_unavailable(), contextlib.ExitStack() as opened:
            folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            self._lock = _open(folder, os.O_RDONLY | os.O_DIRECTORY)
            opened.callback(os.close, self._lock)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            segments = segments_of(folder)
            self._tail = _tail_of(segments)
            self._files = _SegmentFiles(segments[-1] if segments else Segment(folder, 0), self._tail.end)
            opened.pop_all()

    @property
    def end(self) -> int:
        """The offset of the next byte."""
        return self._tail.end

    def append(self, data: bytes, ms: int, *, whole: bool = False) -> None:
        """Append what came at `ms`: the next bytes of a flow of lines or, with `whole`, one message."""
        if whole:
            self.append_messages([(ms, data)], ingested_ms=ms)
            return
        for first in range(0, len(data), MAX_EVENT_BYTES):
            piece = data[first : first + MAX_EVENT_BYTES]
            self._make_room(len(piece))
            entry = self._tail.entry(piece, ms, ingested_ms=ms)
            self._write(piece, [entry], self._tail.after(entry, piece))

    def append_messages(self, messages: Iterable[tuple[int, bytes]], *, ingested_ms: int) -> None:
        """Append whole messages, each at the time it names, in one write."""
        pieces = [(ms, message + b"\n") for ms, message in messages]
        longest = max((len(piece) - 1 for _, piece in pieces), default=0)
        if longest > MAX_EVENT_BYTES:
            raise InvalidRequest(f"A log message has {longest} bytes; at most {MAX_EVENT_BYTES} fit.")
        self.end_line(ingested_ms)
        self._make_room(sum(len(piece) for _, piece in pieces))
        tail, entries = self._tail, []
        for ms, piece in pieces:
            entries.append(tail.entry(piece, ms, ingested_ms=ingested_ms, flags=WHOLE))
            tail = tail.after(entries[-1], piece)
        self._write(b"".join(piece for _, piece in pieces), entries, tail)

    def end_line(self, ms: int) -> None:
        """End the line that is still open, as when its program has ended; does nothing when none is."""
        if self._tail.line < self._tail.end:
            self.append(b"\n", ms)

    def sync(self) -> None:
        """Make durable what was appended."""
        with self._failing_as_unavailable():
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

    def _make_room(self, size: int) -> None:
        """Begin a new segment when `size` more bytes would make this one too large."""
        used = self._tail.end - self._files.segment.start
        if not used or used + size <= self._segment_bytes:
            return
        with self._failing_as_unavailable():
            self._files.sync()
            files = _SegmentFiles(Segment(self._folder, self._tail.end), self._tail.end)
            self._files.close()
            self._files = files

    def _write(self, data: bytes, entries: Sequence[Entry], tail: _Tail) -> None:
        with self._failing_as_unavailable():
            try:
                self._files.write(data, entries)
            except OSError:
                self._files.cut(self._tail.end)
                raise
        self._tail = tail

    @contextlib.contextmanager
    def _failing_as_unavailable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise Unavailable(f"The log in {self._folder} cannot be written: {error.strerror}.") from error


def _tail_of(segments: Sequence[Segment]) -> _Tail:
    start = segments[-1].start if segments else 0
    for segment in reversed(segments):
        if (last := segment.last) is None:
            continue
        bytes_of_last = segment.read(last.offset, last.size)
        tail = _Tail(last.offset, last.line, LOWEST).after(last, bytes_of_last)
        return tail if tail.end >= start else _Tail(start, start, tail.mark)
    return _Tail(start, start, LOWEST)


def _open(path: Path, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, PRIVATE_FILE)


def _write_all(descriptor: int, data: bytes) -> None:
    written = os.write(descriptor, data)
    while written < len(data):
        written += os.write(descriptor, data[written:])

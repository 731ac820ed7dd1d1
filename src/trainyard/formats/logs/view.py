"""A snapshot of a log stream, split into events."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from trainyard.formats.logs.segments import MAX_EVENT_BYTES, LogEntry, LogSegment, segments_of

# Bytes read at once; each of many streams that are read side by side keeps one chunk in memory.
_CHUNK = 64 * 1024
# Index records read at once.
_BATCH = 256


class LogEvent(NamedTuple):
    """One event. `peak_ms`, the latest time of any event up to this one, never decreases along a stream.

    A tuple, because reading makes many.
    """

    offset: int
    ms: int
    ingested_ms: int
    peak_ms: int
    message: bytes

    @property
    def text(self) -> str:
        """The message as text; invalid UTF-8 is replaced."""
        return self.message.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Milliseconds from `start_ms`, inclusive, to `end_ms`, exclusive; None means no limit."""

    start_ms: int | None = None
    end_ms: int | None = None

    def __contains__(self, ms: int) -> bool:
        return (self.start_ms is None or self.start_ms <= ms) and (self.end_ms is None or ms < self.end_ms)


class LogView:
    """The complete entries of a stream at the moment of its first use. For one thread."""

    def __init__(self, folder: Path) -> None:
        self._segments = segments_of(folder)
        self._starts = [segment.start for segment in self._segments]
        self._chunk_start, self._chunk = 0, b""

    @cached_property
    def end(self) -> int:
        return self._segments[-1].end if self._segments else 0

    @cached_property
    def open_line(self) -> int:
        """The offset at which the next event will begin: the last line if it may still grow, else the end."""
        last = self._last
        if last is None or last.end < self.end:
            return self.end
        line = self._line_at(last, last.end)
        cuts = max(0, last.end - line - 1) // MAX_EVENT_BYTES
        return line + cuts * MAX_EVENT_BYTES

    def bounds(self, times: TimeRange) -> tuple[int, int]:
        """Return offsets that enclose all events of a time range, and perhaps others."""
        low, high = 0, self.end
        if times.start_ms is not None:
            low = self.offset_reaching(times.start_ms)
        if times.end_ms is not None and self._last is not None:
            high = self.offset_reaching(times.end_ms + self._last.lag_ms)
        return low, high

    def offset_reaching(self, ms: int) -> int:
        """Return the offset of the first entry whose peak is `ms` or later, or the end."""
        number = bisect_left(self._segments, ms, key=_peak)
        if number == len(self._segments):
            return self.end
        segment = self._segments[number]
        entry = segment.number_reaching(ms)
        return segment.entry(entry).offset if entry < segment.count else segment.end

    def ascending(self, low: int, high: int, times: TimeRange) -> Iterator[LogEvent]:
        """Iterate over the events of a time range that begin from `low` on and before `high`, in stream order."""
        for entry in self._entries(low, high):
            if entry.ms in times:
                yield from self._events(entry, max(low, entry.offset), min(high, entry.end))

    def descending(self, low: int, high: int, times: TimeRange) -> Iterator[LogEvent]:
        """Iterate over the same events, the last first."""
        for entry in self._entries_backward(low, high):
            if entry.ms not in times:
                continue
            stop = min(high, entry.end)
            while stop > max(low, entry.offset):
                first = max(low, entry.offset, stop - _CHUNK)
                yield from reversed(list(self._events(entry, first, stop)))
                stop = first

    @cached_property
    def _last(self) -> LogEntry | None:
        return next((segment.last for segment in reversed(self._segments) if segment.last), None)

    def _entries(self, low: int, high: int) -> Iterator[LogEntry]:
        """Iterate over the entries that have bytes between two offsets."""
        for segment in self._segments[max(0, bisect_right(self._starts, low) - 1) :]:
            if segment.start >= high:
                return
            first, stop = _numbers(segment, low, high)
            for number in range(first, stop, _BATCH):
                yield from segment.entries(number, min(number + _BATCH, stop))

    def _entries_backward(self, low: int, high: int) -> Iterator[LogEntry]:
        for segment in reversed(self._segments[: bisect_left(self._starts, high)]):
            if segment.end <= low:
                return
            first, stop = _numbers(segment, low, high)
            for number in range(stop, first, -_BATCH):
                yield from reversed(segment.entries(max(first, number - _BATCH), number))

    def _events(self, entry: LogEntry, first: int, stop: int) -> Iterator[LogEvent]:
        """Iterate over the events of an entry that begin from `first` on and before `stop`."""
        if entry.is_whole:
            if first == entry.offset:
                yield self._event(entry, first, self._read(first, entry.size)[:-1])
            return
        at = self._first_event(entry, first)
        while at < stop:
            start, chunk = self._chunk_at(at)
            newline = chunk.find(b"\n", at - start)
            raw = chunk[at - start : newline + 1] if newline >= 0 else self._long_line(at)
            if raw is None:
                return
            yield self._event(entry, at, _without_newline(raw))
            at += len(raw)

    def _event(self, entry: LogEntry, at: int, message: bytes) -> LogEvent:
        return LogEvent(at, entry.ms, entry.ingested_ms, entry.peak_ms, message)

    def _first_event(self, entry: LogEntry, at: int) -> int:
        """Return where the first event from `at` on begins in an entry of lines; the entry's end if none does."""
        line = self._line_at(entry, at)
        if line == at:
            return at
        cut = line + -(-(at - line) // MAX_EVENT_BYTES) * MAX_EVENT_BYTES
        # A newline right at the cut belongs to the event before it.
        newline = self._newline_from(at, min(cut + 1, entry.end))
        return newline + 1 if newline >= 0 else min(cut, entry.end)

    def _line_at(self, entry: LogEntry, at: int) -> int:
        """Return where the line of `at`, which is in or right after an entry, begins."""
        newline = self._newline_before(at, entry.offset)
        return newline + 1 if newline >= 0 else entry.line

    def _long_line(self, at: int) -> bytes | None:
        """Return the bytes of the event that begins at `at`, with its newline; None while it may still grow."""
        pieces: list[bytes] = []
        size = 0
        while size <= MAX_EVENT_BYTES and (piece := self._rest_of_chunk(at + size)):
            pieces.append(piece)
            size += len(piece)
            if b"\n" in piece:
                break
        data = b"".join(pieces)
        newline = data.find(b"\n", 0, MAX_EVENT_BYTES + 1)
        if newline >= 0:
            return data[: newline + 1]
        if size > MAX_EVENT_BYTES:
            return data[:MAX_EVENT_BYTES]
        # The bytes end here. At the end of the stream more may come; after a removed segment none will.
        return data if at + size < self.end else None

    def _read(self, at: int, size: int) -> bytes:
        pieces = []
        while size > 0 and (piece := self._rest_of_chunk(at)):
            pieces.append(piece[:size])
            at += len(piece)
            size -= len(piece)
        return b"".join(pieces)

    def _newline_from(self, at: int, stop: int) -> int:
        while at < stop:
            start, chunk = self._chunk_at(at)
            newline = chunk.find(b"\n", at - start, stop - start)
            if newline >= 0:
                return start + newline
            at = start + len(chunk)
        return -1

    def _newline_before(self, at: int, stop: int) -> int:
        while at > stop:
            start, chunk = self._chunk_at(at - 1)
            newline = chunk.rfind(b"\n", max(0, stop - start), at - start)
            if newline >= 0:
                return start + newline
            at = start
        return -1

    def _rest_of_chunk(self, at: int) -> bytes:
        start, chunk = self._chunk_at(at)
        return chunk[at - start :]

    def _chunk_at(self, at: int) -> tuple[int, bytes]:
        """Return the start and the bytes of the chunk with `at`; it ends before `at` if that byte is missing."""
        if not self._chunk_start <= at < self._chunk_start + len(self._chunk):
            segment = self._segments[bisect_right(self._starts, at) - 1]
            aligned = at - at % _CHUNK
            self._chunk_start = max(segment.start, aligned)
            self._chunk = segment.read(self._chunk_start, aligned + _CHUNK - self._chunk_start)
        return self._chunk_start, self._chunk


def _numbers(segment: LogSegment, low: int, high: int) -> tuple[int, int]:
    """Return the range of entries of a segment that have bytes between two offsets."""
    return max(0, segment.number_at(low + 1) - 1), segment.number_at(high)


def _peak(segment: LogSegment) -> int:
    # Only the newest segment may be empty.
    return segment.last.peak_ms if segment.last else 2**63


def _without_newline(raw: bytes) -> bytes:
    if raw.endswith(b"\r\n"):
        return raw[:-2]
    return raw[:-1] if raw.endswith(b"\n") else raw

"""The bytes of a log stream at one moment, across its segments."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from trainyard.formats.logs.segments import LogEntry, LogSegment


class ByteRange(NamedTuple):
    """Bytes from an offset, inclusive, to an offset, exclusive."""

    start: int
    end: int


class LogContents:
    """The complete bytes of the given segments. May be shared by threads. Raises Unavailable if they are removed."""

    def __init__(self, segments: Sequence[LogSegment]) -> None:
        self.segments = [segment for segment in segments if segment.count]
        self.runs = _runs(self.segments)
        self._starts = [segment.start for segment in self.segments]
        self._run_starts = [run.start for run in self.runs]

    @property
    def start(self) -> int:
        return self.runs[0].start if self.runs else 0

    @property
    def end(self) -> int:
        return self.runs[-1].end if self.runs else 0

    @property
    def size_bytes(self) -> int:
        return sum(run.end - run.start for run in self.runs)

    def size_before(self, offset: int) -> int:
        """Return how many bytes there are before an offset."""
        return sum(min(run.end, offset) - run.start for run in self.runs if run.start < offset)

    @property
    def gaps(self) -> list[ByteRange]:
        """The removed bytes: before the first segment, and between segments."""
        ends = [0, *(run.end for run in self.runs)]
        return [ByteRange(end, run.start) for end, run in zip(ends, self.runs, strict=False) if end < run.start]

    def run_at(self, offset: int) -> ByteRange:
        """Return the bytes around an offset that have no gap; for an offset in a gap or at the end, those before."""
        return self.runs[max(0, bisect_right(self._run_starts, offset) - 1)]

    def read(self, offset: int, size: int) -> bytes:
        """Return the bytes from an offset on, at most up to the next gap."""
        number = bisect_right(self._starts, offset) - 1
        if number < 0 or size <= 0:
            return b""
        pieces = [self.segments[number].read(offset, size)]
        size -= len(pieces[0])
        while size > 0 and pieces[-1] and number + 1 < len(self.segments):
            number += 1
            if self.segments[number - 1].end != self.segments[number].start:
                break
            pieces.append(self.segments[number].read(self.segments[number].start, size))
            size -= len(pieces[-1])
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def offset_reaching(self, ms: int) -> int:
        """Return the offset of the first entry whose peak is `ms` or later, or the end."""
        number = bisect_left(self.segments, ms, key=lambda segment: _last(segment).peak_ms)
        if number == len(self.segments):
            return self.end
        segment = self.segments[number]
        return segment.entry(segment.number_reaching(ms)).offset

    def segment_at(self, offset: int) -> LogSegment:
        return self.segments[max(0, bisect_right(self._starts, offset) - 1)]


def _runs(segments: Sequence[LogSegment]) -> list[ByteRange]:
    runs: list[ByteRange] = []
    for segment in segments:
        if runs and runs[-1].end == segment.start:
            runs[-1] = ByteRange(runs[-1].start, segment.end)
        else:
            runs.append(ByteRange(segment.start, segment.end))
    return runs


def _last(segment: LogSegment) -> LogEntry:
    assert segment.last is not None, "empty segments are left out"
    return segment.last

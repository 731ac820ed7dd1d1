"""Reads lines by their numbers, with their times."""

import codecs
from collections.abc import Iterator
from typing import NamedTuple

from trainyard.formats.logs.lines.contents import LogContents
from trainyard.formats.logs.lines.index import IndexedLines
from trainyard.formats.logs.segments import LogEntry

MAX_LINE_BYTES = 8 * 1024
# What is kept of the end of a longer line.
END_BYTES = 1024

_CHUNK_BYTES = 64 * 1024
_ENTRIES = 256


class LogLine(NamedTuple):
    """One line of a stream. `number` counts all lines of the stream from 0.

    `size` counts all bytes but the newline. If they are more than `head`, `tail` has the last ones. The time is that of
    the entry in which the line begins; `peak_ms`, the latest time so far, never decreases along a stream.
    """

    number: int
    offset: int
    size: int
    ms: int
    peak_ms: int
    head: bytes
    tail: bytes
    is_open: bool

    @property
    def text(self) -> str:
        """The beginning of the line; invalid UTF-8 is replaced."""
        return codecs.getincrementaldecoder("utf-8")("replace").decode(self.head, final=not self.tail)

    @property
    def ending(self) -> str:
        """The end of a line that is cut; empty for others."""
        # A character may begin before the cut.
        first = next((place for place, byte in enumerate(self.tail[:4]) if byte & 0xC0 != 0x80), 0)
        return self.tail[first:].decode("utf-8", "replace")


class LineReader:
    """Lines of a stream at one moment: all of them, or the chosen ones. For one thread.

    Numbers of arguments count the chosen lines, from 0.
    """

    def __init__(self, lines: IndexedLines, chosen: IndexedLines | None = None) -> None:
        self.lines = lines
        self.chosen = chosen or lines
        self.contents: LogContents = lines.contents
        self._entries = _Entries(lines.contents)
        self._chunk_start, self._chunk = 0, b""

    @property
    def total(self) -> int:
        return self.chosen.total

    @property
    def is_complete(self) -> bool:
        return self.lines.is_complete and self.chosen.is_complete

    @property
    def end(self) -> int:
        """How far the lines are counted."""
        return min(self.lines.end, self.chosen.end)

    def forward(self, number: int, *, max_line_bytes: int = MAX_LINE_BYTES) -> Iterator[LogLine]:
        """Iterate over the lines from one on."""
        for place, offset in enumerate(self.chosen.starts(number), number):
            own = place if self.chosen is self.lines else self.lines.count_before(offset)
            if own >= self.lines.total:
                return
            yield self._line(own, offset, max_line_bytes)

    def line_at(self, offset: int, *, max_line_bytes: int = MAX_LINE_BYTES) -> LogLine:
        """Return the line that begins at an offset."""
        return self._line(self.lines.count_before(offset), offset, max_line_bytes)

    def peak_of(self, number: int) -> int:
        """Return the latest time of any line up to this one."""
        return self.peak_at(self.chosen.start_of(number))

    def peak_at(self, offset: int) -> int:
        """Return the latest time of anything up to the entry with an offset."""
        return self._entries.entry_at(offset).peak_ms

    def count_before_time(self, ms: int) -> int:
        """Return how many lines begin before the first entry whose peak reaches a time."""
        return self.chosen.count_before(self.contents.offset_reaching(ms))

    def _line(self, number: int, offset: int, max_line_bytes: int) -> LogLine:
        end, is_open = self._line_end(number, offset)
        size = end - offset
        # Some bytes more are cheaper than a cut.
        if size <= max_line_bytes + END_BYTES:
            head, tail = self._read(offset, size), b""
            if head.endswith(b"\r") and not is_open:
                head = head[:-1]
        else:
            head = self._read(offset, max_line_bytes)
            tail = self.contents.read(end - END_BYTES, END_BYTES)
        entry = self._entries.entry_at(offset)
        return LogLine(number, offset, size, entry.ms, entry.peak_ms, head, tail, is_open)

    def _line_end(self, number: int, offset: int) -> tuple[int, bool]:
        """Return where a line ends, without its newline, and whether it has none yet."""
        newline = self._chunk_from(offset).find(b"\n", offset - self._chunk_start)
        if newline >= 0:
            return self._chunk_start + newline, False
        run = self.contents.run_at(offset)
        # A line that is longer than a chunk, or the last one before a gap or the end.
        following = self.lines.start_of(number + 1) if number + 1 < self.lines.counted else self.contents.end
        if following < run.end or (following == run.end and self.contents.read(run.end - 1, 1) == b"\n"):
            return following - 1, False
        return run.end, run.end == self.contents.end

    def _chunk_from(self, offset: int) -> bytes:
        """Return bytes with those from an offset on: a whole line, unless it is longer than a chunk."""
        at = offset - self._chunk_start
        if not 0 <= at < len(self._chunk) or self._chunk.find(b"\n", at) < 0:
            self._chunk_start, self._chunk = offset, self.contents.read(offset, _CHUNK_BYTES)
        return self._chunk

    def _read(self, offset: int, size: int) -> bytes:
        at = offset - self._chunk_start
        if at >= 0 and at + size <= len(self._chunk):
            return self._chunk[at : at + size]
        return self.contents.read(offset, size)


class _Entries:
    """Finds the entries of offsets, fast for rising ones."""

    def __init__(self, contents: LogContents) -> None:
        self._contents = contents
        self._batch: list[LogEntry] = []
        self._place = 0

    def entry_at(self, offset: int) -> LogEntry:
        """Return the entry that has the byte at an offset."""
        if not (self._batch and self._batch[0].offset <= offset < self._batch[-1].end):
            segment = self._contents.segment_at(offset)
            first = max(0, segment.number_at(offset + 1) - 1)
            self._batch = segment.entries(first, min(first + _ENTRIES, segment.count))
            self._place = 0
        if self._batch[self._place].offset > offset:
            self._place = 0
        while self._batch[self._place].end <= offset:
            self._place += 1
        return self._batch[self._place]

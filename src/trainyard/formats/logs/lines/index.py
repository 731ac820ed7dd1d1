"""The index of the lines of a stream: how many begin before each block of 64 KiB.

It is counted from the bytes themselves, at gigabytes per second, and kept in memory only: no file could be out of date,
or written by somebody else. It takes 4 bytes per block, so a log of 10 GB takes 640 KB. What has been counted is never
counted again; as the stream grows, only its new bytes are.

An index may be of those lines only that begin with a prefix, such as that of a rank.
"""

import threading
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path

from trainyard.formats.logs.lines.contents import LogContents
from trainyard.formats.logs.segments import LogSegment, segments_of

BLOCK_BYTES = 64 * 1024
# Bytes counted in one call; takes about 0.1 s, and longer from a cold disk.
MAX_COUNTED_BYTES = 256 * 1024 * 1024

_READ_BLOCKS = 16
_MAX_INDEXES = 512
_MAX_MEMORY_BYTES = 32 * 1024 * 1024
# Of an index and of each of its segments, besides the marks.
_OVERHEAD_BYTES = 1024


class _SegmentCount:
    """The lines that begin in one segment. `marks[k]` is their number before the end of block k."""

    __slots__ = ("counted", "lines", "marks", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.counted = start
        self.lines = 0
        self.marks = array("I")


@dataclass(frozen=True, slots=True)
class _Counted:
    """What was counted in a segment at the moment of a snapshot."""

    start: int
    counted: int
    lines: int
    marks: "array[int]"
    blocks: int


class IndexedLines:
    """The lines of a stream at one moment, as far as they are counted. May be shared by threads."""

    def __init__(
        self, contents: LogContents, prefix: bytes, counts: Sequence[_Counted], *, is_complete: bool, end: int
    ) -> None:
        self.contents = contents
        self.is_complete = is_complete
        # How far the lines are counted.
        self.end = end
        self._prefix = prefix
        self._counts = counts
        self._totals = list(accumulate((each.lines for each in counts), initial=0))
        self._starts = [each.start for each in counts]

    @property
    def total(self) -> int:
        """The number of lines. While not all bytes are counted, without the last one, whose end is not known."""
        return self.counted if self.is_complete else max(0, self.counted - 1)

    @property
    def counted(self) -> int:
        """The number of lines whose beginnings are known."""
        return self._totals[-1]

    def start_of(self, number: int) -> int:
        """Return the offset at which a line begins."""
        segment = bisect_right(self._totals, number) - 1
        counted, local = self._counts[segment], number - self._totals[segment]
        block = bisect_right(counted.marks, local, 0, counted.blocks)
        skipped = local - (counted.marks[block - 1] if block else 0)
        first = counted.start + block * BLOCK_BYTES
        starts = line_starts(self.contents, self._prefix, first, min(first + BLOCK_BYTES, counted.counted))
        return next(start for place, start in enumerate(starts) if place == skipped)

    def count_before(self, offset: int) -> int:
        """Return how many lines begin before an offset; of those that are counted."""
        segment = bisect_right(self._starts, offset) - 1
        if segment < 0:
            return 0
        counted = self._counts[segment]
        stop = min(offset, counted.counted)
        block = min((stop - counted.start) // BLOCK_BYTES, counted.blocks)
        first = counted.start + block * BLOCK_BYTES
        known = self._totals[segment] + (counted.marks[block - 1] if block else 0)
        return known + count_starts(self.contents, self._prefix, first, stop)

    def starts(self, number: int) -> Iterator[int]:
        """Iterate over the offsets of lines, from a line on."""
        if number >= self.total:
            return
        at, left = self.start_of(number), self.total - number
        segment = bisect_right(self._starts, at) - 1
        for counted in self._counts[segment:]:
            at = max(at, counted.start)
            while at < counted.counted:
                stop = min(at + BLOCK_BYTES, counted.counted)
                for start in line_starts(self.contents, self._prefix, at, stop):
                    yield start
                    left -= 1
                    if not left:
                        return
                at = stop


class LineIndex:
    """Counts the lines of the stream in a folder, of all or of those with a prefix. May be shared by threads."""

    def __init__(self, folder: Path, prefix: bytes = b"") -> None:
        self._folder, self._prefix = folder, prefix
        self._counts: list[_SegmentCount] = []
        # Segments that will not grow, because the next ones begin at their end.
        self._finished: dict[int, LogSegment] = {}
        self._lock = threading.Lock()

    @property
    def memory_bytes(self) -> int:
        return _OVERHEAD_BYTES + sum(_OVERHEAD_BYTES + 4 * len(each.marks) for each in self._counts)

    def advance(self, max_bytes: int = MAX_COUNTED_BYTES) -> IndexedLines:
        """Count what is new, up to a limit, and return what is known then."""
        with self._lock:
            contents = LogContents(self._segments())
            self._match(contents)
            left = max_bytes
            is_complete = True
            for counts, segment in zip(self._counts, contents.segments, strict=True):
                stop = self._countable_end(contents, segment)
                left -= self._count(contents, counts, min(stop, counts.counted + left))
                if counts.counted < stop:
                    is_complete = False
                    break
            counted = [
                _Counted(each.start, each.counted, each.lines, each.marks, len(each.marks)) for each in self._counts
            ]
            end = contents.end if is_complete else counts.counted
            return IndexedLines(contents, self._prefix, counted, is_complete=is_complete, end=end)

    def _segments(self) -> list[LogSegment]:
        segments = segments_of(self._folder)
        known = [self._finished.get(segment.start, segment) for segment in segments]
        self._finished = {each.start: each for each, after in pairwise(known) if each.end == after.start}
        return known

    def _match(self, contents: LogContents) -> None:
        """Forget the counts of removed segments, and begin those of new ones."""
        known = {each.start: each for each in self._counts}
        # A segment that became shorter is another one.
        self._counts = [
            found
            if (found := known.get(segment.start)) is not None and found.counted <= segment.end
            else _SegmentCount(segment.start)
            for segment in contents.segments
        ]

    def _countable_end(self, contents: LogContents, segment: LogSegment) -> int:
        """Return the end of the positions in a segment of which it is known whether a line begins there."""
        return min(segment.end, contents.run_at(segment.start).end - max(len(self._prefix), 1) + 1)

    def _count(self, contents: LogContents, counts: _SegmentCount, stop: int) -> int:
        """Count the lines that begin before `stop`; return the bytes that were read."""
        began = counts.counted
        while counts.counted < stop:
            block = (counts.counted - counts.start) // BLOCK_BYTES
            last = min(stop, counts.start + (block + _READ_BLOCKS) * BLOCK_BYTES)
            text = _Text(contents, self._prefix, counts.counted, last)
            at = counts.counted
            while at < last:
                end = min(last, counts.start + (block + 1) * BLOCK_BYTES)
                counts.lines += text.count(at, end)
                if end == counts.start + (block + 1) * BLOCK_BYTES:
                    counts.marks.append(counts.lines)
                    block += 1
                at = end
            counts.counted = last
        return counts.counted - began


class LineIndexes:
    """The indexes of the streams that were read last. May be shared by threads; its memory is bounded."""

    def __init__(self, max_memory_bytes: int = _MAX_MEMORY_BYTES) -> None:
        self._max_memory_bytes = max_memory_bytes
        self._indexes: OrderedDict[tuple[Path, bytes], LineIndex] = OrderedDict()
        self._lock = threading.Lock()

    def index(self, folder: Path, prefix: bytes = b"") -> LineIndex:
        """Return the index of the stream in a folder."""
        with self._lock:
            found = self._indexes.setdefault((folder, prefix), LineIndex(folder, prefix))
            self._indexes.move_to_end((folder, prefix))
            memory = sum(each.memory_bytes for each in self._indexes.values())
            while len(self._indexes) > 1 and (memory > self._max_memory_bytes or len(self._indexes) > _MAX_INDEXES):
                memory -= self._indexes.popitem(last=False)[1].memory_bytes
            return found

    def __len__(self) -> int:
        return len(self._indexes)


class _Text:
    """The bytes that decide which lines begin between two offsets, which have no gap between them."""

    def __init__(self, contents: LogContents, prefix: bytes, first: int, stop: int) -> None:
        self._needle = b"\n" + prefix
        self._prefix = prefix
        self._run_start = contents.run_at(first).start
        # The byte before a line is the newline that ends the one before it.
        self._at = max(first - 1, self._run_start)
        self._data = contents.read(self._at, stop - 1 + len(prefix) - self._at) if stop > first else b""
        if first == self._run_start and len(self._data) < max(1, len(prefix)):
            self._data = contents.read(self._at, max(1, len(prefix)))

    def count(self, first: int, stop: int) -> int:
        found = self._data.count(self._needle, *self._bounds(first, stop))
        return found + self._begins_run(first, stop)

    def starts(self, first: int, stop: int) -> Iterator[int]:
        if self._begins_run(first, stop):
            yield first
        low, high = self._bounds(first, stop)
        while (low := self._data.find(self._needle, low, high)) >= 0:
            low += 1
            yield self._at + low

    def _bounds(self, first: int, stop: int) -> tuple[int, int]:
        return max(0, first - 1 - self._at), max(0, stop - 1 + len(self._prefix) - self._at)

    def _begins_run(self, first: int, stop: int) -> bool:
        return first == self._run_start < stop and self._data.startswith(self._prefix)


def count_starts(contents: LogContents, prefix: bytes, first: int, stop: int) -> int:
    """Return how many lines begin from `first` on and before `stop`."""
    return _Text(contents, prefix, first, stop).count(first, stop)


def line_starts(contents: LogContents, prefix: bytes, first: int, stop: int) -> Iterator[int]:
    """Iterate over the offsets from `first` on and before `stop` at which lines begin."""
    return _Text(contents, prefix, first, stop).starts(first, stop)

"""The lines of several streams in the order of their times, also by their place in that order."""

import heapq
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from trainyard.formats.logs.lines.reader import MAX_LINE_BYTES, LineReader, LogLine


class MergedLine(NamedTuple):
    """A line, and the number of its stream among those that are merged."""

    stream: int
    line: LogLine


@dataclass(frozen=True)
class MergedLines:
    """The lines of streams in the order (latest time so far, stream, number). For one thread.

    So the lines of a stream stay in their order, even if its clock jumped. The place of a line in the order counts from
    0. It is found by a search over the times, so nothing is kept for it.
    """

    streams: Sequence[LineReader]

    @property
    def total(self) -> int:
        """The number of lines whose places are known: all, once the lines of every stream are counted."""
        if len(self.streams) == 1:
            return self.streams[0].total
        known_until = min((_frontier_ms(each) for each in self.streams if not each.is_complete), default=None)
        if known_until is None:
            return sum(each.total for each in self.streams)
        return self.count_before_time(known_until)

    @property
    def is_complete(self) -> bool:
        return all(each.is_complete for each in self.streams)

    def forward(self, place: int, *, max_line_bytes: int = MAX_LINE_BYTES) -> Iterator[MergedLine]:
        """Iterate over the lines from a place on."""
        flows = (
            _flow(stream, self.streams[stream].forward(number, max_line_bytes=max_line_bytes))
            for stream, number in enumerate(self.numbers_at(place))
        )
        return heapq.merge(*flows, key=_order)

    def numbers_at(self, place: int) -> list[int]:
        """Return how many lines of each stream come before a place."""
        if len(self.streams) == 1:
            return [min(place, self.streams[0].total)]
        if place >= sum(each.total for each in self.streams):
            return [each.total for each in self.streams]
        # The last moment before which there are at most so many lines.
        low, high = self._times()
        after = bisect_left(range(low, high + 1), place + 1, key=self.count_before_time)
        ms = low + after - 1
        numbers = [each.count_before_time(ms) for each in self.streams]
        left = place - sum(numbers)
        for stream, reader in enumerate(self.streams):
            taken = min(left, reader.count_before_time(ms + 1) - numbers[stream])
            numbers[stream] += taken
            left -= taken
        return numbers

    def place_of(self, stream: int, number: int) -> int:
        """Return the place of a line of a stream."""
        if len(self.streams) == 1:
            return number
        peak_ms = self.streams[stream].peak_of(number)
        return number + sum(
            each.count_before_time(peak_ms + 1 if other < stream else peak_ms)
            for other, each in enumerate(self.streams)
            if other != stream
        )

    def count_before_time(self, ms: int) -> int:
        """Return how many lines come before the first ones at or after a time."""
        return sum(each.count_before_time(ms) for each in self.streams)

    def _times(self) -> tuple[int, int]:
        """Return a time before which there is no line, and one before which all are."""
        contents = [each.contents for each in self.streams if each.contents.segments]
        first = min(each.segments[0].entry(0).peak_ms for each in contents)
        last = max(each.segments[-1].entry(each.segments[-1].count - 1).peak_ms for each in contents)
        return first, last + 1


def _frontier_ms(reader: LineReader) -> int:
    """Return the time up to which all lines of a stream are counted."""
    return reader.peak_of(reader.total - 1) if reader.total else -(2**63)


def _flow(stream: int, lines: Iterator[LogLine]) -> Iterator[MergedLine]:
    for line in lines:
        yield MergedLine(stream, line)


def _order(merged: MergedLine) -> tuple[int, int]:
    return merged.line.peak_ms, merged.stream

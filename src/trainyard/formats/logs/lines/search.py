"""Searches the lines of a stream, a bounded part of it at a time."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from trainyard.formats.logs.lines.contents import LogContents
from trainyard.formats.logs.lines.index import IndexedLines
from trainyard.formats.logs.lines.matchers import LineMatcher

_CHUNK_BYTES = 256 * 1024
# Pieces of a line that is longer than a chunk overlap by this, so that a text at the cut is found.
_OVERLAP_BYTES = 1024


class SearchPosition(NamedTuple):
    """Where a search continues: forward from an offset, in the line that begins at `line`; backward before it."""

    at: int
    line: int


@dataclass(frozen=True, slots=True)
class SearchPart:
    """The offsets of the lines that match, in the order of the search, and where to continue; None at the end."""

    found: list[int]
    following: SearchPosition | None
    searched_bytes: int


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """When a part of a search is complete: after so many matches or bytes, or when its time is over."""

    matches: int
    size_bytes: int
    is_over: Callable[[], bool]


class StreamSearch:
    """A search in the lines of a stream, or in those with a prefix, at one moment."""

    def __init__(self, lines: IndexedLines, matcher: LineMatcher, *, prefix: bytes = b"") -> None:
        self._lines, self._matcher, self._prefix = lines, matcher, prefix
        self._contents: LogContents = lines.contents
        # Of a line that is not counted yet, the end is not known.
        self._end = self._contents.end if lines.is_complete else lines.start_of(lines.total) if lines.end else 0

    def forward(self, position: SearchPosition, limits: SearchLimits) -> SearchPart:
        """Search from a position on."""
        at, line = position
        found, searched = list[int](), 0
        while at < self._end:
            if searched and (searched >= limits.size_bytes or limits.is_over()):
                return SearchPart(found, SearchPosition(at, line), searched)
            chunk = self._contents.read(at, min(_CHUNK_BYTES, self._end - at))
            if not chunk:
                at = line = self._next_run(at)
                continue
            searched += len(chunk)
            newline = chunk.rfind(b"\n")
            lines = chunk if newline < 0 else chunk[:newline]
            matches = self._matches(lines, at, line)
            room = limits.matches - len(found)
            found += matches[:room]
            if len(matches) > room:
                return SearchPart(found, SearchPosition(matches[room], matches[room]), searched)
            if newline >= 0:
                at = line = at + newline + 1
            elif matches:
                at = line = self._end_of_line(line)
            elif at + len(chunk) < min(self._end, self._contents.run_at(at).end):
                at += len(chunk) - _OVERLAP_BYTES
            else:
                at = line = at + len(chunk)
        return SearchPart(found, None if self._lines.is_complete else SearchPosition(self._end, self._end), searched)

    def backward(self, position: SearchPosition, limits: SearchLimits) -> SearchPart:
        """Search from the last line that begins before a position."""
        at = min(position.at, self._end)
        found, searched = list[int](), 0
        while at > self._contents.start:
            if searched and (searched >= limits.size_bytes or limits.is_over()):
                return SearchPart(found, SearchPosition(at, at), searched)
            run = self._contents.run_at(at - 1)
            at = min(at, run.end)
            first = max(run.start, at - _CHUNK_BYTES)
            chunk = self._contents.read(first, at - first)
            searched += len(chunk)
            begin = 0 if first == run.start else chunk.find(b"\n", 0, len(chunk) - 1) + 1
            is_piece = not begin and first > run.start
            line = self._start_of_line(first) if is_piece else first + begin
            matches = self._matches(chunk[begin:].removesuffix(b"\n"), first + begin, line)
            for match in reversed(matches):
                if len(found) == limits.matches:
                    end = self._end_of_line(match)
                    return SearchPart(found, SearchPosition(end, end), searched)
                found.append(match)
            at = first + _OVERLAP_BYTES if is_piece and not matches else line
        return SearchPart(found, None, searched)

    def _matches(self, lines: bytes, at: int, line: int) -> list[int]:
        """Return where the lines that match begin. The first one begins at `line`; from `at` on it is in `lines`."""
        offsets, place, number = list[int](), 0, 0
        for wanted in self._matcher.matching_lines(lines):
            while number < wanted:
                place = lines.find(b"\n", place) + 1
                number += 1
            offset = at + place if number else line
            if self._contents.read(offset, len(self._prefix)) == self._prefix:
                offsets.append(offset)
        return offsets

    def _next_run(self, at: int) -> int:
        return next((run.start for run in self._contents.runs if run.start > at), self._end)

    def _start_of_line(self, at: int) -> int:
        return self._lines.start_of(self._lines.count_before(at + 1) - 1)

    def _end_of_line(self, line: int) -> int:
        """Return where the next line begins."""
        number = self._lines.count_before(line + 1)
        return self._lines.start_of(number) if number < self._lines.total else self._end

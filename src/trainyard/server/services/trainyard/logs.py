"""ReadLog, SearchLog and DownloadLog: any part of the log of a job, however long it is, also while it grows."""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainyard.formats.logs.lines import LineReader, LogLine, MergedLines
from trainyard.formats.logs.lines.contents import LogContents
from trainyard.formats.logs.lines.index import MAX_COUNTED_BYTES
from trainyard.formats.logs.lines.matchers import ErrorMatcher, LineMatcher, RegexMatcher, TextMatcher
from trainyard.formats.logs.lines.reader import MAX_LINE_BYTES
from trainyard.formats.logs.lines.search import SearchLimits, SearchPart, SearchPosition, StreamSearch
from trainyard.foundation.clock import from_micros, to_micros
from trainyard.foundation.errors import InvalidRequest, NotFound
from trainyard.foundation.jobs.attempts import Attempt
from trainyard.foundation.jobs.instance_job import InstanceJob
from trainyard.link.folders import AttemptRef, InstanceRef
from trainyard.server.jobs.instance_job_kinds import instance_job_of
from trainyard.server.records.contract import Resource
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.trainyard.job_lookup import load_named_job

# What one call returns, searches and takes.
MAX_ANSWER_BYTES = 1024 * 1024
MAX_SEARCHED_BYTES = 32 * 1024 * 1024
MAX_SEARCH_S = 0.5

_LINES, _MATCHES = 1000, 100
_PIECE_BYTES = 256 * 1024
# The first lines tell whether lines have ranks, and the last ones those of ranks that began late.
_HEAD_BYTES, _TAIL_BYTES = 256 * 1024, 64 * 1024
_RANK = re.compile(rb"^\[1,mpirank:([0-9]{1,7}),", re.MULTILINE)


def read_log(call: Call, shape: Shape) -> Shape:
    """Return lines from any line, byte or time on."""
    log = _Log.select(call, shape)
    merged = log.merged
    matcher = _matcher(shape["Highlight"]) if "Highlight" in shape else None
    total = merged.total
    first = _first_place(log, shape, total)
    lines, size = list[Shape](), 0
    wanted = max(0, min(shape.get("LineCount", _LINES), total - first))
    flow = merged.forward(first, max_line_bytes=shape.get("MaxLineBytes", MAX_LINE_BYTES)) if wanted else iter(())
    for place, (stream, line) in enumerate(flow, first):
        size += len(line.head) + len(line.tail)
        if lines and size > MAX_ANSWER_BYTES:
            break
        lines.append(_line(log.names[stream], line, place, matcher))
        if len(lines) == wanted:
            break
    return {
        "Attempt": log.attempt.number if log.attempt else 0,
        "Instances": [each.name for each in log.attempt.instances] if log.attempt else [],
        "Ranks": _ranks(log.streams),
        "Lines": lines,
        "FirstLine": first + 1,
        "TotalLines": total,
        "TotalBytes": sum(each.contents.size_bytes for each in log.streams),
        "CountedBytes": sum(each.contents.size_before(each.end) for each in log.streams),
        "Growing": log.is_growing,
        "Gaps": _gaps(log),
    }


def search_log(call: Call, shape: Shape) -> Shape:
    """Search a bounded part of a log, in either direction."""
    matcher = _matcher(shape["Pattern"])
    log = _Log.select(call, shape)
    is_backward = shape.get("Backward", False)
    until = time.monotonic() + MAX_SEARCH_S
    limits = SearchLimits(
        shape.get("MaxMatches", _MATCHES) if not shape.get("CountOnly") else MAX_SEARCHED_BYTES,
        MAX_SEARCHED_BYTES // max(1, len(log.streams)),
        lambda: time.monotonic() > until,
    )
    search = _Search(log, matcher, limits, is_backward=is_backward)
    positions = search.parse_token(shape["NextToken"]) if "NextToken" in shape else search.begin(shape.get("FromLine"))
    parts = [search.run(stream, position) for stream, position in enumerate(positions)]
    answer = {
        "Attempt": log.attempt.number if log.attempt else 0,
        "SearchedBytes": sum(each.searched_bytes for each in parts),
        "TotalBytes": sum(each.contents.size_bytes for each in log.streams),
    }
    if shape.get("CountOnly"):
        token = _token([each.following for each in parts])
        return answer | {"Matches": [], "MatchCount": sum(len(each.found) for each in parts), "NextToken": token}
    matches, following = search.merge(parts)
    lines = [
        _line(log.names[each.stream], each.line, log.merged.place_of(each.stream, each.place), matcher)
        for each in matches
    ]
    return answer | {"Matches": lines, "MatchCount": len(lines), "NextToken": _token(following)}


async def download_log(call: Call, shape: Shape) -> Shape:
    """Return the bytes of the log of one instance, as they are at the moment of the call."""
    log = await asyncio.to_thread(_Log.select, call, shape)
    contents = log.streams[0].contents
    first = shape.get("FromByte", 0)
    end = min(contents.end, first + shape["ByteCount"]) if "ByteCount" in shape else contents.end
    return {"ContentType": "text/plain; charset=utf-8", "Log": _pieces(contents, first, end)}


OPERATIONS: Operations = {"ReadLog": read_log, "SearchLog": search_log, "DownloadLog": download_log}


@dataclass(frozen=True)
class _Log:
    """The lines that a request selects: of one instance or of all, in one attempt."""

    attempt: Attempt | None
    names: Sequence[str]
    streams: Sequence[LineReader]
    prefix: bytes
    is_growing: bool

    @classmethod
    def select(cls, call: Call, shape: Shape) -> "_Log":
        resource = load_named_job(call, shape)
        job = instance_job_of(resource)
        prefix = f"[1,mpirank:{shape['Rank']},".encode() if "Rank" in shape else b""
        attempt = _attempt(job, shape)
        names = _names(attempt, shape) if attempt else ()
        budget = MAX_COUNTED_BYTES // max(1, len(names))
        is_growing = not job.is_final and (attempt is None or attempt == job.attempts[-1])
        streams = [_reader(call, resource, attempt, name, prefix, budget) for name in names] if attempt else []
        return cls(attempt, names, streams, prefix, is_growing)

    @property
    def merged(self) -> MergedLines:
        return MergedLines(self.streams)


@dataclass(frozen=True, slots=True)
class _Match:
    """A line that matches. `place` counts the selected lines of its stream."""

    stream: int
    place: int
    line: LogLine

    @property
    def key(self) -> tuple[int, int, int]:
        return self.line.peak_ms, self.stream, self.line.offset


@dataclass(frozen=True)
class _Search:
    """One part of a search over several streams, merged by time."""

    log: _Log
    matcher: LineMatcher
    limits: SearchLimits
    is_backward: bool

    def begin(self, line: int | None) -> list[SearchPosition | None]:
        """Return where the search of each stream begins."""
        merged = self.log.merged
        total = merged.total
        if line is None:
            place = total if self.is_backward else 0
        else:
            place = _place(line, total) + (1 if self.is_backward else 0)
        positions = list[SearchPosition | None]()
        for stream, number in zip(self.log.streams, merged.numbers_at(place), strict=True):
            at = stream.chosen.start_of(number) if number < stream.total else stream.contents.end
            positions.append(SearchPosition(at, at))
        return positions

    def parse_token(self, token: str) -> list[SearchPosition | None]:
        positions = [_parse_position(each) for each in token.split(",")]
        if len(positions) != len(self.log.streams):
            raise InvalidRequest("The NextToken belongs to another search; search without it.")
        return positions

    def run(self, stream: int, position: SearchPosition | None) -> SearchPart:
        if position is None:
            return SearchPart([], None, 0)
        search = StreamSearch(self.log.streams[stream].lines, self.matcher, prefix=self.log.prefix)
        return search.backward(position, self.limits) if self.is_backward else search.forward(position, self.limits)

    def merge(self, parts: Sequence[SearchPart]) -> tuple[list[_Match], list[SearchPosition | None]]:
        """Return the matches before the first line that no stream has searched yet, and where each continues."""
        matches = [
            self._match(stream, offset) for stream, part in enumerate(parts) for offset in part.found
        ]  # fmt: skip
        matches.sort(key=lambda match: match.key, reverse=self.is_backward)
        frontiers = [self._frontier(stream, part.following) for stream, part in enumerate(parts) if part.following]
        kept = matches
        if frontiers and len(parts) > 1:
            limit = max(frontiers) if self.is_backward else min(frontiers)
            kept = [each for each in matches if (each.key > limit if self.is_backward else each.key < limit)]
        kept = kept[: self.limits.matches]
        following = [part.following for part in parts]
        for match in reversed(matches[len(kept) :]):
            line = match.line
            at = min(line.offset + line.size + 1, self._contents(match.stream).end) if self.is_backward else line.offset
            following[match.stream] = SearchPosition(at, at)
        return kept, following

    def _match(self, stream: int, offset: int) -> _Match:
        reader = self.log.streams[stream]
        return _Match(stream, reader.chosen.count_before(offset), reader.line_at(offset))

    def _frontier(self, stream: int, position: SearchPosition) -> tuple[int, int, int]:
        """Return the key of the next line to search."""
        contents = self._contents(stream)
        at = position.at - 1 if self.is_backward else position.line
        run = contents.run_at(at)
        inside = max(run.start, min(at, run.end - 1))
        return self.log.streams[stream].peak_at(inside), stream, at

    def _contents(self, stream: int) -> LogContents:
        return self.log.streams[stream].contents


def _attempt(job: InstanceJob, shape: Shape) -> Attempt | None:
    if "Attempt" not in shape:
        return job.attempts[-1] if job.attempts else None
    for attempt in job.attempts:
        if attempt.number == shape["Attempt"]:
            return attempt
    raise NotFound("attempt", f"{shape['Attempt']} of {job.name}")


def _names(attempt: Attempt, shape: Shape) -> Sequence[str]:
    names = [each.name for each in attempt.instances]
    if "Instance" not in shape:
        return names
    if shape["Instance"] not in names:
        raise NotFound("instance", shape["Instance"])
    return [shape["Instance"]]


def _reader(
    call: Call, resource: Resource, attempt: Attempt, name: str, prefix: bytes, budget: int
) -> LineReader:  # fmt: skip
    folder = InstanceRef(AttemptRef(resource.id, attempt.number), name).folder(call.yard.compute.jobs).logs
    indexes = call.yard.line_indexes
    # The chosen lines first: each of them is counted among all lines, too.
    chosen = indexes.index(folder, prefix).advance(budget) if prefix else None
    return LineReader(indexes.index(folder).advance(budget), chosen)


def _first_place(log: _Log, shape: Shape, total: int) -> int:
    given = [member for member in ("FromLine", "FromByte", "FromTime") if member in shape]
    if len(given) > 1:
        raise InvalidRequest(f"Give only one of {' and '.join(given)}.")
    if "FromByte" in shape:
        if "Instance" not in shape:
            raise InvalidRequest("FromByte needs an Instance, because each instance has its own log.")
        return max(0, log.streams[0].chosen.count_before(shape["FromByte"] + 1) - 1) if log.streams else 0
    if "FromTime" in shape:
        return log.merged.count_before_time(to_micros(shape["FromTime"]) // 1000)
    return _place(shape.get("FromLine", 1), total)


def _place(line: int, total: int) -> int:
    """Return the place of a line, from 0, by its number from 1 or, if negative, from the end."""
    if line == 0:
        raise InvalidRequest("Lines are counted from 1, or from -1 backward; FromLine is 0.")
    return min(line - 1, total) if line > 0 else max(0, total + line)


def _matcher(pattern: Mapping[str, Any]) -> LineMatcher:
    given = [member for member in ("Text", "Regex", "Errors") if pattern.get(member)]
    if len(given) != 1:
        raise InvalidRequest("Give a pattern one of Text, Regex and Errors.")
    if "Errors" in given:
        return ErrorMatcher()
    matcher = TextMatcher if "Text" in given else RegexMatcher
    return matcher(pattern[given[0]], matches_case=pattern.get("MatchCase", False))


def _line(instance: str, line: LogLine, place: int, matcher: LineMatcher | None) -> Shape:
    text = line.text
    return {
        "Place": place + 1,
        "Instance": instance,
        "Line": line.number + 1,
        "Byte": line.offset,
        "Size": line.size,
        "Time": from_micros(line.ms * 1000),
        "Text": text,
        "End": line.ending or None,
        "Open": line.is_open,
        "Spans": [place for span in matcher.spans(text) for place in span] if matcher else None,
    }


def _ranks(streams: Sequence[LineReader]) -> list[int]:
    found = set[int]()
    for stream in streams:
        contents = stream.contents
        head = contents.read(contents.start, _HEAD_BYTES)
        if b"[1,mpirank:" in head:
            tail = contents.read(max(contents.start, contents.end - _TAIL_BYTES), _TAIL_BYTES)
            found.update(int(rank) for part in (head, tail) for rank in _RANK.findall(part))
    return sorted(found)


def _gaps(log: _Log) -> list[Shape]:
    return [
        {"Instance": name, "Line": stream.lines.count_before(gap.end) + 1, "Bytes": gap.end - gap.start}
        for name, stream in zip(log.names, log.streams, strict=True)
        for gap in stream.contents.gaps
    ]


def _token(positions: Sequence[SearchPosition | None]) -> str | None:
    if not any(positions):
        return None
    return ",".join("-" if each is None else f"{each.at}.{each.line}" for each in positions)


def _parse_position(text: str) -> SearchPosition | None:
    if text == "-":
        return None
    found = re.fullmatch(r"([0-9]{1,18})\.([0-9]{1,18})", text)
    if found is None:
        raise InvalidRequest("The NextToken is not one of SearchLog's; search without it.")
    return SearchPosition(int(found[1]), int(found[2]))


async def _pieces(contents: LogContents, first: int, end: int) -> AsyncGenerator[bytes, None]:
    for run in contents.runs:
        at, stop = max(first, run.start), min(end, run.end)
        while at < stop:
            piece = await asyncio.to_thread(contents.read, at, min(_PIECE_BYTES, stop - at))
            yield piece
            at += len(piece)

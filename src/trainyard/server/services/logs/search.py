"""FilterLogEvents: the events of many streams, in order of time.

Streams are read by name in batches of a hundred, and the events of a batch are merged by time; so up to a hundred
streams give one sequence, as on AWS. Between streams, events are ordered by `peak_ms`: the time of an event unless it
arrived late, never decreasing along a stream. A position in the sequence is the peak, the stream and the offset of one
event, and a search continues exactly there, whatever was added in the meantime.
"""

import base64
import heapq
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from datetime import timedelta

from trainyard.formats.logs import LogEvent, LogReader, TimeRange
from trainyard.foundation.clock import from_micros, to_micros
from trainyard.foundation.errors import InvalidRequest
from trainyard.server.log_streams import STREAM, folder_of
from trainyard.server.records.contract import Query, Resource, SortBy
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.logs.events import MAX_BATCH_BYTES, MAX_EVENTS, visible_times
from trainyard.server.services.logs.filter_pattern import FilterPattern, parse_pattern
from trainyard.server.services.logs.groups import group_of
from trainyard.server.services.logs.streams import load_stream, stream_name

STREAMS_PER_BATCH = 100

# Batches of streams read for one answer.
MAX_BATCHES = 10

# Log data read for one answer; takes about 0.5 s.
MAX_SCANNED_BYTES = 16 * 1024 * 1024

# Added to the length of each event, so that empty events count too.
_EVENT_COST_BYTES = 64

StreamEvent = tuple[Resource, LogEvent]


def filter_log_events(call: Call, shape: Shape) -> Shape:
    group = group_of(call, shape)
    if "logStreamNames" in shape and "logStreamNamePrefix" in shape:
        raise InvalidRequest("Give either logStreamNames or logStreamNamePrefix, not both.")
    # Unlike in GetLogEvents, the end time is inclusive on AWS.
    end_ms = shape["endTime"] + 1 if "endTime" in shape else None
    times = visible_times(call, group, start_ms=shape.get("startTime"), end_ms=end_ms)
    results = _Results(parse_pattern(shape.get("filterPattern", "")), shape.get("limit", MAX_EVENTS))
    position = _start_position(call, shape)
    for _ in range(MAX_BATCHES):
        streams, position = _streams(call, group, shape, position)
        last = results.collect(_merge_events(call, streams, position, times))
        if results.is_full:
            position = position.moved_to(last)
            break
        if position.following is None:
            return _answer(results, position)
        position = _FilterPosition(position.began, position.is_descending, after=position.following)
    return _answer(results, position) | {"nextToken": _token(position)}


OPERATIONS: Operations = {"FilterLogEvents": filter_log_events}


@dataclass(frozen=True, slots=True)
class _FilterPosition:
    """Where a search continues: in which batch of streams, and after which of their events."""

    # When the search began; streams created later are not searched.
    began: int
    is_descending: bool
    # The records' token of this batch.
    after: str = ""
    # The last stream of this batch, once it was read.
    until: str | None = None
    # The records' token of the next batch.
    following: str | None = None
    peak_ms: int | None = None
    stream: str = ""
    offset: int = 0

    def moved_to(self, found: StreamEvent | None) -> "_FilterPosition":
        if found is None:
            return self
        stream, event = found
        return replace(self, peak_ms=event.peak_ms, stream=stream.key.name, offset=event.offset)

    def bounds_for(self, stream: Resource) -> Mapping[str, int]:
        """Return the rest of a stream in the order (peak, stream, offset), as arguments of `LogReader.scan`."""
        if self.peak_ms is None:
            return {}
        if stream.key.name == self.stream:
            return {"offset": self.offset if self.is_descending else self.offset + 1}
        return {"peak_ms": self.peak_ms + 1 if stream.key.name < self.stream else self.peak_ms}


@dataclass(slots=True)
class _Results:
    """Collects matching events until one answer is full."""

    pattern: FilterPattern
    limit: int
    found: list[StreamEvent] = field(default_factory=list)
    is_full: bool = False
    size: int = 0
    scanned: int = 0

    def collect(self, events: Iterable[StreamEvent]) -> StreamEvent | None:
        """Read events until they end or the answer is full; return the last event that was handled."""
        last = None
        for stream, event in events:
            self.scanned += len(event.message) + _EVENT_COST_BYTES
            if self.pattern.matches(event.message):
                self.size += len(event.message)
                if self.found and (len(self.found) >= self.limit or self.size > MAX_BATCH_BYTES):
                    self.is_full = True
                    return last
                self.found.append((stream, event))
            last = stream, event
            if self.scanned >= MAX_SCANNED_BYTES:
                self.is_full = True
                return last
        return last


def _start_position(call: Call, shape: Shape) -> _FilterPosition:
    if "nextToken" in shape:
        return _parse_token(shape["nextToken"])
    # The records exclude what was created at exactly this time.
    began = to_micros(call.now + timedelta(microseconds=1))
    return _FilterPosition(began, is_descending=not shape.get("startFromHead", True))


def _streams(
    call: Call, group: Resource, shape: Shape, position: _FilterPosition
) -> tuple[Sequence[Resource], _FilterPosition]:
    """Return the batch of streams at a position: the same ones for every request, without those deleted since."""
    if "logStreamNames" in shape:
        return [load_stream(call, group, name) for name in sorted(set(shape["logStreamNames"]))], position
    query = Query(
        STREAM,
        parent=group.id,
        name_prefix=f"{group.key.name}:{shape.get('logStreamNamePrefix', '')}",
        created_before=from_micros(position.began),
        sort_by=SortBy.NAME,
        limit=STREAMS_PER_BATCH,
        after=position.after,
    )
    page = call.yard.records.find(query)
    if position.until is not None:
        return [stream for stream in page.resources if stream.key.name <= position.until], position
    until = page.resources[-1].key.name if page.resources else ""
    return page.resources, replace(position, until=until, following=page.next_after)


def _merge_events(
    call: Call, streams: Sequence[Resource], position: _FilterPosition, times: TimeRange
) -> Iterator[StreamEvent]:
    sequences = [_scan(call, stream, position, times) for stream in streams]
    return heapq.merge(*sequences, key=_sort_key, reverse=position.is_descending)


def _scan(call: Call, stream: Resource, position: _FilterPosition, times: TimeRange) -> Iterator[StreamEvent]:
    reader = LogReader(folder_of(call.yard.logs, stream))
    for event in reader.scan(times, descending=position.is_descending, **position.bounds_for(stream)):
        yield stream, event


def _sort_key(found: StreamEvent) -> tuple[int, str, int]:
    stream, event = found
    return event.peak_ms, stream.key.name, event.offset


def _answer(results: _Results, position: _FilterPosition) -> Shape:
    # Late events are stored where they arrived; within an answer they are sorted by their time.
    found = sorted(results.found, key=lambda found: found[1].ms, reverse=position.is_descending)
    return {"events": [_event_shape(stream, event) for stream, event in found], "searchedLogStreams": []}


def _event_shape(stream: Resource, event: LogEvent) -> Shape:
    return {
        "logStreamName": stream_name(stream),
        "timestamp": event.ms,
        "message": event.text,
        "ingestionTime": event.ingested_ms,
        "eventId": f"{stream.id}-{event.offset}",
    }


def _token(position: _FilterPosition) -> str:
    return base64.urlsafe_b64encode(json.dumps(astuple(position)).encode()).decode()


def _parse_token(token: str) -> _FilterPosition:
    try:
        values = json.loads(base64.b64decode(token, altchars=b"-_", validate=True))
        match values:
            case [int(), bool(), str(), str() | None, str() | None, int() | None, str(), int()]:
                from_micros(values[0])
                return _FilterPosition(*values)
        raise ValueError("not a token of this operation")
    except (ValueError, OverflowError, RecursionError) as error:
        raise InvalidRequest("The specified nextToken is invalid.") from error

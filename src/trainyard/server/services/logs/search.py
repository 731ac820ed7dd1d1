"""FilterLogEvents: the events of many streams, in the order of time.

Streams are taken by name, a hundred at a time, and the events of a hundred are interleaved by time; so up to a hundred
streams give one sequence, as in AWS. The order between streams is that of `peak_ms`: the time of an event unless it
came late, and never falling along a stream. So a place in the sequence is the peak, the stream and the offset of one
event, and a search goes on there exactly, whatever was added meanwhile.
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
from trainyard.server.records.contract import Query, Resource, SortBy
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.logs.events import MAX_BATCH_BYTES, MAX_EVENTS, shown_times
from trainyard.server.services.logs.groups import group_of
from trainyard.server.services.logs.pattern import FilterPattern, parse_pattern
from trainyard.server.services.logs.storage import STREAM, folder_of
from trainyard.server.services.logs.streams import load_stream, stream_name

STREAMS_AT_ONCE = 100
MAX_BATCHES = 10  # hundreds of streams looked at for one answer
MAX_SCANNED_BYTES = 16 * 1024 * 1024  # for one answer; about half a second

_EVENT_COST_BYTES = 64  # added to its length, so that empty events count too

Found = tuple[Resource, LogEvent]


def filter_log_events(call: Call, shape: Shape) -> Shape:
    group = group_of(call, shape)
    if "logStreamNames" in shape and "logStreamNamePrefix" in shape:
        raise InvalidRequest("Give either logStreamNames or logStreamNamePrefix, not both.")
    # Here, unlike in GetLogEvents, AWS includes the end.
    end_ms = shape["endTime"] + 1 if "endTime" in shape else None
    times = shown_times(call, group, start_ms=shape.get("startTime"), end_ms=end_ms)
    results = _Results(parse_pattern(shape.get("filterPattern", "")), shape.get("limit", MAX_EVENTS))
    place = _first_place(call, shape)
    for _ in range(MAX_BATCHES):
        streams, place = _streams(call, group, shape, place)
        last = results.take(_interleaved(call, streams, place, times))
        if results.is_full:
            place = place.behind(last)
            break
        if place.following is None:
            return _answer(results, place)
        place = _Place(place.began, place.is_descending, after=place.following)
    return _answer(results, place) | {"nextToken": _token(place)}


OPERATIONS: Operations = {"FilterLogEvents": filter_log_events}


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a search goes on: in which hundred of streams, and behind which of their events."""

    began: int  # when the search began; streams made later are not searched
    is_descending: bool
    after: str = ""  # the records' token for this hundred
    until: str | None = None  # the last of this hundred, once it was looked at
    following: str | None = None  # the records' token for the next hundred
    peak_ms: int | None = None
    stream: str = ""
    offset: int = 0

    def behind(self, found: Found | None) -> "_Place":
        if found is None:
            return self
        stream, event = found
        return replace(self, peak_ms=event.peak_ms, stream=stream.key.name, offset=event.offset)

    def bounds_for(self, stream: Resource) -> Mapping[str, int]:
        """What of a stream is still to come in the order (peak, stream, offset), as `LogReader.scan` takes it."""
        if self.peak_ms is None:
            return {}
        if stream.key.name == self.stream:
            return {"offset": self.offset if self.is_descending else self.offset + 1}
        return {"peak_ms": self.peak_ms + 1 if stream.key.name < self.stream else self.peak_ms}


@dataclass(slots=True)
class _Results:
    """The events that match, until there is enough for one answer."""

    pattern: FilterPattern
    limit: int
    found: list[Found] = field(default_factory=list)
    is_full: bool = False
    size: int = 0
    scanned: int = 0

    def take(self, flow: Iterable[Found]) -> Found | None:
        """Go through a flow until it ends or this is full; the last event that is settled."""
        last = None
        for stream, event in flow:
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


def _first_place(call: Call, shape: Shape) -> _Place:
    if "nextToken" in shape:
        return _parse_token(shape["nextToken"])
    began = to_micros(call.now + timedelta(microseconds=1))  # the records leave out what was made at that moment
    return _Place(began, is_descending=not shape.get("startFromHead", True))


def _streams(call: Call, group: Resource, shape: Shape, place: _Place) -> tuple[Sequence[Resource], _Place]:
    """The hundred streams of a place, the same ones at every look, less those deleted meanwhile."""
    if "logStreamNames" in shape:
        return [load_stream(call, group, name) for name in sorted(set(shape["logStreamNames"]))], place
    query = Query(
        STREAM,
        parent=group.id,
        name_prefix=f"{group.key.name}:{shape.get('logStreamNamePrefix', '')}",
        created_before=from_micros(place.began),
        sort_by=SortBy.NAME,
        limit=STREAMS_AT_ONCE,
        after=place.after,
    )
    page = call.yard.records.find(query)
    if place.until is not None:
        return [stream for stream in page.resources if stream.key.name <= place.until], place
    until = page.resources[-1].key.name if page.resources else ""
    return page.resources, replace(place, until=until, following=page.next_after)


def _interleaved(call: Call, streams: Sequence[Resource], place: _Place, times: TimeRange) -> Iterator[Found]:
    flows = [_flow(call, stream, place, times) for stream in streams]
    return heapq.merge(*flows, key=_order, reverse=place.is_descending)


def _flow(call: Call, stream: Resource, place: _Place, times: TimeRange) -> Iterator[Found]:
    reader = LogReader(folder_of(call.yard.logs, stream))
    for event in reader.scan(times, descending=place.is_descending, **place.bounds_for(stream)):
        yield stream, event


def _order(found: Found) -> tuple[int, str, int]:
    stream, event = found
    return event.peak_ms, stream.key.name, event.offset


def _answer(results: _Results, place: _Place) -> Shape:
    # Late events stand where they came; within an answer they can take their place.
    found = sorted(results.found, key=lambda found: found[1].ms, reverse=place.is_descending)
    return {"events": [_event_shape(stream, event) for stream, event in found], "searchedLogStreams": []}


def _event_shape(stream: Resource, event: LogEvent) -> Shape:
    return {
        "logStreamName": stream_name(stream),
        "timestamp": event.ms,
        "message": event.text,
        "ingestionTime": event.ingested_ms,
        "eventId": f"{stream.id}-{event.offset}",
    }


def _token(place: _Place) -> str:
    return base64.urlsafe_b64encode(json.dumps(astuple(place)).encode()).decode()


def _parse_token(token: str) -> _Place:
    try:
        values = json.loads(base64.b64decode(token, altchars=b"-_", validate=True))
        match values:
            case [int(), bool(), str(), str() | None, str() | None, int() | None, str(), int()]:
                from_micros(values[0])
                return _Place(*values)
        raise ValueError("the token of something else")
    except (ValueError, OverflowError, RecursionError) as error:
        raise InvalidRequest("The specified nextToken is invalid.") from error

"""PutLogEvents and GetLogEvents: write events, and read one stream page by page."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise

from trainyard.formats.logs import LogPage, LogReader, LogWriter, TimeRange
from trainyard.foundation.errors import InvalidRequest, NotFound
from trainyard.server.log_streams import folder_of, is_foreign
from trainyard.server.records.contract import Resource
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.logs.groups import group_of, load_group, oldest_visible_ms, to_millis
from trainyard.server.services.logs.streams import load_stream, stream_name, update_last_event

MAX_EVENTS = 10_000
MAX_BATCH_BYTES = 1024 * 1024
EVENT_OVERHEAD_BYTES = 26
MAX_SPAN = timedelta(hours=24)
MAX_AGE = timedelta(days=14)
MAX_AHEAD = timedelta(hours=2)

_TOKEN = re.compile(r"(?P<direction>[fb])/(?P<offset>[0-9]{1,56})")

Events = Sequence[tuple[int, bytes]]


def put_log_events(call: Call, shape: Shape) -> Shape:
    group = load_group(call, shape["logGroupName"])
    stream = load_stream(call, group, shape["logStreamName"])
    if is_foreign(stream):
        raise InvalidRequest(
            f'The log stream "{stream_name(stream)}" belongs to a job; put events into another stream.'
        )
    events = [(event["timestamp"], event["message"].encode("utf-8", "replace")) for event in shape["logEvents"]]
    _require_batch(events)
    accepted, rejections = _split_events(call, group, events)
    _require_span(accepted)
    end = _append(call, stream, accepted) if accepted else 0
    # Clients no longer need a token, but older ones still read it.
    answer: Shape = {"nextSequenceToken": f"{end:056d}"}
    return answer | ({"rejectedLogEventsInfo": rejections} if rejections else {})


def get_log_events(call: Call, shape: Shape) -> Shape:
    group = group_of(call, shape)
    reader = LogReader(folder_of(call.yard.logs, load_stream(call, group, shape["logStreamName"])))
    times = visible_times(call, group, start_ms=shape.get("startTime"), end_ms=shape.get("endTime"))
    page = _page(reader, shape, times)
    # A stream stores events in order of arrival; clients expect them in order of time.
    events = sorted(page.events, key=lambda event: event.ms)
    return {
        "events": [
            {"timestamp": event.ms, "message": event.text, "ingestionTime": event.ingested_ms} for event in events
        ],
        "nextForwardToken": f"f/{page.after:056d}",
        "nextBackwardToken": f"b/{page.before:056d}",
    }


OPERATIONS: Operations = {"PutLogEvents": put_log_events, "GetLogEvents": get_log_events}


def visible_times(call: Call, group: Resource, *, start_ms: int | None, end_ms: int | None) -> TimeRange:
    """Return the requested range of times without what the group's retention policy hides."""
    oldest_ms = oldest_visible_ms(group, call.now)
    starts = [ms for ms in (start_ms, oldest_ms) if ms is not None]
    return TimeRange(max(starts, default=None), end_ms)


def _require_batch(events: Events) -> None:
    size = sum(len(message) + EVENT_OVERHEAD_BYTES for _, message in events)
    if size > MAX_BATCH_BYTES:
        raise InvalidRequest(f"Upload too large: {size} bytes exceeds limit of {MAX_BATCH_BYTES}")
    if any(later < earlier for (earlier, _), (later, _) in pairwise(events)):
        raise InvalidRequest("Log events in a single PutLogEvents request must be in chronological order.")


def _split_events(call: Call, group: Resource, events: Events) -> tuple[Events, dict[str, int]]:
    """Return the events that are neither too old nor too new, and the indexes that bound the rejected ones."""
    times = [ms for ms, _ in events]
    too_old = bisect_left(times, to_millis(call.now - MAX_AGE))
    expired = bisect_left(times, oldest_visible_ms(group, call.now) or 0)
    too_new = bisect_right(times, to_millis(call.now + MAX_AHEAD))
    rejections = {}
    if too_old:
        rejections["tooOldLogEventEndIndex"] = too_old
    if expired:
        rejections["expiredLogEventEndIndex"] = expired
    if too_new < len(times):
        rejections["tooNewLogEventStartIndex"] = too_new
    return events[max(too_old, expired) : too_new], rejections


def _require_span(events: Events) -> None:
    if events and events[-1][0] - events[0][0] > MAX_SPAN / timedelta(milliseconds=1):
        raise InvalidRequest("The batch of log events in a single PutLogEvents request cannot span more than 24 hours.")


def _append(call: Call, stream: Resource, events: Events) -> int:
    """Append events durably; return the new end of the stream."""
    call.yard.require_space(call.yard.logs, sum(len(message) for _, message in events))
    with LogWriter(folder_of(call.yard.logs, stream)) as writer:
        writer.append_messages(events, ingested_ms=to_millis(call.now))
        writer.sync()
        end = writer.end
    try:
        update_last_event(call.yard.records, stream, events[-1][0], now=call.now)
    except NotFound as error:
        # The stream was deleted in the meantime. The sweep of orphaned folders removes the events.
        raise NotFound("log stream", stream_name(stream)) from error
    return end


def _page(reader: LogReader, shape: Shape, times: TimeRange) -> LogPage:
    limit = shape.get("limit", MAX_EVENTS)
    token = shape.get("nextToken")
    if token is None:
        read = reader.forward if shape.get("startFromHead") else reader.backward
        return read(max_events=limit, times=times)
    parsed = _TOKEN.fullmatch(token)
    if parsed is None:
        raise InvalidRequest("The specified nextToken is invalid.")
    read = reader.forward if parsed["direction"] == "f" else reader.backward
    return read(int(parsed["offset"]), max_events=limit, times=times)

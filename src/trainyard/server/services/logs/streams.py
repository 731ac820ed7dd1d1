"""Log streams. A stream's record is a child of its group's and is named `group:stream`; neither name has a colon.

Its status is the time of its latest event in digits, so that the records can list streams in that order.
"""

from datetime import datetime

from trainyard.formats.logs import LogReader
from trainyard.foundation.arns import arn
from trainyard.foundation.errors import AlreadyExists, InvalidRequest, NotFound
from trainyard.server.log_streams import STREAM, folder_of, remove_events
from trainyard.server.records.contract import Change, Draft, Query, Records, Resource, ResourceKey, SortBy
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.logs.groups import group_of, load_group, to_millis

PAGE = 50


def create_log_stream(call: Call, shape: Shape) -> Shape:
    group = load_group(call, shape["logGroupName"])
    name = shape["logStreamName"]
    draft = Draft(stream_key(group, name), group.region, body={}, parent=group.id)
    try:
        call.yard.records.create(draft, now=call.now)
    except AlreadyExists as error:
        raise AlreadyExists("log stream", name) from error
    except NotFound as error:
        # The group was deleted in the meantime.
        raise NotFound("log group", group.key.name) from error
    return {}


def delete_log_stream(call: Call, shape: Shape) -> Shape:
    group = load_group(call, shape["logGroupName"])
    while True:
        stream = load_stream(call, group, shape["logStreamName"])
        # The record first, as for groups.
        if call.yard.records.delete(stream, now=call.now):
            remove_events(call.yard.logs, stream)
            return {}


def describe_log_streams(call: Call, shape: Shape) -> Shape:
    group = group_of(call, shape)
    prefix = shape.get("logStreamNamePrefix", "")
    by_time = shape.get("orderBy") == "LastEventTime"
    if by_time and prefix:
        raise InvalidRequest("Cannot order by LastEventTime with a logStreamNamePrefix.")
    query = Query(
        STREAM,
        parent=group.id,
        name_prefix="" if by_time else f"{group.key.name}:{prefix}",
        sort_by=SortBy.STATUS if by_time else SortBy.NAME,
        descending=shape.get("descending", False),
        limit=shape.get("limit", PAGE),
        after=shape.get("nextToken", ""),
    )
    page = call.yard.records.find(query)
    shown = {"logStreams": [_stream_shape(call, stream) for stream in page.resources]}
    # The sagemaker SDK asks again while there is a token, without sending it, so the last page must have none.
    return shown | ({"nextToken": page.next_after} if page.next_after else {})


OPERATIONS: Operations = {
    "CreateLogStream": create_log_stream,
    "DeleteLogStream": delete_log_stream,
    "DescribeLogStreams": describe_log_streams,
}


def load_stream(call: Call, group: Resource, name: str) -> Resource:
    try:
        return call.yard.records.load(stream_key(group, name))
    except NotFound as error:
        raise NotFound("log stream", name) from error


def stream_key(group: Resource, name: str) -> ResourceKey:
    return ResourceKey(group.key.account, STREAM, f"{group.key.name}:{name}")


def stream_name(stream: Resource) -> str:
    return stream.key.name.partition(":")[2]


def update_last_event(records: Records, stream: Resource, last_ms: int, *, now: datetime) -> None:
    """Record the time of the latest event, by which streams are sorted; NotFound if the stream was deleted."""
    status = f"{last_ms:020d}"
    while stream.status < status:
        if records.apply(stream, Change(status=status), now=now) is not None:
            return
        stream = records.load_by_id(stream.id)


def _stream_shape(call: Call, stream: Resource) -> Shape:
    group = stream.key.name.partition(":")[0]
    shape: Shape = {
        "logStreamName": stream_name(stream),
        "creationTime": to_millis(stream.created_at),
        "arn": arn("logs", stream.region, stream.key.account, f"log-group:{group}:log-stream:{stream_name(stream)}"),
        # AWS has reported no sizes of streams since 2019 either.
        "storedBytes": 0,
    }
    summary = LogReader(folder_of(call.yard.logs, stream)).summary()
    if summary is not None:
        shape["firstEventTimestamp"] = summary.first_ms
        shape["lastEventTimestamp"] = summary.last_ms
        shape["lastIngestionTime"] = summary.last_ingested_ms
    return shape

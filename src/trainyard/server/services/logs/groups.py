"""Log groups: the groups of streams, and how long their events are visible."""

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from trainyard.formats.logs import LogReader
from trainyard.foundation.clock import to_micros
from trainyard.foundation.errors import AlreadyExists, InvalidRequest, NotFound
from trainyard.server.log_streams import GROUP, folder_of, group_body, load_streams, log_group_arn, remove_events
from trainyard.server.records.contract import Change, Draft, Query, Resource, ResourceKey, SortBy
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.tag_rules import require_tags
from trainyard.server.services.visibility import load_visible
from trainyard.wire.fault import Fault

KIND = GROUP
PAGE = 50
# Streams measured for storedBytes; takes about 0.1 s.
MAX_MEASURED = 2000

RETENTION_DAYS = frozenset(
    {1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653}
)

_ARN = re.compile(r"arn:aws:logs:[^:]*:(?P<account>[0-9]{12}):log-group:(?P<name>[^:*]+)")


def create_log_group(call: Call, shape: Shape) -> Shape:
    name, tags = shape["logGroupName"], shape.get("tags", {})
    if name.startswith("aws/"):
        raise InvalidRequest(f'The prefix aws/ of the log group name "{name}" is reserved; choose another name.')
    if shape.get("deletionProtectionEnabled"):
        raise InvalidRequest(
            "Trainyard has no deletion protection for log groups; leave deletionProtectionEnabled out."
        )
    require_tags(tags)
    body = group_body(log_class=shape.get("logGroupClass", "STANDARD"), kms_key=shape.get("kmsKeyId"))
    key = ResourceKey(call.account, KIND, name)
    draft = Draft(key, call.region, body, tags=tags, arn=log_group_arn(call.region, call.account, name))
    try:
        call.yard.records.create(draft, now=call.now)
    except AlreadyExists as error:
        raise AlreadyExists("log group", name) from error
    return {}


def delete_log_group(call: Call, shape: Shape) -> Shape:
    while True:
        group = load_group(call, shape["logGroupName"])
        streams = list(load_streams(call.yard.records, group))
        # Records first: after a crash in between, a sweep removes the folders, and no stream is without its folder.
        if call.yard.records.delete(group, now=call.now):
            for stream in streams:
                remove_events(call.yard.logs, stream)
            return {}


def describe_log_groups(call: Call, shape: Shape) -> Shape:
    prefix, pattern = shape.get("logGroupNamePrefix", ""), shape.get("logGroupNamePattern", "")
    identifiers = shape.get("logGroupIdentifiers")
    if prefix and pattern:
        raise InvalidRequest("LogGroup name prefix and LogGroup name pattern are mutually exclusive parameters.")
    if identifiers is not None:
        if prefix or pattern:
            raise InvalidRequest(
                "logGroupIdentifiers cannot be combined with logGroupNamePrefix or logGroupNamePattern."
            )
        return {"logGroups": [_group_shape(call, group) for group in _load_existing(call, identifiers)]}
    query = Query(
        KIND,
        account=call.caller.scope,
        name_prefix=prefix,
        name_contains=pattern,
        sort_by=SortBy.NAME,
        limit=shape.get("limit", PAGE),
        after=shape.get("nextToken", ""),
    )
    page = call.yard.records.find(query)
    shown = {"logGroups": [_group_shape(call, group) for group in page.resources if _is_match(group, shape)]}
    return shown | ({"nextToken": page.next_after} if page.next_after else {})


def put_retention_policy(call: Call, shape: Shape) -> Shape:
    days = shape["retentionInDays"]
    if days not in RETENTION_DAYS:
        allowed = ", ".join(map(str, sorted(RETENTION_DAYS)))
        raise InvalidRequest(f"Invalid retentionInDays {days}; use one of {allowed}.")
    _change_body(call, shape["logGroupName"], lambda body: {**body, "retention_days": days})
    return {}


def delete_retention_policy(call: Call, shape: Shape) -> Shape:
    _change_body(call, shape["logGroupName"], lambda body: {**body, "retention_days": None})
    return {}


OPERATIONS: Operations = {
    "CreateLogGroup": create_log_group,
    "DeleteLogGroup": delete_log_group,
    "DescribeLogGroups": describe_log_groups,
    "PutRetentionPolicy": put_retention_policy,
    "DeleteRetentionPolicy": delete_retention_policy,
}


def group_of(call: Call, shape: Shape) -> Resource:
    """Load the group that a request names by `logGroupName` or `logGroupIdentifier`."""
    references = [shape[member] for member in ("logGroupName", "logGroupIdentifier") if member in shape]
    if len(references) > 1:
        message = "LogGroup name and LogGroup ARN are mutually exclusive parameters."
        raise Fault("ValidationException", message)
    if not references:
        raise InvalidRequest("Give either logGroupName or logGroupIdentifier.")
    return load_group(call, references[0])


def load_group(call: Call, reference: str) -> Resource:
    """Load a group by its name or its ARN. The region of an ARN is ignored."""
    if not reference.startswith("arn:"):
        try:
            return load_visible(call, KIND, reference)
        except NotFound as error:
            raise NotFound("log group", reference) from error
    named = _ARN.fullmatch(reference)
    if named is None:
        raise InvalidRequest(f'"{reference}" is not the ARN of a log group.')
    if named["account"] != call.account and not call.caller.is_admin:
        raise NotFound("log group", reference)
    try:
        return call.yard.records.load(ResourceKey(named["account"], KIND, named["name"]))
    except NotFound as error:
        raise NotFound("log group", reference) from error


def group_arn(group: Resource) -> str:
    return log_group_arn(group.region, group.key.account, group.key.name)


def oldest_visible_ms(group: Resource, now: datetime) -> int | None:
    """Return the time before which the group's retention policy hides events."""
    days = group.body["retention_days"]
    return None if days is None else to_millis(now - timedelta(days=days))


def to_millis(moment: datetime) -> int:
    return to_micros(moment) // 1000


def _load_existing(call: Call, references: list[str]) -> list[Resource]:
    groups = []
    for reference in references:
        try:
            groups.append(load_group(call, reference))
        except NotFound:
            continue
    return groups


def _is_match(group: Resource, shape: Shape) -> bool:
    accounts, of_class = shape.get("accountIdentifiers"), shape.get("logGroupClass")
    return (not accounts or group.key.account in accounts) and (not of_class or group.body["class"] == of_class)


def _change_body(call: Call, name: str, change: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
    while True:
        group = load_group(call, name)
        if call.yard.records.apply(group, Change(body=change(group.body)), now=call.now) is not None:
            return


def _stored_bytes(call: Call, group: Resource) -> int:
    """Return the total size of a group's streams; of very many, only the first count, as AWS's number lags too."""
    summaries = (
        LogReader(folder_of(call.yard.logs, stream)).summary()
        for stream in islice(load_streams(call.yard.records, group), MAX_MEASURED)
    )
    return sum(summary.end - summary.start for summary in summaries if summary is not None)


def _group_shape(call: Call, group: Resource) -> Shape:
    shape = {
        "logGroupName": group.key.name,
        "creationTime": to_millis(group.created_at),
        "metricFilterCount": 0,
        "storedBytes": _stored_bytes(call, group),
        "arn": f"{group_arn(group)}:*",
        "logGroupArn": group_arn(group),
        "logGroupClass": group.body["class"],
        "deletionProtectionEnabled": False,
    }
    if group.body["retention_days"] is not None:
        shape["retentionInDays"] = group.body["retention_days"]
    if group.body["kms_key"] is not None:
        shape["kmsKeyId"] = group.body["kms_key"]
    return shape

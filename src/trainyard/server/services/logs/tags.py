"""The tags of log groups, by ARN or name."""

from trainyard.foundation.errors import LimitExceeded
from trainyard.server.records.contract import Resource
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.logs.groups import group_arn, load_group
from trainyard.server.services.tag_rules import require_tags
from trainyard.wire.fault import Fault


def tag_resource(call: Call, shape: Shape) -> Shape:
    _tag(call, load_group(call, shape["resourceArn"]), shape["tags"])
    return {}


def untag_resource(call: Call, shape: Shape) -> Shape:
    _untag(call, load_group(call, shape["resourceArn"]), shape["tagKeys"])
    return {}


def list_tags_for_resource(call: Call, shape: Shape) -> Shape:
    return {"tags": _tags(call, load_group(call, shape["resourceArn"]))}


def tag_log_group(call: Call, shape: Shape) -> Shape:
    _tag(call, load_group(call, shape["logGroupName"]), shape["tags"])
    return {}


def untag_log_group(call: Call, shape: Shape) -> Shape:
    _untag(call, load_group(call, shape["logGroupName"]), shape["tags"])
    return {}


def list_tags_log_group(call: Call, shape: Shape) -> Shape:
    return {"tags": _tags(call, load_group(call, shape["logGroupName"]))}


OPERATIONS: Operations = {
    "TagResource": tag_resource,
    "UntagResource": untag_resource,
    "ListTagsForResource": list_tags_for_resource,
    "TagLogGroup": tag_log_group,
    "UntagLogGroup": untag_log_group,
    "ListTagsLogGroup": list_tags_log_group,
}


def _tag(call: Call, group: Resource, tags: dict[str, str]) -> None:
    try:
        require_tags(tags, known=_tags(call, group))
    except LimitExceeded as error:
        raise Fault("TooManyTagsException", error.message) from error
    call.yard.records.set_tags(group.key.account, group_arn(group), tags)


def _untag(call: Call, group: Resource, keys: list[str]) -> None:
    call.yard.records.remove_tags(group.key.account, group_arn(group), keys)


def _tags(call: Call, group: Resource) -> dict[str, str]:
    return dict(call.yard.records.tags(group.key.account, group_arn(group)))

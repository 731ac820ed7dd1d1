"""Tags of SageMaker's resources, by their ARN."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from trainyard.foundation.errors import InvalidRequest, NotFound
from trainyard.server import jobs, tuning
from trainyard.server.records.contract import Resource, ResourceKey
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.tag_rules import require_tags

_ARN = re.compile(r"arn:aws:sagemaker:[a-z0-9-]*:(?P<account>[0-9]{12}):(?P<type>[a-z-]+)/(?P<name>[^/]+)")


@dataclass(frozen=True, slots=True)
class Tagged:
    """A resource that exists, by the ARN under which its tags are kept."""

    account: str
    arn: str


def add_tags(call: Call, shape: Shape) -> Shape:
    owner = tagged_resource(call, shape["ResourceArn"])
    tags = {tag["Key"]: tag["Value"] for tag in shape["Tags"]}
    require_tags(tags, known=call.yard.records.tags(owner.account, owner.arn))
    call.yard.records.set_tags(owner.account, owner.arn, tags)
    return {"Tags": _shapes(call, owner)}


def list_tags(call: Call, shape: Shape) -> Shape:
    """All at once: a resource has at most as many as the smallest page that may be asked for."""
    if shape.get("NextToken"):
        raise InvalidRequest("The NextToken is invalid.")
    return {"Tags": _shapes(call, tagged_resource(call, shape["ResourceArn"]))}


def delete_tags(call: Call, shape: Shape) -> Shape:
    owner = tagged_resource(call, shape["ResourceArn"])
    call.yard.records.remove_tags(owner.account, owner.arn, shape["TagKeys"])
    return {}


OPERATIONS: Operations = {"AddTags": add_tags, "ListTags": list_tags, "DeleteTags": delete_tags}


def tagged_resource(call: Call, arn: str) -> Tagged:
    """What an ARN of SageMaker's names; NotFound when the caller may not see it, or there is none."""
    named = _ARN.fullmatch(arn)
    kind = _KINDS.get(named["type"]) if named else None
    if named is None or kind is None:
        raise InvalidRequest(f'"{arn}" is not the ARN of something that Trainyard keeps tags of.')
    key = kind.key(named["account"], named["name"])
    if call.caller.scope not in (None, key.account):
        raise NotFound(key.kind, key.name)
    resource = call.yard.records.load(key)
    return Tagged(resource.key.account, kind.arn(resource))


@dataclass(frozen=True, slots=True)
class _Kind:
    """How resources of one type of ARN are found, and what theirs is."""

    key: Callable[[str, str], ResourceKey]
    arn: Callable[[Resource], str]


_KINDS: Mapping[str, _Kind] = {
    "training-job": _Kind(
        lambda account, name: ResourceKey(account, jobs.KIND, name), lambda resource: jobs.job_of(resource).arn
    ),
    "hyper-parameter-tuning-job": _Kind(tuning.tuning_key, lambda resource: tuning.tuning_job_of(resource).arn),
}


def _shapes(call: Call, owner: Tagged) -> list[Shape]:
    tags = call.yard.records.tags(owner.account, owner.arn)
    return [{"Key": key, "Value": value} for key, value in tags.items()]

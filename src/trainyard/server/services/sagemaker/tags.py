"""The tags of SageMaker's resources, by ARN."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from trainyard.foundation.errors import InvalidRequest, NotFound
from trainyard.server.experiments.storage import COMPONENT, EXPERIMENT, TRIAL, entity_key
from trainyard.server.jobs import processing, training, tuning
from trainyard.server.lineage.entities import ARN_TYPES, entity_of
from trainyard.server.records.contract import Resource, ResourceKey
from trainyard.server.registry import GROUP, PACKAGE, group_of, package_of
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.tag_rules import require_tags

_ARN = re.compile(r"arn:aws:sagemaker:[a-z0-9-]*:(?P<account>[0-9]{12}):(?P<type>[a-z-]+)/(?P<name>[^/]+(/[0-9]+)?)")


@dataclass(frozen=True, slots=True)
class TaggedResource:
    """A resource that exists, with the ARN under which its tags are stored."""

    account: str
    arn: str


def add_tags(call: Call, shape: Shape) -> Shape:
    owner = load_tagged_resource(call, shape["ResourceArn"])
    tags = {tag["Key"]: tag["Value"] for tag in shape["Tags"]}
    require_tags(tags, known=call.yard.records.tags(owner.account, owner.arn))
    call.yard.records.set_tags(owner.account, owner.arn, tags)
    return {"Tags": _shapes(call, owner)}


def list_tags(call: Call, shape: Shape) -> Shape:
    """List all tags of a resource in one page; it cannot have more than the smallest page holds."""
    if shape.get("NextToken"):
        raise InvalidRequest("The NextToken is invalid.")
    return {"Tags": _shapes(call, load_tagged_resource(call, shape["ResourceArn"]))}


def delete_tags(call: Call, shape: Shape) -> Shape:
    owner = load_tagged_resource(call, shape["ResourceArn"])
    call.yard.records.remove_tags(owner.account, owner.arn, shape["TagKeys"])
    return {}


OPERATIONS: Operations = {"AddTags": add_tags, "ListTags": list_tags, "DeleteTags": delete_tags}


def load_tagged_resource(call: Call, arn: str) -> TaggedResource:
    """Load the resource of an ARN; NotFound if it does not exist or the caller cannot see it."""
    named = _ARN.fullmatch(arn)
    kind = _ARN_TYPES.get(named["type"]) if named else None
    if named is None or kind is None:
        raise InvalidRequest(f'"{arn}" is not the ARN of a resource that can have tags here, such as a training job.')
    key = kind.key(named["account"], named["name"])
    if call.caller.scope not in (None, key.account):
        raise NotFound(key.kind, key.name)
    resource = call.yard.records.load(key)
    return TaggedResource(resource.key.account, kind.arn(resource))


@dataclass(frozen=True, slots=True)
class _ArnType:
    """How to find the resources of one type of ARN, and the ARN of each."""

    key: Callable[[str, str], ResourceKey]
    arn: Callable[[Resource], str]


def _key_of_kind(kind: str) -> Callable[[str, str], ResourceKey]:
    return lambda account, name: ResourceKey(account, kind, name)


def _experiment_type(kind: str) -> _ArnType:
    """Return the type of experiments, trials or components, whose kind is the type in their ARNs."""
    return _ArnType(lambda account, name: entity_key(account, kind, name), lambda resource: str(resource.body["arn"]))


_ARN_TYPES: Mapping[str, _ArnType] = {
    "training-job": _ArnType(
        lambda account, name: ResourceKey(account, training.KIND, name),
        lambda resource: training.job_of(resource).arn,
    ),
    "processing-job": _ArnType(
        lambda account, name: ResourceKey(account, processing.KIND, name),
        lambda resource: processing.job_of(resource).arn,
    ),
    "hyper-parameter-tuning-job": _ArnType(tuning.tuning_key, lambda resource: tuning.job_of(resource).arn),
    **{kind: _experiment_type(kind) for kind in (EXPERIMENT, TRIAL, COMPONENT)},
    **{
        arn_type: _ArnType(_key_of_kind(kind), lambda resource: entity_of(resource).arn)
        for kind, arn_type in ARN_TYPES.items()
    },
    "model-package-group": _ArnType(_key_of_kind(GROUP), lambda resource: group_of(resource).arn),
    "model-package": _ArnType(_key_of_kind(PACKAGE), lambda resource: package_of(resource).package.arn),
}

# The types of resources whose ARNs can have tags.
SAGEMAKER_TYPES = tuple(_ARN_TYPES)


def _shapes(call: Call, owner: TaggedResource) -> list[Shape]:
    tags = call.yard.records.tags(owner.account, owner.arn)
    return [{"Key": key, "Value": value} for key, value in tags.items()]

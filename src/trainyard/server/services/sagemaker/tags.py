"""Tags of SageMaker's resources, by their ARN."""

import re

from trainyard.foundation.errors import InvalidRequest, NotFound
from trainyard.server.jobs import KIND, job_of
from trainyard.server.records.contract import Resource, ResourceKey
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.tag_rules import require_tags

_ARN = re.compile(r"arn:aws:sagemaker:[a-z0-9-]*:(?P<account>[0-9]{12}):(?P<type>[a-z-]+)/(?P<name>[^/]+)")


def add_tags(call: Call, shape: Shape) -> Shape:
    owner = tagged_resource(call, shape["ResourceArn"])
    arn, account = job_of(owner).arn, owner.key.account
    tags = {tag["Key"]: tag["Value"] for tag in shape["Tags"]}
    require_tags(tags, known=call.yard.records.tags(account, arn))
    call.yard.records.set_tags(account, arn, tags)
    return {"Tags": _shapes(call, owner)}


def list_tags(call: Call, shape: Shape) -> Shape:
    """All at once: a resource has at most as many as the smallest page that may be asked for."""
    if shape.get("NextToken"):
        raise InvalidRequest("The NextToken is invalid.")
    return {"Tags": _shapes(call, tagged_resource(call, shape["ResourceArn"]))}


def delete_tags(call: Call, shape: Shape) -> Shape:
    owner = tagged_resource(call, shape["ResourceArn"])
    call.yard.records.remove_tags(owner.key.account, job_of(owner).arn, shape["TagKeys"])
    return {}


OPERATIONS: Operations = {"AddTags": add_tags, "ListTags": list_tags, "DeleteTags": delete_tags}


def tagged_resource(call: Call, arn: str) -> Resource:
    """What an ARN of SageMaker's names; NotFound when the caller may not see it, or there is none."""
    named = _ARN.fullmatch(arn)
    if named is None or named["type"] != KIND:
        raise InvalidRequest(f'"{arn}" is not the ARN of something that Trainyard keeps tags of.')
    if call.caller.scope not in (None, named["account"]):
        raise NotFound(KIND, arn)
    return call.yard.records.load(ResourceKey(named["account"], KIND, named["name"]))


def _shapes(call: Call, owner: Resource) -> list[Shape]:
    tags = call.yard.records.tags(owner.key.account, job_of(owner).arn)
    return [{"Key": key, "Value": value} for key, value in tags.items()]

"""Groups of model packages: create, describe, list, delete, and their policies."""

import json
import re
from dataclasses import replace

from trainyard.foundation.errors import AlreadyExists, InvalidRequest, NotFound
from trainyard.server.records.contract import Query, Resource, ResourceKey, SortBy
from trainyard.server.registry import (
    GROUP,
    PACKAGE,
    ModelPackageGroup,
    group_arn,
    group_change,
    group_draft,
    group_of,
)
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.tag_rules import require_tags
from trainyard.server.services.visibility import load_visible
from trainyard.wire.fault import Fault

# The default of AWS.
PAGE = 10

_ARN = re.compile(r"arn:aws:sagemaker:[a-z0-9-]*:(?P<account>[0-9]{12}):model-package-group/(?P<name>[^/]+)")


def create_model_package_group(call: Call, shape: Shape) -> Shape:
    _require_unrestricted(shape)
    tags = {tag["Key"]: tag["Value"] for tag in shape.get("Tags", ())}
    require_tags(tags)
    name = shape["ModelPackageGroupName"]
    group = ModelPackageGroup(
        name,
        group_arn(call.region, call.account, name),
        description=shape.get("ModelPackageGroupDescription", ""),
        created_by=call.caller.arn,
    )
    try:
        call.yard.records.create(group_draft(group, account=call.account, region=call.region, tags=tags), now=call.now)
    except AlreadyExists as error:
        raise Fault("ValidationException", f"Model Package Group already exists: {group.arn}") from error
    return {"ModelPackageGroupArn": group.arn}


def describe_model_package_group(call: Call, shape: Shape) -> Shape:
    resource = load_group(call, shape["ModelPackageGroupName"])
    return group_description(resource)


def list_model_package_groups(call: Call, shape: Shape) -> Shape:
    if shape.get("CrossAccountFilterOption") == "CrossAccount":
        raise InvalidRequest("Trainyard has no groups of other accounts; leave CrossAccountFilterOption out.")
    page = call.yard.records.find(
        Query(
            GROUP,
            account=call.caller.scope,
            name_contains=shape.get("NameContains", ""),
            created_after=shape.get("CreationTimeAfter"),
            created_before=shape.get("CreationTimeBefore"),
            sort_by=SortBy.NAME if shape.get("SortBy") == "Name" else SortBy.CREATED,
            descending=shape.get("SortOrder") == "Descending",
            limit=shape.get("MaxResults", PAGE),
            after=shape.get("NextToken", ""),
        )
    )
    listed = [_summary(resource) for resource in page.resources]
    return {"ModelPackageGroupSummaryList": listed} | ({"NextToken": page.next_after} if page.next_after else {})


def delete_model_package_group(call: Call, shape: Shape) -> Shape:
    """Delete a group that has no model packages."""
    while True:
        resource = load_group(call, shape["ModelPackageGroupName"])
        group = group_of(resource)
        if call.yard.records.find(Query(PACKAGE, parent=resource.id, limit=1)).resources:
            raise Fault(
                "ConflictException",
                f"Model Package Group {group.arn} still has model packages; delete those first.",
            )
        # The revision guards it: a package that is added meanwhile takes a version from the group, which changes it.
        if call.yard.records.delete(resource, now=call.now):
            return {}


def get_model_package_group_policy(call: Call, shape: Shape) -> Shape:
    group = group_of(load_group(call, shape["ModelPackageGroupName"]))
    if not group.policy:
        raise Fault("ValidationException", f"Cannot find resource policy for: {group.arn}")
    return {"ResourcePolicy": group.policy}


def put_model_package_group_policy(call: Call, shape: Shape) -> Shape:
    """Keep the policy of a group. A yard does not enforce it: nobody sees the groups of others."""
    try:
        json.loads(shape["ResourcePolicy"])
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"The ResourcePolicy is not JSON: {error}.") from error
    return {"ModelPackageGroupArn": _set_policy(call, shape["ModelPackageGroupName"], shape["ResourcePolicy"])}


def delete_model_package_group_policy(call: Call, shape: Shape) -> Shape:
    get_model_package_group_policy(call, shape)
    _set_policy(call, shape["ModelPackageGroupName"], "")
    return {}


OPERATIONS: Operations = {
    "CreateModelPackageGroup": create_model_package_group,
    "DescribeModelPackageGroup": describe_model_package_group,
    "ListModelPackageGroups": list_model_package_groups,
    "DeleteModelPackageGroup": delete_model_package_group,
    "GetModelPackageGroupPolicy": get_model_package_group_policy,
    "PutModelPackageGroupPolicy": put_model_package_group_policy,
    "DeleteModelPackageGroupPolicy": delete_model_package_group_policy,
}


def load_group(call: Call, name: str) -> Resource:
    """Load a group by its name or its ARN; the fault of AWS if it does not exist or the caller cannot see it."""
    found = _ARN.fullmatch(name)
    try:
        if found is None:
            return load_visible(call, GROUP, name)
        if call.caller.scope not in (None, found["account"]):
            raise NotFound(GROUP, name)
        return call.yard.records.load(ResourceKey(found["account"], GROUP, found["name"]))
    except NotFound as error:
        arn = name if name.startswith("arn:") else group_arn(call.region, call.account, name)
        raise Fault("ValidationException", f"ModelPackageGroup {arn} does not exist.") from error


def group_description(resource: Resource) -> Shape:
    group = group_of(resource)
    return {
        **_summary(resource),
        "CreatedBy": {"IamIdentity": {"Arn": group.created_by}} if group.created_by else {},
    }


def _summary(resource: Resource) -> Shape:
    group = group_of(resource)
    return {
        "ModelPackageGroupName": group.name,
        "ModelPackageGroupArn": group.arn,
        "ModelPackageGroupDescription": group.description or None,
        "CreationTime": resource.created_at,
        "ModelPackageGroupStatus": "Completed",
    }


def _set_policy(call: Call, name: str, policy: str) -> str:
    """Store the policy of a group; return the ARN of the group."""
    while True:
        resource = load_group(call, name)
        group = replace(group_of(resource), policy=policy)
        if call.yard.records.apply(resource, group_change(group), now=call.now) is not None:
            return group.arn


def _require_unrestricted(shape: Shape) -> None:
    if shape.get("ManagedConfiguration"):
        raise InvalidRequest("Trainyard has no managed storage for models; leave ManagedConfiguration out.")

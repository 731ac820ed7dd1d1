"""Describe, list and delete model packages."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trainyard.foundation.errors import NotFound, TrainyardError
from trainyard.server.records.contract import Query, Resource, ResourceKey, SortBy
from trainyard.server.registry import PACKAGE, StoredPackage, package_arn, package_of
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.sagemaker.registry.groups import load_group
from trainyard.server.services.visibility import load_visible
from trainyard.wire.fault import Fault

# The default of AWS.
PAGE = 10
# Packages read for one answer with a filter that no index has. The answer may then be short and have a token.
MAX_READ = 2000

_BATCH = 100
_ARN = re.compile(r"arn:aws:sagemaker:[a-z0-9-]*:(?P<account>[0-9]{12}):model-package/(?P<title>[^/]+(/[0-9]+)?)")
_SUMMARY_MEMBERS = ("ModelPackageDescription", "ModelLifeCycle", "ModelPackageRegistrationType")


def describe_model_package(call: Call, shape: Shape) -> Shape:
    resource = load_package(call, shape["ModelPackageName"])
    description = package_description(resource)
    if shape.get("IncludedData") == "MetadataOnly" and "ModelCard" in description:
        description["ModelCard"] = _without_details(description["ModelCard"])
    return description


def batch_describe_model_package(call: Call, shape: Shape) -> Shape:
    found: dict[str, Shape] = {}
    errors: dict[str, Shape] = {}
    for arn in shape["ModelPackageArnList"]:
        try:
            found[arn] = _batch_summary(load_package(call, arn))
        except TrainyardError as error:
            code = error.code if isinstance(error, Fault) else "ValidationException"
            errors[arn] = {"ErrorCode": code, "ErrorResponse": error.message}
    return {"ModelPackageSummaries": found, "BatchDescribeModelPackageErrorMap": errors}


def list_model_packages(call: Call, shape: Shape) -> Shape:
    """List the versions of a group, or packages without a version unless the type says otherwise."""
    found, token = _find_page(call, shape)
    return {"ModelPackageSummaryList": [_summary(each) for each in found]} | ({"NextToken": token} if token else {})


def delete_model_package(call: Call, shape: Shape) -> Shape:
    """Delete a package. Its version is not used again, and its lineage stays."""
    while True:
        if call.yard.records.delete(load_package(call, shape["ModelPackageName"]), now=call.now):
            return {}


OPERATIONS: Operations = {
    "DescribeModelPackage": describe_model_package,
    "BatchDescribeModelPackage": batch_describe_model_package,
    "ListModelPackages": list_model_packages,
    "DeleteModelPackage": delete_model_package,
}


def load_package(call: Call, name: str) -> Resource:
    """Load a package by its name, its group and version, or its ARN; the fault of AWS if the caller can see none."""
    found = _ARN.fullmatch(name)
    try:
        if found is None:
            return load_visible(call, PACKAGE, name)
        if call.caller.scope not in (None, found["account"]):
            raise NotFound(PACKAGE, name)
        return call.yard.records.load(ResourceKey(found["account"], PACKAGE, found["title"]))
    except NotFound as error:
        arn = name if name.startswith("arn:") else package_arn(call.region, call.account, name)
        raise Fault("ValidationException", f"ModelPackage {arn} does not exist.") from error


def package_description(resource: Resource) -> dict[str, Any]:
    """Return everything about a package, as DescribeModelPackage and Search show it."""
    stored = package_of(resource)
    package = stored.package
    return {
        **stored.request,
        **_names(stored),
        "ModelPackageArn": package.arn,
        "CreationTime": resource.created_at,
        "LastModifiedTime": resource.modified_at,
        "ModelPackageStatus": "Completed",
        "ModelPackageStatusDetails": {"ValidationStatuses": [], "ImageScanStatuses": []},
        "ModelApprovalStatus": package.approval,
        "ApprovalDescription": package.approval_description or None,
        "CreatedBy": _user_context(package.created_by),
        "LastModifiedBy": _user_context(package.modified_by),
    }


def _names(stored: StoredPackage) -> Mapping[str, Any]:
    package = stored.package
    if not package.group:
        return {"ModelPackageName": package.name}
    return {
        "ModelPackageName": package.group,
        "ModelPackageGroupName": package.group,
        "ModelPackageVersion": package.version,
    }


def _summary(resource: Resource) -> Shape:
    stored = package_of(resource)
    return {
        **_names(stored),
        "ModelPackageArn": stored.package.arn,
        "CreationTime": resource.created_at,
        "ModelPackageStatus": "Completed",
        "ModelApprovalStatus": stored.package.approval,
        **{member: stored.request.get(member) for member in _SUMMARY_MEMBERS},
    }


def _batch_summary(resource: Resource) -> Shape:
    stored = package_of(resource)
    summary = {name: value for name, value in _summary(resource).items() if name != "ModelLifeCycle"}
    # AWS requires both members, so a package without a group has an empty one.
    group = {"ModelPackageGroupName": stored.package.group}
    specification = {"InferenceSpecification": stored.request.get("InferenceSpecification", {"Containers": []})}
    return {name: value for name, value in (summary | group | specification).items() if name != "ModelPackageName"}


def _find_page(call: Call, shape: Shape) -> tuple[list[Resource], str | None]:
    query = _query(call, shape)
    wanted = shape.get("ModelPackageType", "Unversioned")
    if query.parent is not None or wanted == "Both":
        page = call.yard.records.find(query)
        return list(page.resources), page.next_after
    found: list[Resource] = []
    batch = replace(query, limit=_BATCH)
    for _ in range(MAX_READ // _BATCH):
        page = call.yard.records.find(batch)
        for number, resource in enumerate(page.resources, 1):
            if (resource.parent is not None) != (wanted == "Versioned"):
                continue
            found.append(resource)
            if len(found) == query.limit:
                # The token of a page that ends exactly here.
                return found, call.yard.records.find(replace(batch, limit=number)).next_after
        if page.next_after is None:
            return found, None
        batch = replace(batch, after=page.next_after)
    return found, batch.after


def _query(call: Call, shape: Shape) -> Query:
    group = load_group(call, shape["ModelPackageGroupName"]) if "ModelPackageGroupName" in shape else None
    return Query(
        PACKAGE,
        account=group.key.account if group else call.caller.scope,
        parent=group.id if group else None,
        name_contains=shape.get("NameContains", ""),
        status=shape.get("ModelApprovalStatus", ""),
        created_after=shape.get("CreationTimeAfter"),
        created_before=shape.get("CreationTimeBefore"),
        # By name, `churn/10` would come before `churn/9`; versions are created in their order.
        sort_by=SortBy.NAME if shape.get("SortBy") == "Name" and group is None else SortBy.CREATED,
        descending=shape.get("SortOrder") == "Descending",
        limit=shape.get("MaxResults", PAGE),
        after=shape.get("NextToken", ""),
    )


def _without_details(card: Shape) -> Shape:
    """Return a model card with what AWS shows without the details: the risk rating."""
    try:
        content = json.loads(card.get("ModelCardContent", "{}"))
        rating = content.get("intended_uses", {}).get("risk_rating")
    except (ValueError, AttributeError, RecursionError):
        rating = None
    shown = {"intended_uses": {"risk_rating": rating}} if rating else {}
    return {**card, "ModelCardContent": json.dumps(shown)}


def _user_context(arn: str) -> Shape | None:
    return {"IamIdentity": {"Arn": arn}} if arn else None

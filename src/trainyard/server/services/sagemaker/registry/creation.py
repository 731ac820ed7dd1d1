"""CreateModelPackage."""

from dataclasses import replace

from trainyard.foundation.errors import AlreadyExists, InvalidRequest
from trainyard.server.lineage.recordings import ensure_package_recording
from trainyard.server.records.contract import Resource
from trainyard.server.registry import (
    Approval,
    ModelPackage,
    StoredPackage,
    group_change,
    group_of,
    next_version,
    package_arn,
    package_draft,
    package_of,
)
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.sagemaker.registry.containers import containers_of, with_etags
from trainyard.server.services.sagemaker.registry.groups import load_group
from trainyard.server.services.sagemaker.registry.packages import load_package
from trainyard.server.services.tag_rules import require_tags
from trainyard.wire.fault import Fault

# What is not kept with the request, because it has a place of its own.
_SEPARATE = ("Tags", "ModelPackageName", "ModelPackageGroupName", "ModelApprovalStatus", "ClientToken")


def create_model_package(call: Call, shape: Shape) -> Shape:
    """Create a package: the next version of a group, or one without a version. Its models must exist."""
    _require_one_name(shape)
    _require_served(shape)
    tags = {tag["Key"]: tag["Value"] for tag in shape.get("Tags", ())}
    require_tags(tags)
    request = {member: value for member, value in _complete(call, shape).items() if member not in _SEPARATE}
    if "ModelPackageGroupName" in shape:
        package, group = _next_package(call, shape)
    else:
        package, group = _package(call, shape, name=shape["ModelPackageName"]), None
    package = replace(package, containers=containers_of(request))
    account, region = (group.key.account, group.region) if group else (call.account, call.region)
    draft = package_draft(
        StoredPackage(package, request), account=account, region=region, parent=group.id if group else None, tags=tags
    )
    # Before the package: without it, the recording does no harm.
    ensure_package_recording(
        call.yard.records, package.arn, title=package.title, site=call.yard.compute.site, now=call.now
    )
    try:
        call.yard.records.create(draft, now=call.now)
    except AlreadyExists as error:
        raise Fault("ValidationException", f"Model Package already exists: {package.arn}") from error
    return {"ModelPackageArn": package.arn}


OPERATIONS: Operations = {"CreateModelPackage": create_model_package}


def _require_one_name(shape: Shape) -> None:
    if ("ModelPackageName" in shape) == ("ModelPackageGroupName" in shape):
        raise InvalidRequest(
            "Give either a ModelPackageGroupName, for the next version of a group, or a ModelPackageName."
        )


def _require_served(shape: Shape) -> None:
    unserved = ("ValidationSpecification", "SourceAlgorithmSpecification", "ManagedStorageType")
    if given := [member for member in unserved if shape.get(member)]:
        raise InvalidRequest(
            f"Trainyard does not serve {', '.join(given)} yet; give an InferenceSpecification with its model."
        )
    if shape.get("CertifyForMarketplace"):
        raise InvalidRequest("A yard has no marketplace; leave CertifyForMarketplace out.")


def _complete(call: Call, shape: Shape) -> Shape:
    """Return the request with what AWS adds: the specification of another package, and ETags of models."""
    if "SourceUri" in shape and "InferenceSpecification" in shape:
        raise InvalidRequest("Give either an InferenceSpecification or a SourceUri, which it is copied from.")
    if "SourceUri" in shape:
        return {**shape, **_copied_specification(call, shape["SourceUri"])}
    if "InferenceSpecification" not in shape:
        if shape.get("ModelPackageRegistrationType") == "Logged":
            return shape
        raise InvalidRequest("A model package needs an InferenceSpecification: its containers and models.")
    specification = with_etags(call, shape["InferenceSpecification"])
    if "ModelPackageName" in shape:
        _require_instance_types(specification)
    return {**shape, "InferenceSpecification": specification}


def _require_instance_types(specification: Shape) -> None:
    """Require what AWS requires of packages without a version only."""
    members = ("SupportedTransformInstanceTypes", "SupportedRealtimeInferenceInstanceTypes")
    if missing := [member for member in members if not specification.get(member)]:
        raise InvalidRequest(f"A model package without a group needs {' and '.join(missing)}.")


def _copied_specification(call: Call, source: str) -> Shape:
    """Return the specification of the package that a source names; any other source is only kept."""
    if ":model-package/" not in source:
        return {}
    specification = package_of(load_package(call, source)).request.get("InferenceSpecification")
    return {"InferenceSpecification": specification} if specification else {}


def _next_package(call: Call, shape: Shape) -> tuple[ModelPackage, Resource]:
    """Take the next version of a group. If the create fails after that, there is no such version."""
    while True:
        resource = load_group(call, shape["ModelPackageGroupName"])
        group = next_version(group_of(resource))
        applied = call.yard.records.apply(resource, group_change(group), now=call.now)
        if applied is not None:
            return _package(call, shape, group=applied, version=group.last_version), applied


def _package(
    call: Call, shape: Shape, *, name: str = "", group: Resource | None = None, version: int = 0
) -> ModelPackage:
    account, region = (group.key.account, group.region) if group else (call.account, call.region)
    title = f"{group.key.name}/{version}" if group else name
    default = Approval.PENDING if group else None
    approval = shape.get("ModelApprovalStatus", default)
    return ModelPackage(
        package_arn(region, account, title),
        group=group.key.name if group else "",
        version=version,
        name=name,
        approval=Approval(approval) if approval else None,
        created_by=call.caller.arn,
    )

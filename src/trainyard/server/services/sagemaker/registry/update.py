"""UpdateModelPackage: the approval of a package, its metadata, and its stage in the life cycle."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trainyard.foundation.errors import InvalidRequest
from trainyard.server.lineage.recordings import ensure_package_recording
from trainyard.server.registry import Approval, ModelPackage, StoredPackage, package_change, package_of
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.sagemaker.registry.containers import containers_of, with_etags
from trainyard.server.services.sagemaker.registry.packages import load_package

MAX_METADATA = 50

_REPLACED = ("ModelPackageRegistrationType", "SourceUri", "ModelCard", "ModelLifeCycle")


def update_model_package(call: Call, shape: Shape) -> Shape:
    while True:
        resource = load_package(call, shape["ModelPackageArn"])
        stored = package_of(resource)
        request = _changed_request(call, stored.request, shape)
        package = _changed_package(call, stored.package, shape)
        after = StoredPackage(replace(package, containers=containers_of(request)), request)
        ensure_package_recording(
            call.yard.records, package.arn, title=package.title, site=call.yard.compute.site, now=call.now
        )
        if call.yard.records.apply(resource, package_change(after), now=call.now) is not None:
            return {"ModelPackageArn": package.arn}


OPERATIONS: Operations = {"UpdateModelPackage": update_model_package}


def _changed_package(call: Call, package: ModelPackage, shape: Shape) -> ModelPackage:
    approval = shape.get("ModelApprovalStatus")
    if approval and not package.group:
        raise InvalidRequest(f"{package.arn} has no version, so it is neither approved nor rejected.")
    return replace(
        package,
        approval=Approval(approval) if approval else package.approval,
        approval_description=shape.get("ApprovalDescription", package.approval_description),
        modified_by=call.caller.arn,
    )


def _changed_request(call: Call, request: Mapping[str, Any], shape: Shape) -> Mapping[str, Any]:
    changed = {**request, **{member: shape[member] for member in _REPLACED if member in shape}}
    if "InferenceSpecification" in shape:
        changed["InferenceSpecification"] = with_etags(call, shape["InferenceSpecification"])
    if added := shape.get("AdditionalInferenceSpecificationsToAdd"):
        known = list(changed.get("AdditionalInferenceSpecifications", ()))
        changed["AdditionalInferenceSpecifications"] = [*known, *(with_etags(call, each) for each in added)]
    metadata = _changed_metadata(changed.get("CustomerMetadataProperties", {}), shape)
    if metadata:
        return {**changed, "CustomerMetadataProperties": metadata}
    return {member: value for member, value in changed.items() if member != "CustomerMetadataProperties"}


def _changed_metadata(known: Mapping[str, str], shape: Shape) -> Mapping[str, str]:
    removed = shape.get("CustomerMetadataPropertiesToRemove", ())
    kept = {name: value for name, value in known.items() if name not in removed}
    metadata: Mapping[str, str] = kept | shape.get("CustomerMetadataProperties", {})
    if len(metadata) > MAX_METADATA:
        raise InvalidRequest(
            f"The model package would have {len(metadata)} metadata properties; at most {MAX_METADATA} are allowed."
        )
    return metadata

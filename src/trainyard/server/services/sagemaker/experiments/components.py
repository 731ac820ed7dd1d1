"""Trial components: create, describe, list, update and delete."""

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from trainyard.foundation.clock import from_micros
from trainyard.foundation.confined import remove_tree
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.experiments import Artifact, ComponentStatus, TrialComponent, deviation_of
from trainyard.server.experiments.storage import (
    COMPONENT,
    EXPERIMENT,
    METRIC_MEMBERS,
    PARENT_EXPERIMENT,
    PARENT_TRIAL,
    SOURCE_ARN,
    TRIAL,
    component_change,
    component_draft,
    component_of,
    component_outline_of,
    entity_arn,
    indexed_text,
)
from trainyard.server.records.contract import Change, Resource, ValueFilter
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.sagemaker.experiments.entities import (
    change_entity,
    create_entity,
    list_page,
    load_entity,
    tags_of,
    times_of,
    user_shape,
)
from trainyard.server.services.tag_rules import require_tags
from trainyard.wire.fault import Fault

V = TypeVar("V")

MAX_PARAMETERS, MAX_ARTIFACTS = 300, 60

_ENDED = (ComponentStatus.COMPLETED, ComponentStatus.FAILED, ComponentStatus.STOPPED)
_LISTED_BY = ("ExperimentName", "TrialName", "SourceArn")
_ARN = re.compile(r"arn:aws[a-z-]*:sagemaker:[a-z0-9-]*:[0-9]{12}:experiment-trial-component/(?P<name>.+)")
_SOURCE_TYPES = {
    "training-job": "SageMakerTrainingJob",
    "processing-job": "SageMakerProcessingJob",
    "transform-job": "SageMakerTransformJob",
}


def create_trial_component(call: Call, shape: Shape) -> Shape:
    name, tags = shape["TrialComponentName"], tags_of(shape)
    require_tags(tags)
    bare = TrialComponent(
        name=name,
        arn=entity_arn(call.region, call.account, COMPONENT, name),
        metadata=shape.get("MetadataProperties", {}),
        created_by=call.caller.user,
    )
    component = _updated(bare, shape, user=call.caller.user)
    create_entity(call, component_draft(component, account=call.account, region=call.region, tags=tags), name=name)
    return {"TrialComponentArn": component.arn}


def describe_trial_component(call: Call, shape: Shape) -> Shape:
    named = _ARN.fullmatch(shape["TrialComponentName"])
    name = named["name"] if named else shape["TrialComponentName"]
    return component_description(load_entity(call, COMPONENT, name))


def list_trial_components(call: Call, shape: Shape) -> Shape:
    """List all components, or those of an experiment, of a trial, or of a job."""
    given = [member for member in _LISTED_BY if member in shape]
    if len(given) > 1:
        raise InvalidRequest(f"Filter by one of {', '.join(_LISTED_BY)}, not by {' and '.join(given)}.")
    values = tuple(_value_filter(call, member, shape[member]) for member in given)
    return list_page(call, COMPONENT, shape, values=values).answer("TrialComponentSummaries", component_summary)


def update_trial_component(call: Call, shape: Shape) -> Shape:
    def change(resource: Resource) -> Change:
        component = component_of(resource)
        return component_change(component, _updated(component, shape, user=call.caller.user))

    changed = change_entity(call, COMPONENT, shape["TrialComponentName"], change)
    if shape.get("Status", {}).get("PrimaryStatus") in _ENDED:
        # Whoever waited for the end of a run may look for its metrics next.
        yard = call.yard
        yard.metric_inbox.catch_up(yard.records, yard.metrics, changed.id, site=yard.compute.site, now=call.now)
    return {"TrialComponentArn": component_of(changed).arn}


def delete_trial_component(call: Call, shape: Shape) -> Shape:
    while True:
        resource = load_entity(call, COMPONENT, shape["TrialComponentName"])
        component = component_of(resource)
        if component.parents:
            message = f"TrialComponent '{component.arn}' is linked to 1 or more trials and cannot be deleted."
            raise Fault("ValidationException", message)
        if call.yard.records.delete(resource, now=call.now):
            call.yard.metric_inbox.forget(resource.key)
            folder = call.yard.metrics / resource.id
            if folder.exists():
                remove_tree(folder)
            return {"TrialComponentArn": component.arn}


OPERATIONS: Operations = {
    "CreateTrialComponent": create_trial_component,
    "DescribeTrialComponent": describe_trial_component,
    "ListTrialComponents": list_trial_components,
    "UpdateTrialComponent": update_trial_component,
    "DeleteTrialComponent": delete_trial_component,
}


def component_description(resource: Resource) -> Shape:
    """Return the answer of DescribeTrialComponent."""
    component = component_outline_of(resource)
    shape = _shared_members(resource, component) | {
        "Parameters": {name: parameter_shape(value) for name, value in component.parameters.items()},
        "InputArtifacts": {name: artifact_shape(artifact) for name, artifact in component.inputs.items()},
        "OutputArtifacts": {name: artifact_shape(artifact) for name, artifact in component.outputs.items()},
        "Metrics": metric_shapes(resource),
    }
    if component.source_arn:
        shape["Source"] = _source(component)
    return shape | ({"MetadataProperties": dict(component.metadata)} if component.metadata else {})


def component_summary(resource: Resource) -> Shape:
    """Return the entry of a component in ListTrialComponents."""
    component = component_outline_of(resource)
    shape = _shared_members(resource, component)
    return shape | ({"TrialComponentSource": _source(component)} if component.source_arn else {})


def parameter_shape(value: float | str) -> Shape:
    return {"StringValue": value} if isinstance(value, str) else {"NumberValue": float(value)}


def artifact_shape(artifact: Artifact) -> Shape:
    return {"Value": artifact.value} | ({"MediaType": artifact.media_type} if artifact.media_type else {})


def metric_shapes(resource: Resource) -> list[Shape]:
    """Return the statistics of all metrics. It reads the stored members, which is five times faster."""
    body = resource.body
    arns = (body.get("source_arn") or body["arn"], body["arn"])
    found: dict[str, Shape] = {}
    for arn, member in zip(arns, METRIC_MEMBERS, strict=True):
        for name, plain in body.get(member, {}).items():
            found[name] = _metric_shape(name, plain, arn)
    return list(found.values())


def _metric_shape(name: str, plain: Mapping[str, Any], source_arn: str) -> Shape:
    """Return the statistics of a metric, from the stored members of its MetricStatistics."""
    shape: Shape = {
        "MetricName": name,
        "SourceArn": source_arn,
        "TimeStamp": from_micros(plain["at"]),
        "Last": plain["last"],
        "Count": plain["count"],
    }
    for member, stored in (("Min", "minimum"), ("Max", "maximum"), ("Avg", "mean")):
        if stored in plain:
            shape[member] = plain[stored]
    deviation = deviation_of(plain.get("squares"), plain.get("finite_count", 0))
    return shape if deviation is None else shape | {"StdDev": deviation}


def _shared_members(resource: Resource, component: TrialComponent) -> Shape:
    """Return the members that a description and a summary share."""
    shape: Shape = {
        "TrialComponentName": component.name,
        "TrialComponentArn": component.arn,
        "DisplayName": component.display_name or component.name,
        **times_of(resource),
        "CreatedBy": user_shape(component.created_by),
        "LastModifiedBy": user_shape(component.modified_by),
    }
    if component.status is not None:
        shape["Status"] = {"PrimaryStatus": component.status, "Message": component.message}
    times = {"StartTime": component.started_at, "EndTime": component.ended_at}
    return shape | {member: at for member, at in times.items() if at is not None}


def _source(component: TrialComponent) -> Shape:
    arn_type = component.source_arn.split(":")[-1].partition("/")[0]
    source_type = _SOURCE_TYPES.get(arn_type)
    return {"SourceArn": component.source_arn} | ({"SourceType": source_type} if source_type else {})


def _value_filter(call: Call, member: str, given: str) -> ValueFilter:
    if member == "SourceArn":
        return ValueFilter(SOURCE_ARN, (indexed_text(given.lower()),))
    kind, value = (TRIAL, PARENT_TRIAL) if member == "TrialName" else (EXPERIMENT, PARENT_EXPERIMENT)
    return ValueFilter(value, (indexed_text(load_entity(call, kind, given).key.name),))


def _updated(component: TrialComponent, shape: Shape, *, user: str) -> TrialComponent:
    """Return a component with what a create or an update call gives it."""
    status = shape.get("Status", {})
    parameters = {name: _parameter(name, value) for name, value in shape.get("Parameters", {}).items()}
    updated = replace(
        component,
        display_name=shape.get("DisplayName", component.display_name),
        status=ComponentStatus(status["PrimaryStatus"]) if "PrimaryStatus" in status else component.status,
        message=status.get("Message", "" if "PrimaryStatus" in status else component.message),
        started_at=shape.get("StartTime", component.started_at),
        ended_at=shape.get("EndTime", component.ended_at),
        parameters=_merged(component.parameters, parameters, shape.get("ParametersToRemove", ())),
        inputs=_merged(component.inputs, _artifacts(shape, "InputArtifacts"), shape.get("InputArtifactsToRemove", ())),
        outputs=_merged(
            component.outputs, _artifacts(shape, "OutputArtifacts"), shape.get("OutputArtifactsToRemove", ())
        ),
        modified_by=user,
    )
    _require_room("parameters", len(updated.parameters), MAX_PARAMETERS)
    _require_room("input artifacts", len(updated.inputs), MAX_ARTIFACTS)
    _require_room("output artifacts", len(updated.outputs), MAX_ARTIFACTS)
    return updated


def _merged(known: Mapping[str, V], added: Mapping[str, V], removed: Collection[str]) -> dict[str, V]:
    return {name: value for name, value in {**known, **added}.items() if name not in removed}


def _parameter(name: str, shape: Shape) -> float | str:
    if len(shape) != 1:
        raise InvalidRequest(f'The parameter "{name}" needs either a StringValue or a NumberValue.')
    [value] = shape.values()
    return value if isinstance(value, str) else float(value)


def _artifacts(shape: Shape, member: str) -> dict[str, Artifact]:
    return {name: Artifact(each["Value"], each.get("MediaType", "")) for name, each in shape.get(member, {}).items()}


def _require_room(things: str, count: int, limit: int) -> None:
    if count > limit:
        raise Fault(
            "ValidationException",
            f"The trial component would have {count} {things}; at most {limit} are allowed. Remove some.",
        )

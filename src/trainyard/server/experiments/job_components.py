"""The trial components that training jobs make by themselves.

A component has what the job was given from the start, and follows its status, times, metrics and results. Everything
here can be repeated: the same job makes the same component.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from trainyard.foundation.errors import AlreadyExists, NotFound
from trainyard.foundation.experiments import (
    Artifact,
    ComponentStatus,
    ExperimentTrial,
    MetricStatistics,
    Parent,
    TrialComponent,
    component_name_of_job,
)
from trainyard.foundation.jobs.attempts import MetricSummary
from trainyard.foundation.jobs.result_locations import MODEL
from trainyard.foundation.jobs.status import PRIMARY, SecondaryStatus
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.server.experiments.storage import (
    COMPONENT,
    EXPERIMENT,
    TRIAL,
    component_change,
    component_draft,
    component_of,
    entity_arn,
    entity_key,
    experiment_of,
    finite_number,
    trial_draft,
    trial_of,
)
from trainyard.server.jobs.instance_jobs import request_of
from trainyard.server.jobs.training import job_of
from trainyard.server.records.contract import Change, Records, Resource, ResourceId, ResourceKey

# The limits of AWS. What is beyond them stays in the job only.
MAX_PARAMETERS, MAX_ARTIFACTS = 300, 60
MAX_VALUE_LENGTH, MAX_MESSAGE_LENGTH = 2500, 1024

_MEDIA_TYPE = re.compile(r"[-\w]+/[-\w+]+")


def update_component(records: Records, resource: Resource, *, now: datetime) -> None:
    """Bring the component of a job up to date with it, and make the component if it has none."""
    job, request = job_of(resource), request_of(resource)
    key = entity_key(job.account, COMPONENT, component_name_of_job(job.name))
    while True:
        try:
            known = records.load(key)
        except NotFound:
            known = None
        if known is None:
            parent = _parent_of(records, job, request, now=now)
            made = _component_now(_component_of_job(resource, job, request, parent), job)
            try:
                records.create(
                    component_draft(made, account=job.account, region=job.region, tags={}), now=max(now, job.created_at)
                )
            except AlreadyExists:
                continue
            _keep_parent(records, key.account, parent, now=now)
            return
        before = component_of(known)
        if before.source_arn != job.arn.lower():
            # A user has given this name to a component of their own.
            return
        after = before
        if before.source_id != resource.id:
            # An earlier job had the same name, and was deleted.
            after = _component_of_job(resource, job, request, _parent_of(records, job, request, now=now))
        after = _component_now(after, job)
        if after == before:
            return
        change = component_change(
            before, after, is_quiet=(before.status, before.message) == (after.status, after.message)
        )
        if records.apply(known, change, now=now) is not None:
            return


def end_component(
    records: Records, key: ResourceKey, job_id: ResourceId, last: SecondaryStatus | None, *, now: datetime
) -> None:
    """End the component of a job that was deleted before the component had followed it to its end."""
    while True:
        try:
            known = records.load(key)
        except NotFound:
            return
        before = component_of(known)
        if before.source_id != job_id or before.status not in (ComponentStatus.IN_PROGRESS, ComponentStatus.STOPPING):
            return
        status = ComponentStatus(PRIMARY[last]) if last is not None else ComponentStatus.STOPPED
        after = replace(before, status=status, message="The training job was deleted.", ended_at=now)
        if records.apply(known, component_change(before, after), now=now) is not None:
            return


def _component_of_job(
    resource: Resource, job: TrainingJob, request: Mapping[str, Any], parent: Parent | None
) -> TrialComponent:
    """Return the component with what never changes."""
    config = request.get("ExperimentConfig", {})
    name = component_name_of_job(job.name)
    return TrialComponent(
        name=name,
        arn=entity_arn(job.region, job.account, COMPONENT, name),
        display_name=config.get("TrialComponentDisplayName", ""),
        source_arn=job.arn.lower(),
        source_id=resource.id,
        run_name=config.get("RunName", ""),
        parameters=_parameters(job, request),
        inputs=_inputs(job),
        outputs=_outputs(job),
        parents=(parent,) if parent else (),
    )


def _component_now(component: TrialComponent, job: TrainingJob) -> TrialComponent:
    """Return the component with the status, the times, the metrics and the results of the job as they are now."""
    outputs = dict(component.outputs)
    if MODEL in job.artifacts:
        outputs["SageMaker.ModelArtifact"] = Artifact(job.artifacts[MODEL].uri)
    message = f"Status: {job.status}, secondary status: {job.secondary}, failure reason: {job.failure}."
    return replace(
        component,
        status=ComponentStatus(job.status),
        message=message[:MAX_MESSAGE_LENGTH],
        started_at=job.started_at,
        ended_at=job.ended_at,
        outputs=outputs,
        source_metrics={name: _statistics(summary) for name, summary in job.metrics.items()},
    )


def _parameters(job: TrainingJob, request: Mapping[str, Any]) -> dict[str, float | str]:
    resources = request.get("ResourceConfig", {})
    parameters: dict[str, float | str] = {
        "SageMaker.ImageUri": job.plan.image,
        "SageMaker.InstanceCount": float(job.plan.instance_count),
        "SageMaker.InstanceType": job.plan.instance_type,
        "SageMaker.VolumeSizeInGB": float(resources.get("VolumeSizeInGB", 0)),
    }
    for name, value in job.plan.hyperparameters.items():
        number = finite_number(value)
        parameters[name] = value[:MAX_VALUE_LENGTH] if number is None else number
    return dict(list(parameters.items())[:MAX_PARAMETERS])


def _inputs(job: TrainingJob) -> dict[str, Artifact]:
    inputs = {"SageMaker.ImageUri": Artifact(job.plan.image)}
    for channel in job.plan.channels:
        given = channel.content_type or ""
        media_type = given if _MEDIA_TYPE.fullmatch(given) else ""
        inputs[channel.name] = Artifact(channel.uri or f"{channel.file_system}:{channel.directory}", media_type)
    return dict(list(inputs.items())[:MAX_ARTIFACTS])


def _outputs(job: TrainingJob) -> dict[str, Artifact]:
    uris = {
        "SageMaker.DebugHookOutput": job.plan.debugger.uri if job.plan.debugger else "",
        "SageMaker.CheckpointOutput": job.plan.checkpoint_uri,
    }
    return {name: Artifact(uri) for name, uri in uris.items() if uri}


def _statistics(summary: MetricSummary) -> MetricStatistics:
    # An agent reports no sums, so the mean is not known.
    return MetricStatistics(
        summary.value, summary.at, summary.count, summary.count, minimum=summary.lowest, maximum=summary.highest
    )


def _parent_of(records: Records, job: TrainingJob, request: Mapping[str, Any], *, now: datetime) -> Parent | None:
    """Return the trial of a job, which is made if the job only names its experiment; None if it belongs to none."""
    config = request.get("ExperimentConfig", {})
    if "TrialName" in config:
        try:
            trial = trial_of(records.load(entity_key(job.account, TRIAL, config["TrialName"])))
        except NotFound:
            return None
        return Parent(trial.name, trial.experiment)
    if "ExperimentName" not in config:
        return None
    try:
        experiment = records.load(entity_key(job.account, EXPERIMENT, config["ExperimentName"]))
    except NotFound:
        return None
    name = f"{job.name}-aws-trial"
    arn = entity_arn(job.region, job.account, TRIAL, name)
    trial = ExperimentTrial(name=name, arn=arn, experiment=experiment_of(experiment).name)
    draft = trial_draft(trial, parent=experiment.id, account=job.account, region=job.region, tags={})
    try:
        records.create(draft, now=now)
    except AlreadyExists:
        # By an earlier try, or by a user.
        trial = trial_of(records.load(draft.key))
    except NotFound:
        return None
    return Parent(trial.name, trial.experiment)


def _keep_parent(records: Records, account: str, parent: Parent | None, *, now: datetime) -> None:
    """Change the revision of the trial, so that whoever deletes it now looks again and finds the component."""
    while parent is not None:
        try:
            trial = records.load(entity_key(account, TRIAL, parent.trial))
        except NotFound:
            return
        if records.apply(trial, Change(is_quiet=True), now=now) is not None:
            return

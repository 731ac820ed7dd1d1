"""CreateTrainingJob: everything that can be known to go wrong is refused before the job is accepted."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from trainyard.engines.choosing import Wanted
from trainyard.foundation.errors import AlreadyExists, InvalidRequest, NotFound
from trainyard.foundation.jobs import InstanceGroup, MetricDefinition, TrainingJob, TrainingPlan
from trainyard.foundation.transitions import first_transition
from trainyard.server import roles
from trainyard.server.jobs import (
    KIND,
    LOG_GROUP,
    capacity_kind_of,
    draft_of,
    job_of,
    reminders_of,
    training_job_arn,
)
from trainyard.server.quotas import Quotas
from trainyard.server.records.contract import CounterFull, Draft, NewEvent, Resource, ResourceKey
from trainyard.server.services.contract import Call, Operations, Shape, Yard
from trainyard.server.services.logs.storage import GROUP, ensure_group
from trainyard.server.services.sagemaker.assignment import assignment_notes, engine_for, is_spread, runs_images
from trainyard.server.services.sagemaker.debugging import debugger_of, notes_on_debugger, require_locations_of
from trainyard.server.services.sagemaker.images import require_image
from trainyard.server.services.sagemaker.inputs import channels_of, require_bucket, require_channels, require_object
from trainyard.server.services.sagemaker.isolation import require_encryption
from trainyard.server.services.sagemaker.launchers import launch_of
from trainyard.server.services.sagemaker.pools import pool_key_of
from trainyard.server.services.sagemaker.program import DIRECTORY, Program, channel_of_code, program_of
from trainyard.server.services.sagemaker.resources import billed_share, groups_of, require_known_groups
from trainyard.server.services.sagemaker.synced import checkpoints_of, tensorboard_of
from trainyard.server.services.sagemaker.unserved import notes_on, require_served
from trainyard.server.services.tag_rules import require_tags
from trainyard.wire.fault import Fault

DEFAULT_MAX_RUNTIME_S = 86400


@dataclass(frozen=True, slots=True)
class Owner:
    """For whom a training job is made, where and when: for who calls, or for whose tuning job it is a trial of."""

    yard: Yard
    account: str
    region: str
    now: datetime


def create_training_job(call: Call, shape: Shape) -> Shape:
    owner = Owner(call.yard, call.account, call.region, call.now)
    job = checked_job(owner, shape)
    begin_job(owner, job, shape)
    return {"TrainingJobArn": job.arn}


OPERATIONS: Operations = {"CreateTrainingJob": create_training_job}


def checked_job(owner: Owner, shape: Shape) -> TrainingJob:
    """The job that a request asks for, not yet remembered. InvalidRequest when it cannot be had."""
    _require_whole(shape)
    require_served(shape)
    require_tags(_tags(shape))
    plan = _plan(owner, shape)
    workshop = owner.yard.workshop
    notes = assignment_notes(workshop, plan)
    require_image(workshop, plan.image, account=owner.account)
    require_encryption(shape, plan, engine=workshop.engines[plan.engine])
    _require_locations(owner, plan)
    if plan.debugger:
        require_locations_of(plan.debugger, shape, owner.yard.objects, account=owner.account)
    name = shape["TrainingJobName"]
    return TrainingJob(
        name=name,
        arn=training_job_arn(owner.region, owner.account, name),
        account=owner.account,
        region=owner.region,
        plan=plan,
        created_at=owner.now,
        transitions=(first_transition(owner.now),),
        site=workshop.site,
        notes=(*notes, *notes_on(shape), *notes_on_debugger(shape)),
    )


def begin_job(owner: Owner, job: TrainingJob, shape: Shape) -> Resource:
    """Remember a checked job, which is then due. A Fault says that its name is taken, LimitExceeded that it must wait.

    What is remembered of the request may have members that no create call has, such as `TuningJobArn`.
    """
    request = {member: value for member, value in shape.items() if member != "Tags"}
    # Before the first instance: an administrator without a group of its own would be shown those of others.
    group = ResourceKey(owner.account, GROUP, LOG_GROUP)
    ensure_group(owner.yard.records, group, region=owner.region, now=owner.now)
    created = _remembered(owner, job, draft=draft_of(job, request, tags=_tags(shape)))
    owner.yard.workshop.wake(created.id)
    return created


def _tags(shape: Shape) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in shape.get("Tags", ())}


def _require_whole(shape: Shape) -> None:
    """What the model leaves open because jobs without instances exist, and what no pattern can say."""
    for member in ("AlgorithmSpecification", "ResourceConfig", "StoppingCondition"):
        if member not in shape:
            raise InvalidRequest(f"{member} is required.")
    if (
        not shape["AlgorithmSpecification"].get("TrainingImage")
        and "AlgorithmName" not in shape["AlgorithmSpecification"]
    ):
        raise InvalidRequest("AlgorithmSpecification needs a TrainingImage.")
    _require_times(shape)


def _require_times(shape: Shape) -> None:
    stopping = shape["StoppingCondition"]
    is_spot, wait_s = shape.get("EnableManagedSpotTraining", False), stopping.get("MaxWaitTimeInSeconds")
    if not is_spot and wait_s is not None:
        raise InvalidRequest("MaxWaitTimeInSeconds is only for jobs with EnableManagedSpotTraining.")
    if is_spot and wait_s is None:
        raise InvalidRequest("A job with EnableManagedSpotTraining needs a MaxWaitTimeInSeconds.")
    run_s = stopping.get("MaxRuntimeInSeconds", DEFAULT_MAX_RUNTIME_S)
    if wait_s is not None and wait_s < run_s:
        raise InvalidRequest(
            f"MaxWaitTimeInSeconds is {wait_s}, which is less than the MaxRuntimeInSeconds of {run_s}; it includes it."
        )


def _plan(owner: Owner, shape: Shape) -> TrainingPlan:
    algorithm, resources = shape["AlgorithmSpecification"], shape["ResourceConfig"]
    workshop, tags = owner.yard.workshop, _tags(shape)
    checkpoints, tensorboard = checkpoints_of(shape), tensorboard_of(shape)
    is_spot = shape.get("EnableManagedSpotTraining", False)
    groups, channels = groups_of(resources), channels_of(shape)
    require_known_groups(channels, groups)
    types = [workshop.catalog[group.instance_type] for group in groups for _ in range(group.count)]
    wanted = Wanted(algorithm["TrainingImage"], [group.instance_type for group in groups], tags)
    engine = workshop.engines[engine_for(workshop, wanted).engine]
    plan = TrainingPlan(
        image=algorithm["TrainingImage"],
        instance_type=groups[0].instance_type,
        instance_count=len(types),
        groups=groups if resources.get("InstanceGroups") else (),
        role=_role_name(owner, shape["RoleArn"]),
        output_path=shape["OutputDataConfig"]["S3OutputPath"],
        hyperparameters=shape.get("HyperParameters", {}),
        environment=shape.get("Environment", {}),
        channels=channels,
        metrics=tuple(map(_metric, algorithm.get("MetricDefinitions", ()))),
        max_runtime_s=shape["StoppingCondition"].get("MaxRuntimeInSeconds", DEFAULT_MAX_RUNTIME_S),
        max_pending_s=shape["StoppingCondition"].get("MaxPendingTimeInSeconds"),
        retries=shape.get("RetryStrategy", {}).get("MaximumRetryAttempts", 0),
        is_isolated=shape.get("EnableNetworkIsolation", False),
        is_spot=is_spot,
        max_wait_s=shape["StoppingCondition"].get("MaxWaitTimeInSeconds"),
        billed_share=billed_share(types, is_spot=is_spot),
        checkpoint_uri=checkpoints.uri,
        checkpoint_path=checkpoints.path,
        tensorboard_uri=tensorboard.uri,
        tensorboard_path=tensorboard.path,
        keep_alive_s=resources.get("KeepAlivePeriodInSeconds", 0),
        pool_key=pool_key_of(shape, engine=engine.name),
        debugger=debugger_of(shape, workshop.gateways),
        engine=engine.name,
        is_spread=is_spread(tags),
    )
    return _with_program(plan, groups, program_of(algorithm, plan.hyperparameters, runs_image=runs_images(engine)))


def _with_program(plan: TrainingPlan, groups: Sequence[InstanceGroup], program: Program) -> TrainingPlan:
    return replace(
        plan,
        entry_point=program.entry_point,
        submit_directory=program.submit_directory,
        command=program.command,
        arguments=program.arguments,
        launch=launch_of(plan.hyperparameters, groups, program=program, image=plan.image),
    )


def _role_name(owner: Owner, arn: str) -> str:
    try:
        role = roles.load_role(owner.yard.records, arn)
    except NotFound:
        role = None
    if role is None or role.key.account != owner.account:
        raise InvalidRequest(
            f"Could not assume role {arn}: your account has no such role. `aws iam list-roles` shows those it has."
        )
    return role.key.name


def _metric(definition: dict[str, Any]) -> MetricDefinition:
    try:
        re.compile(definition["Regex"])
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidRequest(
            f'The regex of the metric "{definition["Name"]}" is {definition["Regex"]!r}, which is none: {error}.'
        ) from error
    return MetricDefinition(definition["Name"], definition["Regex"])


def _require_locations(owner: Owner, plan: TrainingPlan) -> None:
    objects, account = owner.yard.objects, owner.account
    _require_code(owner, plan)
    require_bucket(objects, plan.output_path, account=account, member="S3OutputPath")
    if plan.checkpoint_uri:
        require_bucket(objects, plan.checkpoint_uri, account=account, member="CheckpointConfig.S3Uri")
    if plan.tensorboard_uri:
        require_bucket(objects, plan.tensorboard_uri, account=account, member="TensorBoardOutputConfig.S3OutputPath")
    file_systems = owner.yard.workshop.file_systems
    require_channels(objects, plan.channels, account=account, file_systems=file_systems)


def _require_code(owner: Owner, plan: TrainingPlan) -> None:
    channel = channel_of_code(plan.submit_directory)
    if channel and channel not in {each.name for each in plan.channels if each.mode != "Pipe"}:
        raise InvalidRequest(f'{DIRECTORY} is {plan.submit_directory}, but no channel of files is called "{channel}".')
    if plan.submit_directory and not channel:
        require_object(owner.yard.objects, plan.submit_directory, account=owner.account, member=DIRECTORY)


def _remembered(owner: Owner, job: TrainingJob, *, draft: Draft) -> Resource:
    """The job in the records, with what reminds the yard of the limits to its time."""
    records, quotas = owner.yard.records, Quotas(owner.yard.records)
    limits = quotas.limits(job.account, job.plan.instance_types, kind=capacity_kind_of(job))
    reminders = [records.create(reminder, now=owner.now) for reminder in reminders_of(job)]
    try:
        event = NewEvent("training-job.created", {"name": job.name})
        return records.create(draft, now=owner.now, event=event, limits=limits)
    except (AlreadyExists, CounterFull) as error:
        for reminder in reminders:
            records.delete(reminder, now=owner.now)
        raise (quotas.exceeded(error) if isinstance(error, CounterFull) else _taken(owner, job.name)) from error


def _taken(owner: Owner, name: str) -> Fault:
    """The words and the code are AWS's; the SDK looks for them."""
    message = "Training job names must be unique within an AWS account and region"
    try:
        arn = job_of(owner.yard.records.load(ResourceKey(owner.account, KIND, name))).arn
    except NotFound:  # deleted meanwhile
        return Fault("ResourceInUse", f"{message}; {name} was in use a moment ago.")
    return Fault("ResourceInUse", f"{message}, and a training job with this name already exists ({arn})")

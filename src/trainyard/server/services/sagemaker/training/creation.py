"""CreateTrainingJob: whatever is sure to fail is refused before the job is accepted."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from trainyard.engines.selection import SelectionRequest
from trainyard.foundation.errors import AlreadyExists, InvalidRequest, NotFound
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.foundation.jobs.training.plan import InstanceGroupPlan, MetricDefinition, ProfilerPlan, TrainingPlan
from trainyard.foundation.jobs.training.transitions import first_transition
from trainyard.server.experiments.job_components import update_component
from trainyard.server.jobs.instance_jobs import capacity_kind_of
from trainyard.server.jobs.profile_evaluations import evaluations_of
from trainyard.server.jobs.quotas import Quotas
from trainyard.server.jobs.training import KIND, LOG_GROUP, draft_of, job_of, reminders_of, training_job_arn
from trainyard.server.log_streams import GROUP, ensure_group
from trainyard.server.records.contract import CounterFull, Draft, NewEvent, Resource, ResourceKey
from trainyard.server.services.contract import Call, Operations, Shape, Yard
from trainyard.server.services.sagemaker.training.built_in_algorithms import refuse_built_in_algorithm
from trainyard.server.services.sagemaker.training.debugger import (
    debugger_of,
    notes_on_debugger,
    require_debugger_locations,
)
from trainyard.server.services.sagemaker.training.encryption_keys import (
    find_output_key,
    require_encrypted_disks,
)
from trainyard.server.services.sagemaker.training.engine_assignment import (
    assignment_notes,
    is_spread,
    require_encryption,
    require_image,
    require_warm_workers,
    runs_images,
    select_job_engine,
)
from trainyard.server.services.sagemaker.training.experiment import require_experiment
from trainyard.server.services.sagemaker.training.inputs import (
    channels_of,
    require_bucket,
    require_channels,
    require_object,
)
from trainyard.server.services.sagemaker.training.instances import (
    billed_share,
    groups_of,
    pool_key_of,
    require_known_groups,
)
from trainyard.server.services.sagemaker.training.job_role import JobRole, job_role_of
from trainyard.server.services.sagemaker.training.launchers import launch_of
from trainyard.server.services.sagemaker.training.local_paths import (
    checkpoints_of,
    tensorboard_of,
)
from trainyard.server.services.sagemaker.training.profiler import (
    notes_on_profiler,
    profiler_of,
    require_enabled,
    require_profiler_locations,
    unavailable_rules,
)
from trainyard.server.services.sagemaker.training.program import (
    DIRECTORY,
    TrainingProgram,
    channel_of_code,
    program_of,
)
from trainyard.server.services.sagemaker.training.unsupported import notes_on, require_served
from trainyard.server.services.tag_rules import require_tags
from trainyard.wire.fault import Fault

DEFAULT_MAX_RUNTIME_S = 86400


@dataclass(frozen=True, slots=True)
class JobOwner:
    """For whom, where and when a training job is created: for the caller, or for the owner of a tuning job."""

    yard: Yard
    account: str
    region: str
    now: datetime


def create_training_job(call: Call, shape: Shape) -> Shape:
    owner = JobOwner(call.yard, call.account, call.region, call.now)
    job = build_training_job(owner, shape)
    submit_training_job(owner, job, shape)
    return {"TrainingJobArn": job.arn}


OPERATIONS: Operations = {"CreateTrainingJob": create_training_job}


def build_training_job(owner: JobOwner, shape: Shape) -> TrainingJob:
    """Return the job that a request asks for, not yet stored; InvalidRequest if it cannot run."""
    _require_members(shape)
    require_served(shape)
    require_encrypted_disks(owner.yard.compute, shape)
    require_tags(_tags(shape))
    refuse_built_in_algorithm(owner.yard.compute, shape["AlgorithmSpecification"], shape.get("HyperParameters", {}))
    role = job_role_of(owner.yard.records, shape["RoleArn"], account=owner.account)
    plan = _plan(owner, shape, role)
    compute = owner.yard.compute
    notes = assignment_notes(compute, plan)
    require_warm_workers(plan, compute.engines[plan.engine])
    require_image(compute, plan.image, account=owner.account)
    require_encryption(shape, plan, engine=compute.engines[plan.engine])
    _require_locations(owner, plan)
    require_experiment(
        owner.yard.records, shape.get("ExperimentConfig", {}), account=owner.account, region=owner.region
    )
    if plan.debugger:
        require_debugger_locations(plan.debugger, shape, owner.yard.objects, account=owner.account)
    require_profiler_locations(shape, owner.yard.objects, account=owner.account)
    name = shape["TrainingJobName"]
    return TrainingJob(
        name=name,
        arn=training_job_arn(owner.region, owner.account, name),
        account=owner.account,
        region=owner.region,
        plan=plan,
        created_at=owner.now,
        transitions=(first_transition(owner.now),),
        site=compute.site,
        notes=(*notes, *role.notes, *notes_on(shape), *notes_on_debugger(shape), *notes_on_profiler(shape)),
        profiler_rules=unavailable_rules(plan.profiler, now=owner.now) if plan.profiler else (),
    )


def submit_training_job(owner: JobOwner, job: TrainingJob, shape: Shape) -> Resource:
    """Store a job and wake the controller. Raises a Fault if its name is in use, LimitExceeded if a quota is full.

    The stored request may have members that no create call has, such as `TuningJobArn`.
    """
    request = {member: value for member, value in shape.items() if member != "Tags"}
    # Created before the first instance: an administrator without a group would be shown those of other accounts.
    group = ResourceKey(owner.account, GROUP, LOG_GROUP)
    ensure_group(owner.yard.records, group, region=owner.region, now=owner.now)
    created = _store_job(owner, job, draft=draft_of(job, request, tags=_tags(shape)))
    if "ExperimentConfig" in shape:
        # Scripts look for the component of their job when they start. Those of other jobs follow a moment later.
        update_component(owner.yard.records, created, now=owner.now)
    owner.yard.compute.wake(created.id)
    return created


def _tags(shape: Shape) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in shape.get("Tags", ())}


def _require_members(shape: Shape) -> None:
    """Require members that AWS's model leaves optional because it has jobs without instances."""
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
            f"MaxWaitTimeInSeconds is {wait_s}, but it includes the MaxRuntimeInSeconds of {run_s}; raise it."
        )


def _plan(owner: JobOwner, shape: Shape, role: JobRole) -> TrainingPlan:
    algorithm, resources = shape["AlgorithmSpecification"], shape["ResourceConfig"]
    compute, tags = owner.yard.compute, _tags(shape)
    checkpoints, tensorboard = checkpoints_of(shape), tensorboard_of(shape)
    is_spot = shape.get("EnableManagedSpotTraining", False)
    groups, channels = groups_of(resources), channels_of(shape)
    require_known_groups(channels, groups)
    types = [compute.catalog[group.instance_type] for group in groups for _ in range(group.count)]
    selection = SelectionRequest(algorithm["TrainingImage"], [group.instance_type for group in groups], tags)
    engine = compute.engines[select_job_engine(compute, selection).engine]
    plan = TrainingPlan(
        image=algorithm["TrainingImage"],
        instance_type=groups[0].instance_type,
        instance_count=len(types),
        groups=groups if resources.get("InstanceGroups") else (),
        role=role.name,
        output_path=shape["OutputDataConfig"]["S3OutputPath"],
        is_output_compressed=shape["OutputDataConfig"].get("CompressionType") != "NONE",
        output_key=find_output_key(
            owner.yard.objects, shape, account=owner.account, region=owner.region, now=owner.now
        ),
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
        debugger=debugger_of(shape, compute.gateways),
        profiler=_profiler(owner, shape),
        engine=engine.name,
        is_spread=is_spread(tags),
    )
    return _with_program(plan, groups, program_of(algorithm, plan.hyperparameters, runs_image=runs_images(engine)))


def _profiler(owner: JobOwner, shape: Shape) -> ProfilerPlan:
    plan = profiler_of(shape, owner.yard.compute.gateways)
    require_enabled(plan)
    return plan


def _with_program(plan: TrainingPlan, groups: Sequence[InstanceGroupPlan], program: TrainingProgram) -> TrainingPlan:
    return replace(
        plan,
        entry_point=program.entry_point,
        submit_directory=program.submit_directory,
        command=program.command,
        arguments=program.arguments,
        launch=launch_of(plan.hyperparameters, groups, program=program, image=plan.image),
    )


def _metric(definition: dict[str, Any]) -> MetricDefinition:
    try:
        re.compile(definition["Regex"])
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidRequest(
            f'The metric "{definition["Name"]}" has an invalid regular expression {definition["Regex"]!r}: {error}.'
        ) from error
    return MetricDefinition(definition["Name"], definition["Regex"])


def _require_locations(owner: JobOwner, plan: TrainingPlan) -> None:
    objects, account = owner.yard.objects, owner.account
    _require_code(owner, plan)
    require_bucket(objects, plan.output_path, account=account, member="S3OutputPath")
    if plan.checkpoint_uri:
        require_bucket(objects, plan.checkpoint_uri, account=account, member="CheckpointConfig.S3Uri")
    if plan.tensorboard_uri:
        require_bucket(objects, plan.tensorboard_uri, account=account, member="TensorBoardOutputConfig.S3OutputPath")
    file_systems = owner.yard.compute.file_systems
    require_channels(objects, plan.channels, account=account, file_systems=file_systems)


def _require_code(owner: JobOwner, plan: TrainingPlan) -> None:
    channel = channel_of_code(plan.submit_directory)
    if channel and channel not in {each.name for each in plan.channels if each.mode != "Pipe"}:
        raise InvalidRequest(
            f'{DIRECTORY} is {plan.submit_directory}, but no File or FastFile channel is named "{channel}".'
        )
    if plan.submit_directory and not channel:
        require_object(owner.yard.objects, plan.submit_directory, account=owner.account, member=DIRECTORY)


def _store_job(owner: JobOwner, job: TrainingJob, *, draft: Draft) -> Resource:
    """Store the job, the timers of its time limits, and the evaluation of its profiler rules."""
    records, quotas = owner.yard.records, Quotas(owner.yard.records)
    limits = quotas.limits(job.account, job.plan.instance_types, kind=capacity_kind_of(job))
    timers = [records.create(timer, now=owner.now) for timer in (*reminders_of(job), *evaluations_of(job))]
    try:
        event = NewEvent("training-job.created", {"name": job.name})
        return records.create(draft, now=owner.now, event=event, limits=limits)
    except (AlreadyExists, CounterFull) as error:
        for timer in timers:
            records.delete(timer, now=owner.now)
        raise (
            quotas.limit_error(error) if isinstance(error, CounterFull) else _name_in_use(owner, job.name)
        ) from error


def _name_in_use(owner: JobOwner, name: str) -> Fault:
    """Return the error of a name in use. Its code and words are those of AWS, which the SDK looks for."""
    message = "Training job names must be unique within an AWS account and region"
    try:
        arn = job_of(owner.yard.records.load(ResourceKey(owner.account, KIND, name))).arn
    except NotFound:
        # The other job was deleted in the meantime.
        return Fault("ResourceInUse", f"{message}; {name} was in use a moment ago. Try again.")
    return Fault("ResourceInUse", f"{message}, and a training job with this name already exists ({arn})")

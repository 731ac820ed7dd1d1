"""AdoptTrainingJobs: make ended training jobs the trials of a completed tuning job.

Results found by hand or by a script are as good a start for a new tuning job as those of another tuning job.
"""

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainyard.foundation.errors import AlreadyExists, Conflict, InvalidRequest, NotFound
from trainyard.foundation.jobs.tuning import (
    Direction,
    Objective,
    RangeKind,
    StrategyKind,
    TuningDefinition,
    TuningJob,
    TuningPlan,
    TuningStatus,
    TuningTrial,
)
from trainyard.insight.tuning.completion import measured_value, progress_of
from trainyard.server.control.tuning.outcomes import end_trial
from trainyard.server.jobs import instance_jobs, training
from trainyard.server.jobs.tuning import draft_of, request_of, trial_draft, tuning_job_arn, tuning_key
from trainyard.server.records.contract import NewEvent, Query, Resource, ResourceKey, SortBy
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.sagemaker.tuning.ranges import ranges_of
from trainyard.server.services.sagemaker.tuning.trial_requests import OBJECTIVE

MAX_JOBS = 1000

_SDK_PREFIX = "sagemaker_"
_COPIED = ("RoleArn", "InputDataConfig", "OutputDataConfig", "ResourceConfig", "StoppingCondition")
_ALGORITHM_MEMBERS = ("TrainingImage", "AlgorithmName", "TrainingInputMode", "MetricDefinitions")


def adopt_training_jobs(call: Call, shape: Shape) -> Shape:
    """Create a tuning job from the caller's training jobs. Repeating the call completes what is missing."""
    objective = Objective(shape["Objective"]["MetricName"], Direction(shape["Objective"]["Type"]))
    adopted = _select_jobs(call, shape, TuningDefinition("", objective, ranges_of(shape["ParameterRanges"])))
    definition = _with_static(adopted)
    job = _tuning_job(call, shape["HyperParameterTuningJobName"], definition=definition, trials=adopted.trials)
    parent = _store_tuning_job(call, job, request=_request(shape, adopted, static=definition.static))
    for trial in adopted.trials:
        with contextlib.suppress(AlreadyExists):
            call.yard.records.create(trial_draft(parent, trial), now=trial.created_at or call.now)
    return {
        "HyperParameterTuningJobArn": job.arn,
        "AdoptedJobs": [trial.job for trial in adopted.trials],
        "PassedOver": [{"TrainingJobName": name, "Reason": why} for name, why in adopted.passed_over.items()],
    }


OPERATIONS: Operations = {"AdoptTrainingJobs": adopt_training_jobs}


@dataclass(frozen=True, slots=True)
class _AdoptedJobs:
    """The training jobs to adopt as trials, oldest first, and why others were passed over."""

    definition: TuningDefinition
    resources: Sequence[Resource]
    trials: Sequence[TuningTrial]
    passed_over: Mapping[str, str]


def _select_jobs(call: Call, shape: Shape, definition: TuningDefinition) -> _AdoptedJobs:
    resources, passed_over = [], {}
    for resource in sorted(_requested_jobs(call, shape), key=lambda each: (each.created_at, each.key.name)):
        reason = _refusal(resource, definition)
        if not reason:
            resources.append(resource)
        elif "NamePrefix" in shape:
            passed_over[resource.key.name] = reason
        else:
            raise InvalidRequest(f'The training job "{resource.key.name}" cannot be adopted: {reason}')
    if not resources:
        reasons = "".join(f" {name}: {why}" for name, why in list(passed_over.items())[:3])
        raise InvalidRequest(f"There is no training job to adopt.{reasons}")
    trials = [_trial(number, resource, definition) for number, resource in enumerate(resources, 1)]
    return _AdoptedJobs(definition, resources, trials, passed_over)


def _requested_jobs(call: Call, shape: Shape) -> Iterator[Resource]:
    names, prefix = shape.get("TrainingJobNames"), shape.get("NamePrefix", "")
    if (names is None) == (not prefix):
        raise InvalidRequest("Give either TrainingJobNames or a NamePrefix.")
    if names is not None:
        yield from (
            call.yard.records.load(ResourceKey(call.account, training.KIND, name)) for name in dict.fromkeys(names)
        )
        return
    page = call.yard.records.find(
        Query(training.KIND, account=call.account, name_prefix=prefix, sort_by=SortBy.NAME, limit=MAX_JOBS)
    )
    if page.next_after is not None:
        raise InvalidRequest(f'More than {MAX_JOBS} training jobs begin with "{prefix}"; give a longer prefix.')
    yield from page.resources


def _refusal(resource: Resource, definition: TuningDefinition) -> str:
    job = training.job_of(resource)
    if not job.is_final:
        return f"it is {job.status}; wait until it has ended."
    for each in definition.ranges:
        value = job.plan.hyperparameters.get(each.name)
        if value is None:
            return f"it has no hyperparameter {each.name}, which has a range; remove that range."
        if not _is_of_kind(value, each.kind):
            return f"its {each.name} is {value}, which does not fit a {each.kind} range; make the range Categorical."
    is_measured = measured_value(_trial(1, resource, definition)) is not None
    return "" if is_measured else f"it is {job.status} and has no usable value of {definition.objective.metric}."


def _is_of_kind(text: str, kind: RangeKind) -> bool:
    if kind is RangeKind.CATEGORICAL:
        return True
    try:
        number = float(text)
    except ValueError:
        return False
    return math.isfinite(number) and (kind is RangeKind.CONTINUOUS or number.is_integer())


def _trial(number: int, resource: Resource, definition: TuningDefinition) -> TuningTrial:
    job = training.job_of(resource)
    values = {each.name: job.plan.hyperparameters[each.name] for each in definition.ranges}
    trial = TuningTrial(number, job.name, definition.name, values, job_id=resource.id, created_at=job.created_at)
    return end_trial(trial, job, metric=definition.objective.metric)


def _with_static(adopted: _AdoptedJobs) -> TuningDefinition:
    """Return the definition with the hyperparameters that all jobs share; InvalidRequest if other ones differ."""
    searched = {each.name for each in adopted.definition.ranges}
    first, *others = (_static_hyperparameters(resource, searched) for resource in adopted.resources)
    for number, other in enumerate(others, 1):
        different = sorted(name for name in first.keys() | other.keys() if first.get(name) != other.get(name))
        if different:
            raise InvalidRequest(
                f"The training jobs {adopted.trials[0].job} and {adopted.trials[number].job} also "
                f"differ in {', '.join(different)}; give that a range, or leave one of the jobs out."
            )
    return replace(adopted.definition, static=first)


def _static_hyperparameters(resource: Resource, searched: set[str]) -> Mapping[str, str]:
    given = training.job_of(resource).plan.hyperparameters
    return {
        name: value
        for name, value in given.items()
        if name not in searched and name != OBJECTIVE and not name.startswith(_SDK_PREFIX)
    }


def _tuning_job(call: Call, name: str, *, definition: TuningDefinition, trials: Sequence[TuningTrial]) -> TuningJob:
    plan = TuningPlan(StrategyKind.RANDOM, (definition,), max_parallel=1, max_trials=len(trials))
    progress = progress_of(plan, trials)
    return TuningJob(
        name=name,
        arn=tuning_job_arn(call.region, call.account, name),
        account=call.account,
        region=call.region,
        plan=plan,
        created_at=call.now,
        status=TuningStatus.COMPLETED,
        site=call.yard.compute.site,
        planned=len(trials),
        measured=progress.measured,
        best=progress.best,
        since_best=progress.since_best,
        ended_at=call.now,
        notes=(f"Created from {len(trials)} existing training jobs.",),
    )


def _request(shape: Shape, adopted: _AdoptedJobs, *, static: Mapping[str, str]) -> Shape:
    """Return the request of a tuning job that would have created these training jobs."""
    given = instance_jobs.request_of(adopted.resources[0])
    algorithm = given["AlgorithmSpecification"]
    definition: dict[str, Any] = {member: given[member] for member in _COPIED if member in given}
    definition["AlgorithmSpecification"] = {each: algorithm[each] for each in _ALGORITHM_MEMBERS if each in algorithm}
    sdk_hyperparameters = {
        name: text for name, text in given.get("HyperParameters", {}).items() if name.startswith(_SDK_PREFIX)
    }
    return {
        "HyperParameterTuningJobName": shape["HyperParameterTuningJobName"],
        "HyperParameterTuningJobConfig": {
            "Strategy": str(StrategyKind.RANDOM),
            "HyperParameterTuningJobObjective": shape["Objective"],
            "ResourceLimits": {"MaxNumberOfTrainingJobs": len(adopted.trials), "MaxParallelTrainingJobs": 1},
            "ParameterRanges": shape["ParameterRanges"],
        },
        "TrainingJobDefinition": {**definition, "StaticHyperParameters": {**sdk_hyperparameters, **static}},
        "Adopted": [trial.job for trial in adopted.trials],
    }


def _store_tuning_job(call: Call, job: TuningJob, *, request: Shape) -> Resource:
    # The job has ended, so it is never due.
    draft = replace(draft_of(job, request, tags={}), due_at=None)
    try:
        return call.yard.records.create(draft, now=call.now, event=NewEvent("tuning-job.created", {"name": job.name}))
    except AlreadyExists as error:
        known = _load_existing(call, job.name)
        if known is None or request_of(known) != request:
            raise Conflict("tuning job", job.name, "already exists; choose another name, or delete it") from error
        return known


def _load_existing(call: Call, name: str) -> Resource | None:
    try:
        return call.yard.records.load(tuning_key(call.account, name))
    except NotFound:
        return None

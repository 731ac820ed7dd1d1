"""AdoptTrainingJobs: training jobs that have ended become the trials of a tuning job that has ended.

Nobody has searched here; but what was found, by hand or by a script, is as good a start for a tuning job as what
another one found.
"""

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainyard.foundation.errors import AlreadyExists, Conflict, InvalidRequest, NotFound
from trainyard.foundation.tuning import (
    Definition,
    Direction,
    Objective,
    RangeKind,
    StrategyKind,
    Trial,
    TuningJob,
    TuningPlan,
    TuningStatus,
)
from trainyard.insight.tuning.completion import measured_value, progress_of
from trainyard.server import jobs
from trainyard.server.control.tuning.outcomes import ended
from trainyard.server.records.contract import NewEvent, Query, Resource, ResourceKey, SortBy
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.sagemaker.tuning.ranges import ranges_of
from trainyard.server.services.sagemaker.tuning.trials import OBJECTIVE
from trainyard.server.tuning import draft_of, request_of, trial_draft, tuning_job_arn, tuning_key

MOST_JOBS = 1000

_OF_SDKS = "sagemaker_"
_SAME = ("RoleArn", "InputDataConfig", "OutputDataConfig", "ResourceConfig", "StoppingCondition")
_OF_ALGORITHM = ("TrainingImage", "AlgorithmName", "TrainingInputMode", "MetricDefinitions")


def adopt_training_jobs(call: Call, shape: Shape) -> Shape:
    """Remember a tuning job of the caller's training jobs; called again for the same, it completes what is missing."""
    objective = Objective(shape["Objective"]["MetricName"], Direction(shape["Objective"]["Type"]))
    found = _found(call, shape, Definition("", objective, ranges_of(shape["ParameterRanges"])))
    definition = _with_static(found)
    job = _tuning_job(call, shape["HyperParameterTuningJobName"], definition=definition, trials=found.trials)
    parent = _remembered(call, job, request=_request(shape, found, static=definition.static))
    for trial in found.trials:
        with contextlib.suppress(AlreadyExists):
            call.yard.records.create(trial_draft(parent, trial), now=trial.created_at or call.now)
    return {
        "HyperParameterTuningJobArn": job.arn,
        "AdoptedJobs": [trial.job for trial in found.trials],
        "PassedOver": [{"TrainingJobName": name, "Reason": why} for name, why in found.passed_over.items()],
    }


OPERATIONS: Operations = {"AdoptTrainingJobs": adopt_training_jobs}


@dataclass(frozen=True, slots=True)
class _Found:
    """The training jobs that can be adopted, oldest first, as trials; and why others cannot."""

    definition: Definition
    resources: Sequence[Resource]
    trials: Sequence[Trial]
    passed_over: Mapping[str, str]


def _found(call: Call, shape: Shape, definition: Definition) -> _Found:
    resources, passed_over = [], {}
    for resource in sorted(_asked_for(call, shape), key=lambda each: (each.created_at, each.key.name)):
        why = _why_not(resource, definition)
        if not why:
            resources.append(resource)
        elif "NamePrefix" in shape:
            passed_over[resource.key.name] = why
        else:
            raise InvalidRequest(f'The training job "{resource.key.name}" cannot be adopted: {why}')
    if not resources:
        reasons = "".join(f" {name}: {why}" for name, why in list(passed_over.items())[:3])
        raise InvalidRequest(f"There is no training job that could be adopted.{reasons}")
    trials = [_trial(number, resource, definition) for number, resource in enumerate(resources, 1)]
    return _Found(definition, resources, trials, passed_over)


def _asked_for(call: Call, shape: Shape) -> Iterator[Resource]:
    names, prefix = shape.get("TrainingJobNames"), shape.get("NamePrefix", "")
    if (names is None) == (not prefix):
        raise InvalidRequest("Name the training jobs by either TrainingJobNames or a NamePrefix.")
    if names is not None:
        yield from (call.yard.records.load(ResourceKey(call.account, jobs.KIND, name)) for name in dict.fromkeys(names))
        return
    page = call.yard.records.find(
        Query(jobs.KIND, account=call.account, name_prefix=prefix, sort_by=SortBy.NAME, limit=MOST_JOBS)
    )
    if page.next_after is not None:
        raise InvalidRequest(f'More than {MOST_JOBS} training jobs begin with "{prefix}"; give a longer prefix.')
    yield from page.resources


def _why_not(resource: Resource, definition: Definition) -> str:
    job = jobs.job_of(resource)
    if not job.is_final:
        return f"it is {job.status}; wait until it has ended."
    for each in definition.ranges:
        value = job.plan.hyperparameters.get(each.name)
        if value is None:
            return f"it has no hyperparameter {each.name}, which has a range; take that range out."
        if not _is_of_kind(value, each.kind):
            return f"its {each.name} is {value}, which cannot be in a range of kind {each.kind}; make it Categorical."
    is_measured = measured_value(_trial(1, resource, definition)) is not None
    return "" if is_measured else f"it is {job.status} and has no {definition.objective.metric} that counts."


def _is_of_kind(text: str, kind: RangeKind) -> bool:
    if kind is RangeKind.CATEGORICAL:
        return True
    try:
        number = float(text)
    except ValueError:
        return False
    return math.isfinite(number) and (kind is RangeKind.CONTINUOUS or number.is_integer())


def _trial(number: int, resource: Resource, definition: Definition) -> Trial:
    job = jobs.job_of(resource)
    values = {each.name: job.plan.hyperparameters[each.name] for each in definition.ranges}
    trial = Trial(number, job.name, definition.name, values, job_id=resource.id, created_at=job.created_at)
    return ended(trial, job, metric=definition.objective.metric)


def _with_static(found: _Found) -> Definition:
    """What all jobs have in common beside what is searched; InvalidRequest where they differ in more than that."""
    searched = {each.name for each in found.definition.ranges}
    first, *others = (_unsearched(resource, searched) for resource in found.resources)
    for number, other in enumerate(others, 1):
        different = sorted(name for name in first.keys() | other.keys() if first.get(name) != other.get(name))
        if different:
            raise InvalidRequest(
                f"The training jobs {found.trials[0].job} and {found.trials[number].job} differ in "
                f"{', '.join(different)} too; give that a range, or leave one of them out."
            )
    return replace(found.definition, static=first)


def _unsearched(resource: Resource, searched: set[str]) -> Mapping[str, str]:
    given = jobs.job_of(resource).plan.hyperparameters
    return {
        name: value
        for name, value in given.items()
        if name not in searched and name != OBJECTIVE and not name.startswith(_OF_SDKS)
    }


def _tuning_job(call: Call, name: str, *, definition: Definition, trials: Sequence[Trial]) -> TuningJob:
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
        site=call.yard.workshop.site,
        planned=len(trials),
        measured=progress.measured,
        best=progress.best,
        since_best=progress.since_best,
        ended_at=call.now,
        notes=(f"It was made of {len(trials)} training jobs that were there before.",),
    )


def _request(shape: Shape, found: _Found, *, static: Mapping[str, str]) -> Shape:
    """The request for a tuning job that would have made such training jobs."""
    given = jobs.request_of(found.resources[0])
    algorithm = given["AlgorithmSpecification"]
    definition: dict[str, Any] = {member: given[member] for member in _SAME if member in given}
    definition["AlgorithmSpecification"] = {each: algorithm[each] for each in _OF_ALGORITHM if each in algorithm}
    of_sdks = {name: text for name, text in given.get("HyperParameters", {}).items() if name.startswith(_OF_SDKS)}
    return {
        "HyperParameterTuningJobName": shape["HyperParameterTuningJobName"],
        "HyperParameterTuningJobConfig": {
            "Strategy": str(StrategyKind.RANDOM),
            "HyperParameterTuningJobObjective": shape["Objective"],
            "ResourceLimits": {"MaxNumberOfTrainingJobs": len(found.trials), "MaxParallelTrainingJobs": 1},
            "ParameterRanges": shape["ParameterRanges"],
        },
        "TrainingJobDefinition": {**definition, "StaticHyperParameters": {**of_sdks, **static}},
        "Adopted": [trial.job for trial in found.trials],
    }


def _remembered(call: Call, job: TuningJob, *, request: Shape) -> Resource:
    # Nothing is left to do for it, so that it is never due.
    draft = replace(draft_of(job, request, tags={}), due_at=None)
    try:
        return call.yard.records.create(draft, now=call.now, event=NewEvent("tuning-job.created", {"name": job.name}))
    except AlreadyExists as error:
        known = _known(call, job.name)
        if known is None or request_of(known) != request:
            raise Conflict("tuning job", job.name, "exists already; choose another name, or delete it") from error
        return known


def _known(call: Call, name: str) -> Resource | None:
    try:
        return call.yard.records.load(tuning_key(call.account, name))
    except NotFound:
        return None

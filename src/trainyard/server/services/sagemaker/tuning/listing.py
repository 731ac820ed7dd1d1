"""ListHyperParameterTuningJobs and ListTrainingJobsForHyperParameterTuningJob."""

import base64
import json
import math
from collections.abc import Iterator, Sequence

from trainyard.foundation.errors import InvalidRequest, NotFound
from trainyard.foundation.jobs import Status
from trainyard.foundation.tuning import Trial, TrialStatus
from trainyard.server.records.contract import Query, Resource, ResourceId, SortBy
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.sagemaker.tuning.described import objective_of, summarised, trial_shape
from trainyard.server.services.sagemaker.tuning.moving import load_tuning_job
from trainyard.server.tuning import KIND, TRIAL, trial_of, trials_of, tuning_job_of

PAGE = 10  # what AWS gives when it is not asked for a number

_ORDERS = {"Name": SortBy.NAME, "CreationTime": SortBy.CREATED, "Status": SortBy.STATUS}

Place = tuple[float, int]  # of a trial in the order of the objective: that, and its number


def list_hyper_parameter_tuning_jobs(call: Call, shape: Shape) -> Shape:
    query = Query(
        KIND,
        account=call.caller.scope,
        name_contains=shape.get("NameContains", "").lower(),
        status=shape.get("StatusEquals", ""),
        created_after=shape.get("CreationTimeAfter"),
        created_before=shape.get("CreationTimeBefore"),
        modified_after=shape.get("LastModifiedTimeAfter"),
        modified_before=shape.get("LastModifiedTimeBefore"),
        sort_by=_ORDERS[shape.get("SortBy", "Name")],
        descending=shape.get("SortOrder") == "Descending",
        limit=shape.get("MaxResults", PAGE),
        after=shape.get("NextToken", ""),
    )
    page = call.yard.records.find(query)
    shown = {"HyperParameterTuningJobSummaries": [summarised(call.yard.records, each) for each in page.resources]}
    return shown | ({"NextToken": page.next_after} if page.next_after else {})


def list_training_jobs_for_hyper_parameter_tuning_job(call: Call, shape: Shape) -> Shape:
    parent = load_tuning_job(call, shape)
    by_objective = shape.get("SortBy") == "FinalObjectiveMetricValue"
    trials, token = (_by_objective if by_objective else _in_kept_order)(call, shape, parent)
    job = tuning_job_of(parent)
    shown = {"TrainingJobSummaries": [_as_it_stands(call, trial, trial_shape(job, trial)) for trial in trials]}
    return shown | ({"NextToken": token} if token else {})


OPERATIONS: Operations = {
    "ListHyperParameterTuningJobs": list_hyper_parameter_tuning_jobs,
    "ListTrainingJobsForHyperParameterTuningJob": list_training_jobs_for_hyper_parameter_tuning_job,
}


def _in_kept_order(call: Call, shape: Shape, parent: Resource) -> tuple[Sequence[Trial], str | None]:
    """One page, which may be short of trials that are not begun yet, and the token of the next."""
    query = Query(
        TRIAL,
        parent=parent.id,
        status=shape.get("StatusEquals", ""),
        sort_by=_ORDERS[shape.get("SortBy", "Name")],
        descending=shape.get("SortOrder") == "Descending",
        limit=shape.get("MaxResults", PAGE),
        after=shape.get("NextToken", ""),
    )
    page = call.yard.records.find(query)
    trials = [trial_of(each) for each in page.resources if each.status != TrialStatus.PLANNED]
    return trials, page.next_after


def _as_it_stands(call: Call, trial: Trial, shape: Shape) -> Shape:
    """What is told of a trial, with Stopping where its training job is: the study learns of the end alone."""
    if trial.status is not TrialStatus.IN_PROGRESS:
        return shape
    try:
        status = call.yard.records.load_by_id(ResourceId(trial.job_id)).status
    except NotFound:  # deleted, of which the study will hear
        return shape
    return shape | ({"TrainingJobStatus": str(Status.STOPPING)} if status == Status.STOPPING else {})


def _by_objective(call: Call, shape: Shape, parent: Resource) -> tuple[Sequence[Trial], str | None]:
    """One page of those that have an objective, of which all are read: no index knows it."""
    sign = -1 if shape.get("SortOrder") == "Descending" else 1
    placed = {(sign * value, trial.number): trial for trial, value in _measured(call, shape, parent)}
    ordered = sorted(placed)
    if shape.get("NextToken"):
        passed = _parse_token(shape["NextToken"])
        ordered = [place for place in ordered if place > passed]
    limit = shape.get("MaxResults", PAGE)
    token = _token(ordered[limit - 1]) if len(ordered) > limit else None
    return [placed[place] for place in ordered[:limit]], token


def _measured(call: Call, shape: Shape, parent: Resource) -> Iterator[tuple[Trial, float]]:
    for resource in trials_of(call.yard.records, parent.id, status=shape.get("StatusEquals", "")):
        trial = trial_of(resource)
        value = objective_of(trial)
        if value is not None:
            yield trial, value


def _token(place: Place) -> str:
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode()


def _parse_token(token: str) -> Place:
    try:
        match json.loads(base64.b64decode(token, altchars=b"-_", validate=True)):
            case [float(value), int(number)] if math.isfinite(value):
                return value, number
        raise ValueError("the token of something else")
    except (ValueError, RecursionError) as error:
        raise InvalidRequest("The NextToken is invalid.") from error

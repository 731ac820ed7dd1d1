"""ListHyperParameterTuningJobs and ListTrainingJobsForHyperParameterTuningJob."""

import base64
import json
import math
from collections.abc import Iterator, Sequence

from trainyard.foundation.errors import InvalidRequest, NotFound
from trainyard.foundation.jobs.status import Status
from trainyard.foundation.jobs.tuning import TrialStatus, TuningTrial
from trainyard.server.jobs.tuning import KIND, TRIAL, job_of, trial_of, trials_of
from trainyard.server.records.contract import Query, Resource, ResourceId, SortBy
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.sagemaker.tuning.description import objective_of, trial_shape, tuning_job_summary
from trainyard.server.services.sagemaker.tuning.lifecycle import load_tuning_job

# The default of AWS.
PAGE = 10

_ORDERS = {"Name": SortBy.NAME, "CreationTime": SortBy.CREATED, "Status": SortBy.STATUS}

# The objective and the number of a trial, by which trials are sorted.
ObjectivePosition = tuple[float, int]


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
    shown = {
        "HyperParameterTuningJobSummaries": [tuning_job_summary(call.yard.records, each) for each in page.resources]
    }
    return shown | ({"NextToken": page.next_after} if page.next_after else {})


def list_training_jobs_for_hyper_parameter_tuning_job(call: Call, shape: Shape) -> Shape:
    parent = load_tuning_job(call, shape)
    by_objective = shape.get("SortBy") == "FinalObjectiveMetricValue"
    trials, token = (_find_by_objective if by_objective else _find_indexed)(call, shape, parent)
    job = job_of(parent)
    shown = {"TrainingJobSummaries": [_with_stopping(call, trial, trial_shape(job, trial)) for trial in trials]}
    return shown | ({"NextToken": token} if token else {})


OPERATIONS: Operations = {
    "ListHyperParameterTuningJobs": list_hyper_parameter_tuning_jobs,
    "ListTrainingJobsForHyperParameterTuningJob": list_training_jobs_for_hyper_parameter_tuning_job,
}


def _find_indexed(call: Call, shape: Shape, parent: Resource) -> tuple[Sequence[TuningTrial], str | None]:
    """Return one page, without trials that have not started, and the token of the next."""
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


def _with_stopping(call: Call, trial: TuningTrial, shape: Shape) -> Shape:
    """Return the shape of a trial, Stopping if its training job is: the trial itself only records the end."""
    if trial.status is not TrialStatus.IN_PROGRESS:
        return shape
    try:
        status = call.yard.records.load_by_id(ResourceId(trial.job_id)).status
    except NotFound:
        # The training job was deleted; the tuning job will notice.
        return shape
    return shape | ({"TrainingJobStatus": str(Status.STOPPING)} if status == Status.STOPPING else {})


def _find_by_objective(call: Call, shape: Shape, parent: Resource) -> tuple[Sequence[TuningTrial], str | None]:
    """Return one page of the trials with an objective. All are read, because no index has it."""
    sign = -1 if shape.get("SortOrder") == "Descending" else 1
    by_position = {(sign * value, trial.number): trial for trial, value in _measured_trials(call, shape, parent)}
    ordered = sorted(by_position)
    if shape.get("NextToken"):
        last = _parse_token(shape["NextToken"])
        ordered = [position for position in ordered if position > last]
    limit = shape.get("MaxResults", PAGE)
    token = _token(ordered[limit - 1]) if len(ordered) > limit else None
    return [by_position[position] for position in ordered[:limit]], token


def _measured_trials(call: Call, shape: Shape, parent: Resource) -> Iterator[tuple[TuningTrial, float]]:
    for resource in trials_of(call.yard.records, parent.id, status=shape.get("StatusEquals", "")):
        trial = trial_of(resource)
        value = objective_of(trial)
        if value is not None:
            yield trial, value


def _token(position: ObjectivePosition) -> str:
    return base64.urlsafe_b64encode(json.dumps(position).encode()).decode()


def _parse_token(token: str) -> ObjectivePosition:
    try:
        match json.loads(base64.b64decode(token, altchars=b"-_", validate=True)):
            case [float(value), int(number)] if math.isfinite(value):
                return value, number
        raise ValueError("not a token of this operation")
    except (ValueError, RecursionError) as error:
        raise InvalidRequest("The NextToken is invalid.") from error

"""Search, over training jobs.

The records give the jobs that fit by name, tags, status and times. Where the order asked for is one that they keep,
jobs are read in it and looked at one by one until the page is full, or enough were looked at for one answer. Any other
order needs all jobs at once, so there may not be too many of them.
"""

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, replace
from datetime import datetime
from typing import Any

from trainyard.foundation.clock import to_micros
from trainyard.foundation.errors import InvalidRequest
from trainyard.server.jobs import KIND
from trainyard.server.records.contract import Query, Resource, SortBy
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.sagemaker.conditions import Condition, condition_of, values_of
from trainyard.server.services.sagemaker.described import described
from trainyard.server.services.sagemaker.narrowing import narrowed

PAGE = 10
MAX_READS = 20  # pages of the records for one answer, which may then be short and have a token
MAX_SORTED = 5_000

PROPERTIES = frozenset(
    {
        "TrainingJobName",
        "TrainingJobArn",
        "ModelArtifacts",
        "TrainingJobStatus",
        "SecondaryStatus",
        "FailureReason",
        "HyperParameters",
        "AlgorithmSpecification",
        "RoleArn",
        "InputDataConfig",
        "OutputDataConfig",
        "ResourceConfig",
        "VpcConfig",
        "StoppingCondition",
        "CreationTime",
        "TrainingStartTime",
        "TrainingEndTime",
        "LastModifiedTime",
        "SecondaryStatusTransitions",
        "FinalMetricDataList",
        "EnableNetworkIsolation",
        "EnableInterContainerTrafficEncryption",
        "EnableManagedSpotTraining",
        "TrainingTimeInSeconds",
        "BillableTimeInSeconds",
        "DebugHookConfig",
        "DebugRuleConfigurations",
        "DebugRuleEvaluationStatuses",
        "TensorBoardOutputConfig",
        "ExperimentConfig",
        "ProfilerConfig",
        "Environment",
        "RetryStrategy",
        "WarmPoolStatus",
        "Tags",
        "Metrics",
    }
)

# What DescribeTrainingJob tells, or a filter sees, and Search does not tell.
_ONLY_SEEN = frozenset(
    {"ProfilingStatus", "ProfilerRuleConfigurations", "RemoteDebugConfig", "InfraCheckConfig", "Metrics"}
)
_BATCH = 100
_ORDERS = {
    "TrainingJobName": SortBy.NAME,
    "CreationTime": SortBy.CREATED,
    "LastModifiedTime": SortBy.MODIFIED,
    "TrainingJobStatus": SortBy.STATUS,
}


def search(call: Call, shape: Shape) -> Shape:
    _require_request(shape)
    condition = condition_of(shape.get("SearchExpression"), PROPERTIES)
    sort_by = shape.get("SortBy", "LastModifiedTime")
    if sort_by in _ORDERS:
        found, token = _in_kept_order(call, shape, condition=condition, sort_by=_ORDERS[sort_by])
    else:
        found, token = _in_any_order(call, shape, condition=condition, sort_by=sort_by)
    answer: Shape = {"Results": [{"TrainingJob": _told(job)} for job in found]}
    return answer | ({"NextToken": token} if token else {})


OPERATIONS: Operations = {"Search": search}


@dataclass(frozen=True, slots=True)
class _Job:
    """A job as conditions see it."""

    id: str
    candidate: Mapping[str, Any]

    @classmethod
    def of(cls, call: Call, resource: Resource) -> "_Job":
        shape = described(resource, now=call.now)
        tags = call.yard.records.tags(resource.key.account, shape["TrainingJobArn"])
        metrics = {each["MetricName"]: each["Value"] for each in shape.get("FinalMetricDataList", ())}
        return cls(resource.id, shape | {"Tags": tags, "Metrics": metrics})


def _told(job: _Job) -> Shape:
    told = {member: value for member, value in job.candidate.items() if member not in _ONLY_SEEN}
    return told | {"Tags": [{"Key": key, "Value": value} for key, value in job.candidate["Tags"].items()]}


def _require_request(shape: Shape) -> None:
    if shape["Resource"] != "TrainingJob":
        raise InvalidRequest(f"Trainyard does not search for {shape['Resource']} yet; it does for TrainingJob.")
    if shape.get("CrossAccountFilterOption") == "CrossAccount" or shape.get("VisibilityConditions"):
        raise InvalidRequest("Trainyard does not serve searches across accounts; leave that option out.")


def _in_kept_order(call: Call, shape: Shape, *, condition: Condition, sort_by: SortBy) -> tuple[list[_Job], str | None]:
    """One page, and the token of the next."""
    query = replace(_query(call, shape), sort_by=sort_by, after=shape.get("NextToken", ""))
    found: list[_Job] = []
    for _ in range(MAX_READS):
        page = call.yard.records.find(query)
        for number, resource in enumerate(page.resources, 1):
            job = _Job.of(call, resource)
            if not condition(job.candidate):
                continue
            found.append(job)
            if len(found) == shape.get("MaxResults", PAGE):
                # The token that the records give for a page that ends just here.
                return found, call.yard.records.find(replace(query, limit=number)).next_after
        if page.next_after is None:
            return found, None
        query = replace(query, after=page.next_after)
    return found, query.after


def _in_any_order(call: Call, shape: Shape, *, condition: Condition, sort_by: str) -> tuple[list[_Job], str | None]:
    """One page of all that fit, sorted here; those without the property come last in either order."""
    condition_of({"Filters": [{"Name": sort_by}]}, PROPERTIES)
    is_descending = shape.get("SortOrder", "Descending") == "Descending"
    placed = {_place(job, sort_by): job for job in _all(call, shape, condition)}
    having = sorted((place for place in placed if not place.is_missing), reverse=is_descending)
    ordered = [*having, *sorted(place for place in placed if place.is_missing)]
    if shape.get("NextToken"):
        passed = _parse_token(shape["NextToken"])
        ordered = [place for place in ordered if place.is_beyond(passed, is_descending=is_descending)]
    limit = shape.get("MaxResults", PAGE)
    token = _token(ordered[limit - 1]) if len(ordered) > limit else None
    return [placed[place] for place in ordered[:limit]], token


@dataclass(frozen=True, slots=True, order=True)
class _Place:
    """Where a job stands in an order: numbers and times before texts, the id for those that are equal."""

    is_missing: bool
    is_text: bool
    number: float
    text: str
    id: str

    def is_beyond(self, passed: "_Place", *, is_descending: bool) -> bool:
        if self.is_missing or passed.is_missing or not is_descending:
            return self > passed
        return self < passed


def _place(job: _Job, sort_by: str) -> _Place:
    value = next(values_of(job.candidate, sort_by), None)
    if isinstance(value, datetime):
        value = to_micros(value)
    try:
        return _Place(False, False, float(value), "", job.id)  # type: ignore[arg-type]  # or the error below
    except (TypeError, ValueError):
        is_text = isinstance(value, str)
        return _Place(not is_text, is_text, 0.0, value if isinstance(value, str) else "", job.id)


def _all(call: Call, shape: Shape, condition: Condition) -> Iterator[_Job]:
    query = _query(call, shape)
    for _ in range(MAX_SORTED // _BATCH):
        page = call.yard.records.find(query)
        yield from (job for job in (_Job.of(call, each) for each in page.resources) if condition(job.candidate))
        if page.next_after is None:
            return
        query = replace(query, after=page.next_after)
    raise InvalidRequest(
        f"More than {MAX_SORTED} jobs are too many for this order; add filters on names, tags, statuses or times, "
        f"or sort by {', '.join(_ORDERS)}."
    )


def _query(call: Call, shape: Shape) -> Query:
    """All jobs of the caller, less those that the records can leave out by themselves."""
    is_descending = shape.get("SortOrder", "Descending") == "Descending"
    every = Query(KIND, account=call.caller.scope, descending=is_descending, limit=_BATCH)
    return narrowed(every, shape.get("SearchExpression"))


def _token(place: _Place) -> str:
    return base64.urlsafe_b64encode(json.dumps(astuple(place)).encode()).decode()


def _parse_token(token: str) -> _Place:
    try:
        match json.loads(base64.b64decode(token, altchars=b"-_", validate=True)):
            case [bool(is_missing), bool(is_text), float(number), str(text), str(id_)]:
                return _Place(is_missing, is_text, number, text, id_)
        raise ValueError("the token of something else")
    except (ValueError, RecursionError) as error:
        raise InvalidRequest("The NextToken is invalid.") from error

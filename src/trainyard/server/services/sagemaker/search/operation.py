"""Search for training jobs and tuning jobs.

The records find jobs by name, tags, status and times. If they have an index for the sort order, jobs are read in that
order and tested one by one until the page is full, or until enough were read for one answer. Any other order needs all
jobs at once, so their number is limited.
"""

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, replace
from datetime import datetime
from typing import Any

from trainyard.foundation.clock import to_micros
from trainyard.foundation.errors import InvalidRequest
from trainyard.server.records.contract import Query, Resource, SortBy
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.sagemaker.search.conditions import condition_of, values_of
from trainyard.server.services.sagemaker.search.record_query import narrow_query
from trainyard.server.services.sagemaker.search.resource_types import SearchableType, searchable_type

PAGE = 10
# Pages of the records read for one answer, which may then be short and have a token.
MAX_READS = 20
MAX_SORTED = 5_000

_BATCH = 100


def search(call: Call, shape: Shape) -> Shape:
    _require_own_account(shape)
    request = _SearchRequest(call, shape, searchable_type(shape["Resource"]))
    sort_by = shape.get("SortBy", "LastModifiedTime")
    orders = request.searchable.orders
    found, token = _find_indexed(request, orders[sort_by]) if sort_by in orders else _find_sorted(request, sort_by)
    answer: Shape = {"Results": [{request.searchable.entity: _result(request.searchable, job)} for job in found]}
    return answer | ({"NextToken": token} if token else {})


OPERATIONS: Operations = {"Search": search}


def _require_own_account(shape: Shape) -> None:
    if shape.get("CrossAccountFilterOption") == "CrossAccount" or shape.get("VisibilityConditions"):
        raise InvalidRequest(
            "Trainyard does not search across accounts; leave CrossAccountFilterOption and VisibilityConditions out."
        )


@dataclass(frozen=True, slots=True)
class _CandidateJob:
    """A job in the form that conditions test."""

    id: str
    candidate: Mapping[str, Any]


class _SearchRequest:
    """One search: the type of resource, the condition, the order and the limit."""

    def __init__(self, call: Call, shape: Shape, searchable: SearchableType) -> None:
        self.call, self.shape, self.searchable = call, shape, searchable
        self.is_match = condition_of(shape.get("SearchExpression"), searchable.properties)
        self.is_descending = shape.get("SortOrder", "Descending") == "Descending"
        self.limit = shape.get("MaxResults", PAGE)

    @property
    def query(self) -> Query:
        """The query for the caller's jobs that can match."""
        every = Query(self.searchable.kind, account=self.call.caller.scope, descending=self.is_descending, limit=_BATCH)
        return narrow_query(every, self.shape.get("SearchExpression"), self.searchable)

    def job(self, resource: Resource) -> _CandidateJob:
        return _CandidateJob(resource.id, self.searchable.candidate(self.call, resource))


def _result(searchable: SearchableType, job: _CandidateJob) -> Shape:
    members = {member: value for member, value in job.candidate.items() if member not in searchable.hidden}
    return members | {"Tags": [{"Key": key, "Value": value} for key, value in job.candidate["Tags"].items()]}


def _find_indexed(request: _SearchRequest, sort_by: SortBy) -> tuple[list[_CandidateJob], str | None]:
    """Return one page in an order that the records have, and the token of the next."""
    records = request.call.yard.records
    query = replace(request.query, sort_by=sort_by, after=request.shape.get("NextToken", ""))
    found: list[_CandidateJob] = []
    for _ in range(MAX_READS):
        page = records.find(query)
        for number, resource in enumerate(page.resources, 1):
            job = request.job(resource)
            if not request.is_match(job.candidate):
                continue
            found.append(job)
            if len(found) == request.limit:
                # The token of a page that ends exactly here.
                return found, records.find(replace(query, limit=number)).next_after
        if page.next_after is None:
            return found, None
        query = replace(query, after=page.next_after)
    return found, query.after


def _find_sorted(request: _SearchRequest, sort_by: str) -> tuple[list[_CandidateJob], str | None]:
    """Return one page of all matches, sorted here. Jobs without the property come last in either direction."""
    condition_of({"Filters": [{"Name": sort_by}]}, request.searchable.properties)
    by_key = {_sort_key(job, sort_by): job for job in _all_matches(request)}
    present = sorted((key for key in by_key if not key.is_missing), reverse=request.is_descending)
    ordered = [*present, *sorted(key for key in by_key if key.is_missing)]
    if request.shape.get("NextToken"):
        last = _parse_token(request.shape["NextToken"])
        ordered = [key for key in ordered if key.is_after(last, is_descending=request.is_descending)]
    token = _token(ordered[request.limit - 1]) if len(ordered) > request.limit else None
    return [by_key[key] for key in ordered[: request.limit]], token


@dataclass(frozen=True, slots=True, order=True)
class _SortKey:
    """The sort key of a job: numbers and times before text, then the id."""

    is_missing: bool
    is_text: bool
    number: float
    text: str
    id: str

    def is_after(self, last: "_SortKey", *, is_descending: bool) -> bool:
        if self.is_missing or last.is_missing or not is_descending:
            return self > last
        return self < last


def _sort_key(job: _CandidateJob, sort_by: str) -> _SortKey:
    value = next(values_of(job.candidate, sort_by), None)
    if isinstance(value, datetime):
        value = to_micros(value)
    try:
        return _SortKey(False, False, float(value), "", job.id)  # type: ignore[arg-type]  # None raises TypeError
    except (TypeError, ValueError):
        is_text = isinstance(value, str)
        return _SortKey(not is_text, is_text, 0.0, value if isinstance(value, str) else "", job.id)


def _all_matches(request: _SearchRequest) -> Iterator[_CandidateJob]:
    query = request.query
    for _ in range(MAX_SORTED // _BATCH):
        page = request.call.yard.records.find(query)
        yield from (job for job in map(request.job, page.resources) if request.is_match(job.candidate))
        if page.next_after is None:
            return
        query = replace(query, after=page.next_after)
    raise InvalidRequest(
        f"More than {MAX_SORTED} jobs are too many to sort by this property; filter by name, tags, status or time, "
        f"or sort by {', '.join(request.searchable.orders)}."
    )


def _token(key: _SortKey) -> str:
    return base64.urlsafe_b64encode(json.dumps(astuple(key)).encode()).decode()


def _parse_token(token: str) -> _SortKey:
    try:
        match json.loads(base64.b64decode(token, altchars=b"-_", validate=True)):
            case [bool(is_missing), bool(is_text), float(number), str(text), str(id_)]:
                return _SortKey(is_missing, is_text, number, text, id_)
        raise ValueError("not a token of this operation")
    except (ValueError, RecursionError) as error:
        raise InvalidRequest("The NextToken is invalid.") from error

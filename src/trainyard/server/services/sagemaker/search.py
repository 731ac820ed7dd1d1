"""Search, over training jobs and tuning jobs.

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
from trainyard.server.records.contract import Query, Resource, SortBy
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.sagemaker.conditions import condition_of, values_of
from trainyard.server.services.sagemaker.narrowing import narrowed
from trainyard.server.services.sagemaker.searched import SEARCHED, Searched

PAGE = 10
MAX_READS = 20  # pages of the records for one answer, which may then be short and have a token
MAX_SORTED = 5_000

_BATCH = 100


def search(call: Call, shape: Shape) -> Shape:
    look = _Look(call, shape, _searched(shape))
    sort_by = shape.get("SortBy", "LastModifiedTime")
    orders = look.searched.orders
    found, token = _in_kept_order(look, orders[sort_by]) if sort_by in orders else _in_any_order(look, sort_by)
    answer: Shape = {"Results": [{look.searched.entity: _told(look.searched, job)} for job in found]}
    return answer | ({"NextToken": token} if token else {})


OPERATIONS: Operations = {"Search": search}


def _searched(shape: Shape) -> Searched:
    if shape.get("CrossAccountFilterOption") == "CrossAccount" or shape.get("VisibilityConditions"):
        raise InvalidRequest("Trainyard does not serve searches across accounts; leave that option out.")
    searched = SEARCHED.get(shape["Resource"])
    if searched is None:
        known = " and ".join(SEARCHED)
        raise InvalidRequest(f"Trainyard does not search for {shape['Resource']} yet; it does for {known}.")
    return searched


@dataclass(frozen=True, slots=True)
class _Job:
    """A job as conditions see it."""

    id: str
    candidate: Mapping[str, Any]


class _Look:
    """One search: for what, and which of that fits."""

    def __init__(self, call: Call, shape: Shape, searched: Searched) -> None:
        self.call, self.shape, self.searched = call, shape, searched
        self.fits = condition_of(shape.get("SearchExpression"), searched.properties)
        self.is_descending = shape.get("SortOrder", "Descending") == "Descending"
        self.limit = shape.get("MaxResults", PAGE)

    @property
    def query(self) -> Query:
        """All jobs of the caller, less those that the records can leave out by themselves."""
        every = Query(self.searched.kind, account=self.call.caller.scope, descending=self.is_descending, limit=_BATCH)
        return narrowed(every, self.shape.get("SearchExpression"), self.searched)

    def job(self, resource: Resource) -> _Job:
        return _Job(resource.id, self.searched.candidate(self.call, resource))


def _told(searched: Searched, job: _Job) -> Shape:
    told = {member: value for member, value in job.candidate.items() if member not in searched.only_seen}
    return told | {"Tags": [{"Key": key, "Value": value} for key, value in job.candidate["Tags"].items()]}


def _in_kept_order(look: _Look, sort_by: SortBy) -> tuple[list[_Job], str | None]:
    """One page, and the token of the next."""
    records = look.call.yard.records
    query = replace(look.query, sort_by=sort_by, after=look.shape.get("NextToken", ""))
    found: list[_Job] = []
    for _ in range(MAX_READS):
        page = records.find(query)
        for number, resource in enumerate(page.resources, 1):
            job = look.job(resource)
            if not look.fits(job.candidate):
                continue
            found.append(job)
            if len(found) == look.limit:
                # The token that the records give for a page that ends just here.
                return found, records.find(replace(query, limit=number)).next_after
        if page.next_after is None:
            return found, None
        query = replace(query, after=page.next_after)
    return found, query.after


def _in_any_order(look: _Look, sort_by: str) -> tuple[list[_Job], str | None]:
    """One page of all that fit, sorted here; those without the property come last in either order."""
    condition_of({"Filters": [{"Name": sort_by}]}, look.searched.properties)
    placed = {_place(job, sort_by): job for job in _all(look)}
    having = sorted((place for place in placed if not place.is_missing), reverse=look.is_descending)
    ordered = [*having, *sorted(place for place in placed if place.is_missing)]
    if look.shape.get("NextToken"):
        passed = _parse_token(look.shape["NextToken"])
        ordered = [place for place in ordered if place.is_beyond(passed, is_descending=look.is_descending)]
    token = _token(ordered[look.limit - 1]) if len(ordered) > look.limit else None
    return [placed[place] for place in ordered[: look.limit]], token


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


def _all(look: _Look) -> Iterator[_Job]:
    query = look.query
    for _ in range(MAX_SORTED // _BATCH):
        page = look.call.yard.records.find(query)
        yield from (job for job in map(look.job, page.resources) if look.fits(job.candidate))
        if page.next_after is None:
            return
        query = replace(query, after=page.next_after)
    raise InvalidRequest(
        f"More than {MAX_SORTED} jobs are too many for this order; add filters on names, tags, statuses or times, "
        f"or sort by {', '.join(look.searched.orders)}."
    )


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

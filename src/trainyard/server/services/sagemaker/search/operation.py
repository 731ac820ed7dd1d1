"""Search for training jobs, tuning jobs, experiments, trials and trial components.

The records find resources by name, tags, status, times and indexed values. If they have an index for the sort order,
resources are read in that order and tested one by one until the page is full, or until enough were read for one answer.
Any other order needs all resources at once, so their number is limited.
"""

import base64
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from datetime import datetime

from trainyard.foundation.clock import to_micros
from trainyard.foundation.errors import InvalidRequest
from trainyard.server.records.contract import Query, Resource, SortBy, ValueFilter
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.sagemaker.search.conditions import condition_of, values_of
from trainyard.server.services.sagemaker.search.record_query import narrow_query
from trainyard.server.services.sagemaker.search.resource_types import Candidate, SearchableType, searchable_type

PAGE = 10
# Pages of the records read for one answer, which may then be short and have a token.
MAX_READS = 20
MAX_SORTED = 5_000

_BATCH = 100


# A page in the order of a value starts with what has a number, and ends with what has none.
_WITH_NUMBER, _WITHOUT_NUMBER = "n", "m"
_LOWEST = -sys.float_info.max


def search(call: Call, shape: Shape) -> Shape:
    _require_own_account(shape)
    request = _SearchRequest(call, shape, searchable_type(shape["Resource"]))
    found, token = _find_page(request)
    answer: Shape = {"Results": [{request.searchable.entity: _result(request.searchable, each)} for each in found]}
    return answer | ({"NextToken": token} if token else {})


OPERATIONS: Operations = {"Search": search}


def _require_own_account(shape: Shape) -> None:
    if shape.get("CrossAccountFilterOption") == "CrossAccount" or shape.get("VisibilityConditions"):
        raise InvalidRequest(
            "Trainyard does not search across accounts; leave CrossAccountFilterOption and VisibilityConditions out."
        )


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A resource as its shape on the wire, and in the form that conditions test."""

    id: str
    shape: Shape
    tags: Mapping[str, str]
    candidate: Candidate


class _SearchRequest:
    """One search: the type of resource, the condition, the order and the limit."""

    def __init__(self, call: Call, shape: Shape, searchable: SearchableType) -> None:
        self.call, self.searchable = call, searchable
        self.expression = _canonical(shape.get("SearchExpression"), searchable)
        self.is_match = condition_of(self.expression, searchable.properties)
        self.sort_by = searchable.canonical(shape.get("SortBy", "LastModifiedTime"))
        self.is_descending = shape.get("SortOrder", "Descending") == "Descending"
        self.limit = shape.get("MaxResults", PAGE)
        self.token = shape.get("NextToken", "")

    @property
    def query(self) -> Query:
        """The query for the caller's resources that can match."""
        every = Query(self.searchable.kind, account=self.call.caller.scope, descending=self.is_descending, limit=_BATCH)
        return narrow_query(every, self.expression, self.searchable)

    def candidates(self, resources: Sequence[Resource]) -> list[_Candidate]:
        searchable = self.searchable
        shapes = [searchable.describe(self.call, resource) for resource in resources]
        tagged = self.call.yard.records.tags_of_arns([shape[searchable.arn] for shape in shapes])
        tags = {(each.account, each.arn): each.tags for each in tagged}
        found = []
        for resource, shape in zip(resources, shapes, strict=True):
            own = tags.get((resource.key.account, shape[searchable.arn]), {})
            found.append(_Candidate(resource.id, shape, own, searchable.candidate(shape, own)))
        return found


def _canonical(expression: Shape | None, searchable: SearchableType) -> Shape | None:
    """Return an expression with its properties as the candidates have them."""
    if expression is None:
        return None

    def renamed(filters: Sequence[Shape]) -> list[Shape]:
        return [{**each, "Name": searchable.canonical(each["Name"])} for each in filters]

    changed = {**expression}
    if "Filters" in expression:
        changed["Filters"] = renamed(expression["Filters"])
    if "NestedFilters" in expression:
        changed["NestedFilters"] = [
            {
                "NestedPropertyName": searchable.canonical(nested["NestedPropertyName"]),
                "Filters": renamed(nested["Filters"]),
            }
            for nested in expression["NestedFilters"]
        ]
    if "SubExpressions" in expression:
        changed["SubExpressions"] = [_canonical(each, searchable) for each in expression["SubExpressions"]]
    return changed


def _result(searchable: SearchableType, found: _Candidate) -> Shape:
    members = {member: value for member, value in found.shape.items() if member not in searchable.hidden}
    return members | {"Tags": [{"Key": key, "Value": value} for key, value in found.tags.items()]}


def _find_page(request: _SearchRequest) -> tuple[list[_Candidate], str | None]:
    """Return one page in the order that the request asks for, and the token of the next."""
    if request.sort_by in request.searchable.orders:
        query = replace(request.query, sort_by=request.searchable.orders[request.sort_by], after=request.token)
        return _read_page(request, query, request.limit)
    indexed = request.searchable.indexed_property(request.sort_by)
    if indexed is not None and indexed.is_exact and indexed.has_numbers:
        return _find_by_value(request, indexed.value)
    return _find_sorted(request, request.sort_by)


def _find_by_value(request: _SearchRequest, value: str) -> tuple[list[_Candidate], str | None]:
    """Return one page in the order of a number. Resources without it come last in either direction."""
    phase, token = request.token[:1] or _WITH_NUMBER, request.token[1:]
    if phase not in (_WITH_NUMBER, _WITHOUT_NUMBER):
        raise InvalidRequest("The NextToken is invalid.")
    found: list[_Candidate] = []
    if phase == _WITH_NUMBER:
        query = replace(request.query, order_by_value=value, after=token)
        found, next_token = _read_page(request, query, request.limit)
        if next_token is not None:
            return found, _WITH_NUMBER + next_token
        token = ""
        if len(found) == request.limit:
            return found, _WITHOUT_NUMBER
    without = ValueFilter(value, low=_LOWEST, is_absent=True)
    query = replace(request.query, values=(*request.query.values, without), sort_by=SortBy.CREATED, after=token)
    rest, next_token = _read_page(request, query, request.limit - len(found))
    return found + rest, None if next_token is None else _WITHOUT_NUMBER + next_token


def _read_page(request: _SearchRequest, query: Query, limit: int) -> tuple[list[_Candidate], str | None]:
    """Return up to `limit` matches in the order of a query, and the token of the page after them."""
    records = request.call.yard.records
    found: list[_Candidate] = []
    # Often everything that the records find matches.
    query = replace(query, limit=min(limit, _BATCH))
    for _ in range(MAX_READS):
        page = records.find(query)
        for number, each in enumerate(request.candidates(page.resources), 1):
            if not request.is_match(each.candidate):
                continue
            found.append(each)
            if len(found) == limit:
                if number == len(page.resources):
                    return found, page.next_after
                # The token of a page that ends exactly here.
                return found, records.find(replace(query, limit=number)).next_after
        if page.next_after is None:
            return found, None
        query = replace(query, after=page.next_after, limit=_BATCH)
    return found, query.after


def _find_sorted(request: _SearchRequest, sort_by: str) -> tuple[list[_Candidate], str | None]:
    """Return one page of all matches, sorted here. Resources without the property come last in either direction."""
    condition_of({"Filters": [{"Name": sort_by}]}, request.searchable.properties)
    by_key = {_sort_key(each, sort_by): each for each in _all_matches(request)}
    present = sorted((key for key in by_key if not key.is_missing), reverse=request.is_descending)
    ordered = [*present, *sorted(key for key in by_key if key.is_missing)]
    if request.token:
        last = _parse_token(request.token)
        ordered = [key for key in ordered if key.is_after(last, is_descending=request.is_descending)]
    token = _token(ordered[request.limit - 1]) if len(ordered) > request.limit else None
    return [by_key[key] for key in ordered[: request.limit]], token


@dataclass(frozen=True, slots=True, order=True)
class _SortKey:
    """The sort key of a resource: numbers and times before text, then the id."""

    is_missing: bool
    is_text: bool
    number: float
    text: str
    id: str

    def is_after(self, last: "_SortKey", *, is_descending: bool) -> bool:
        if self.is_missing or last.is_missing or not is_descending:
            return self > last
        return self < last


def _sort_key(found: _Candidate, sort_by: str) -> _SortKey:
    value = next(values_of(found.candidate, sort_by), None)
    if isinstance(value, datetime):
        value = to_micros(value)
    try:
        return _SortKey(False, False, float(value), "", found.id)  # type: ignore[arg-type]  # None raises TypeError
    except (TypeError, ValueError):
        is_text = isinstance(value, str)
        return _SortKey(not is_text, is_text, 0.0, value if isinstance(value, str) else "", found.id)


def _all_matches(request: _SearchRequest) -> Iterator[_Candidate]:
    query = request.query
    for _ in range(MAX_SORTED // _BATCH):
        page = request.call.yard.records.find(query)
        yield from (each for each in request.candidates(page.resources) if request.is_match(each.candidate))
        if page.next_after is None:
            return
        query = replace(query, after=page.next_after)
    raise InvalidRequest(
        f"More than {MAX_SORTED} results are too many to sort by this property; filter by name, tags, status or time, "
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

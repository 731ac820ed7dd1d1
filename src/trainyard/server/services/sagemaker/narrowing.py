"""What of a search the records can answer from an index; the conditions then test what is left.

Only filters that must hold are of use: those of an expression whose parts are joined by And, however deep.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from trainyard.foundation.jobs import PRIMARY, SecondaryStatus
from trainyard.server.records.contract import Query, TagFilter
from trainyard.server.services.contract import Shape
from trainyard.server.services.sagemaker.conditions import moment, operator_of, words_of
from trainyard.server.services.sagemaker.searched import Searched

_TAG = "Tags."
_INSTANT = timedelta(microseconds=1)  # the records leave out the ends of a span
_ABSENT = ("NotEquals", "NotExists")  # operators that also hold of a resource without the tag


def narrowed(query: Query, expression: Shape | None, searched: Searched) -> Query:
    """The query less what can be known not to fit; what fits is always found by it."""
    for each in _required(expression or {}):
        query = _with(query, each, searched)
    return query


def _required(expression: Shape) -> Iterator[Shape]:
    if expression.get("Operator") == "Or":
        return
    yield from expression.get("Filters", ())
    for each in expression.get("SubExpressions", ()):
        yield from _required(each)


def _with(query: Query, shape: Shape, searched: Searched) -> Query:
    operator, value = operator_of(shape), shape.get("Value", "")
    match shape["Name"], operator:
        case searched.name, "Equals":
            return replace(query, name=_folded(value, searched))
        case searched.name, "Contains":
            return replace(query, name_contains=_folded(value, searched))
        case searched.status, "Equals":
            return replace(query, status=value)
        case "SecondaryStatus", "Equals" if value in set(SecondaryStatus):
            return replace(query, status=PRIMARY[SecondaryStatus(value)])
        case "CreationTime", _:
            after, before = _span(operator, value)
            return replace(
                query,
                created_after=_later(query.created_after, after),
                created_before=_earlier(query.created_before, before),
            )
        case "LastModifiedTime", _:
            after, before = _span(operator, value)
            return replace(
                query,
                modified_after=_later(query.modified_after, after),
                modified_before=_earlier(query.modified_before, before),
            )
        case str(name), _ if name.startswith(_TAG) and operator not in _ABSENT:
            return replace(query, tags=(*query.tags, _tag(name.removeprefix(_TAG), operator, value)))
    return query


def _folded(name: str, searched: Searched) -> str:
    return name.lower() if searched.is_folded else name


def _span(operator: str, value: str) -> tuple[datetime | None, datetime | None]:
    """After and before which moments something fits, both exclusive."""
    match operator:
        case "GreaterThan":
            return moment(value), None
        case "GreaterThanOrEqualTo":
            return moment(value) - _INSTANT, None
        case "LessThan":
            return None, moment(value)
        case "LessThanOrEqualTo":
            return None, moment(value) + _INSTANT
        case "Equals":
            return moment(value) - _INSTANT, moment(value) + _INSTANT
    return None, None


def _later(known: datetime | None, other: datetime | None) -> datetime | None:
    return max((each for each in (known, other) if each is not None), default=None)


def _earlier(known: datetime | None, other: datetime | None) -> datetime | None:
    return min((each for each in (known, other) if each is not None), default=None)


def _tag(key: str, operator: str, value: str) -> TagFilter:
    if operator == "Equals":
        return TagFilter(key, (value,))
    return TagFilter(key, tuple(words_of(value)) if operator == "In" else ())

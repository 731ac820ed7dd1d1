"""Turn the filters of a search that the records can answer from an index into a query.

The conditions then test what the query finds. Only filters that must hold can be used: those joined by And at every
level of the expression.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from trainyard.foundation.jobs.status import PRIMARY, SecondaryStatus
from trainyard.server.experiments.storage import finite_number, indexed_text
from trainyard.server.records.contract import Query, TagFilter, ValueFilter
from trainyard.server.services.contract import Shape
from trainyard.server.services.sagemaker.search.conditions import operator_of, parse_time, words_of
from trainyard.server.services.sagemaker.search.resource_types import IndexedProperty, SearchableType

_TAG = "Tags."
# The bounds of a query are exclusive.
_INSTANT = timedelta(microseconds=1)
# Operators that also match resources without the tag.
_MATCHING_ABSENT = ("NotEquals", "NotExists")


def narrow_query(query: Query, expression: Shape | None, searchable: SearchableType) -> Query:
    """Restrict a query to what can match the expression. It still finds everything that matches."""
    for each in _required_filters(expression or {}):
        query = _with_filter(query, each, searchable)
    return query


def _required_filters(expression: Shape) -> Iterator[Shape]:
    if expression.get("Operator") == "Or":
        return
    yield from expression.get("Filters", ())
    for each in expression.get("SubExpressions", ()):
        yield from _required_filters(each)


def _with_filter(query: Query, shape: Shape, searchable: SearchableType) -> Query:
    operator, value = operator_of(shape), shape.get("Value", "")
    indexed = searchable.indexed_property(shape["Name"])
    if indexed is not None and (wanted := _value_filter(indexed, operator, value)) is not None:
        return replace(query, values=(*query.values, wanted))
    match shape["Name"], operator:
        case searchable.name, "Equals":
            return replace(query, name=_stored_name(value, searchable))
        case searchable.name, "Contains":
            return replace(query, name_contains=_stored_name(value, searchable))
        case searchable.group, "Equals":
            return replace(query, name_prefix=f"{value}/")
        case searchable.status, "Equals":
            return replace(query, status=value)
        case "SecondaryStatus", "Equals" if value in set(SecondaryStatus):
            return replace(query, status=PRIMARY[SecondaryStatus(value)])
        case "CreationTime", _:
            after, before = _time_bounds(operator, value)
            return replace(
                query,
                created_after=_later(query.created_after, after),
                created_before=_earlier(query.created_before, before),
            )
        case "LastModifiedTime", _:
            after, before = _time_bounds(operator, value)
            return replace(
                query,
                modified_after=_later(query.modified_after, after),
                modified_before=_earlier(query.modified_before, before),
            )
        case str(name), _ if name.startswith(_TAG) and operator not in _MATCHING_ABSENT:
            return replace(query, tags=(*query.tags, _tag(name.removeprefix(_TAG), operator, value)))
    return query


def _value_filter(indexed: IndexedProperty, operator: str, value: str) -> ValueFilter | None:
    """Return a filter that everything passes which matches; None if everything might match."""
    if operator == "NotEquals":
        return None
    if operator == "NotExists":
        return ValueFilter(indexed.value, is_absent=True) if indexed.is_exact else None
    if not indexed.is_exact or operator in ("Exists", "Contains"):
        return ValueFilter(indexed.value)
    words = words_of(value) if operator == "In" else [value]
    numbers = [number for number in map(finite_number, words) if number is not None and indexed.has_numbers]
    if operator in ("Equals", "In"):
        texts = tuple(indexed_text(word.lower() if indexed.is_lower_case else word) for word in words)
        return ValueFilter(indexed.value, texts, min(numbers, default=None), max(numbers, default=None))
    if not numbers:
        return ValueFilter(indexed.value)
    is_lower_bound = operator.startswith("Greater")
    return ValueFilter(
        indexed.value, low=numbers[0] if is_lower_bound else None, high=None if is_lower_bound else numbers[0]
    )


def _stored_name(name: str, searchable: SearchableType) -> str:
    return name.lower() if searchable.has_lower_case_names else name


def _time_bounds(operator: str, value: str) -> tuple[datetime | None, datetime | None]:
    """Return the exclusive bounds, after and before, that a filter sets on a time."""
    match operator:
        case "GreaterThan":
            return parse_time(value), None
        case "GreaterThanOrEqualTo":
            return parse_time(value) - _INSTANT, None
        case "LessThan":
            return None, parse_time(value)
        case "LessThanOrEqualTo":
            return None, parse_time(value) + _INSTANT
        case "Equals":
            return parse_time(value) - _INSTANT, parse_time(value) + _INSTANT
    return None, None


def _later(known: datetime | None, other: datetime | None) -> datetime | None:
    return max((each for each in (known, other) if each is not None), default=None)


def _earlier(known: datetime | None, other: datetime | None) -> datetime | None:
    return min((each for each in (known, other) if each is not None), default=None)


def _tag(key: str, operator: str, value: str) -> TagFilter:
    if operator == "Equals":
        return TagFilter(key, (value,))
    return TagFilter(key, tuple(words_of(value)) if operator == "In" else ())

"""The conditions of a Search: parse search expressions and evaluate them on a resource."""

import math
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from trainyard.foundation.errors import InvalidRequest
from trainyard.server.services.contract import Shape

MAX_CONDITIONS = 50

# A resource in the form of the wire, with its Tags and Metrics as mappings.
Candidate = Mapping[str, Any]
Condition = Callable[[Candidate], bool]

# Properties whose values are text but compare as numbers.
_NUMERIC = ("HyperParameters.", "Metrics.", "Parameters.")
_ORDERINGS: Mapping[str, Callable[[Any, Any], bool]] = {
    "GreaterThan": lambda value, wanted: bool(value > wanted),
    "GreaterThanOrEqualTo": lambda value, wanted: bool(value >= wanted),
    "LessThan": lambda value, wanted: bool(value < wanted),
    "LessThanOrEqualTo": lambda value, wanted: bool(value <= wanted),
}


class NamedMembers(Mapping[str, Any]):
    """Members that users named, by name; `name.member` is a member of one. The names may contain dots.

    A value that is no mapping, such as a parameter, is its own only member, under each of the names in `of_plain`.
    """

    def __init__(self, members: Mapping[str, Any], of_plain: frozenset[str] = frozenset()) -> None:
        self._members, self._of_plain = members, of_plain

    def __getitem__(self, path: str) -> Any:
        name, _, member = path.rpartition(".")
        if member in self._of_plain and name in self._members:
            return self._members[name]
        if path in self._members:
            return self._members[path]
        found = self._members[name]
        if isinstance(found, Mapping):
            return found[member]
        raise KeyError(path)

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)


def condition_of(expression: Shape | None, properties: frozenset[str]) -> Condition:
    """Return the condition of a search expression; InvalidRequest if any part of it is invalid."""
    if expression is None:
        return lambda _: True
    if _size(expression) > MAX_CONDITIONS:
        raise InvalidRequest(f"A search can have at most {MAX_CONDITIONS} filters and expressions.")
    return _expression(expression, properties)


def values_of(candidate: Any, path: str) -> Iterator[Any]:
    """Yield what a resource has at a dotted path: nothing, one value, or one for each member of a list.

    The names of tags, metrics and hyperparameters may contain dots.
    """
    if isinstance(candidate, list):
        for each in candidate:
            yield from values_of(each, path)
        return
    if not isinstance(candidate, Mapping):
        return
    if path in candidate:
        yield candidate[path]
        return
    name, _, rest = path.partition(".")
    if rest and name in candidate:
        yield from values_of(candidate[name], rest)


def operator_of(shape: Shape) -> str:
    """Return the operator of a filter, or the default of AWS."""
    operator: str = shape.get("Operator", "Equals" if "Value" in shape else "Exists")
    return operator


def words_of(value: str) -> list[str]:
    """Return the values of the operator In."""
    return [word.strip() for word in value.split(",")]


def parse_time(text: str) -> datetime:
    """Parse the time of a filter; InvalidRequest if it is not a time."""
    try:
        found = datetime.fromisoformat(text)
        return found if found.tzinfo else found.replace(tzinfo=UTC)
    except ValueError as error:
        raise InvalidRequest(f'"{text}" is not a time; write it like 2026-01-31T12:00:00Z.') from error


def _size(expression: Shape) -> int:
    nested = sum(len(each["Filters"]) for each in expression.get("NestedFilters", ()))
    in_subexpressions = sum(1 + _size(each) for each in expression.get("SubExpressions", ()))
    return len(expression.get("Filters", ())) + nested + in_subexpressions


def _expression(expression: Shape, properties: frozenset[str]) -> Condition:
    conditions = [_filter(each, properties) for each in expression.get("Filters", ())]
    conditions += [_nested_condition(each, properties) for each in expression.get("NestedFilters", ())]
    conditions += [_expression(each, properties) for each in expression.get("SubExpressions", ())]
    if not conditions:
        raise InvalidRequest("A search expression needs at least one filter, nested filter or sub-expression.")
    combine = any if expression.get("Operator") == "Or" else all
    return lambda candidate: combine(condition(candidate) for condition in conditions)


def _nested_condition(nested: Shape, properties: frozenset[str]) -> Condition:
    """Return a condition that holds if one member of a list matches all filters."""
    path = nested["NestedPropertyName"]
    _require_property(path, properties)
    prefix = f"{path}."
    tests = []
    for each in nested["Filters"]:
        if not each["Name"].startswith(prefix):
            raise InvalidRequest(f'The nested filter on "{each["Name"]}" must name a property of "{path}".')
        tests.append(_test({**each, "Name": each["Name"].removeprefix(prefix)}, full_name=each["Name"]))

    def holds(candidate: Candidate) -> bool:
        for members in values_of(candidate, path):
            if any(all(test(member) for test in tests) for member in members if isinstance(member, Mapping)):
                return True
        return False

    return holds


def _filter(shape: Shape, properties: frozenset[str]) -> Condition:
    _require_property(shape["Name"], properties)
    return _test(shape, full_name=shape["Name"])


def _require_property(path: str, properties: frozenset[str]) -> None:
    if path.partition(".")[0] not in properties:
        raise InvalidRequest(f'"{path}" is not a searchable property.')


def _test(shape: Shape, *, full_name: str) -> Condition:
    path, wanted = shape["Name"], shape.get("Value")
    operator = operator_of(shape)
    if operator in ("Exists", "NotExists"):
        if wanted is not None:
            raise InvalidRequest(f'The operator {operator} on "{full_name}" takes no Value.')
        return lambda candidate: any(True for _ in values_of(candidate, path)) == (operator == "Exists")
    if wanted is None:
        raise InvalidRequest(f'The operator {operator} on "{full_name}" needs a Value.')
    is_numeric = full_name.startswith(_NUMERIC)
    if operator == "NotEquals":
        return lambda candidate: not any(_equals(v, wanted, is_numeric) for v in values_of(candidate, path))
    holds = _comparison(operator, wanted, is_numeric=is_numeric)
    return lambda candidate: any(holds(value) for value in values_of(candidate, path))


def _comparison(operator: str, wanted: str, *, is_numeric: bool) -> Callable[[Any], bool]:
    if operator == "Equals":
        return lambda value: _equals(value, wanted, is_numeric)
    if operator == "In":
        words = words_of(wanted)
        return lambda value: any(_equals(value, word, is_numeric) for word in words)
    if operator == "Contains":
        return lambda value: isinstance(value, str) and wanted in value
    compare = _ORDERINGS[operator]

    def holds(value: Any) -> bool:
        known = _number(value) if is_numeric else value
        sought = _converted_to(known, wanted)
        return sought is not None and compare(known, sought)

    return holds


def _equals(value: Any, wanted: str, is_numeric: bool) -> bool:
    if is_numeric and (number := _number(value)) is not None and _number(wanted) is not None:
        return number == _number(wanted)
    if isinstance(value, str):
        return value == wanted
    sought = _converted_to(value, wanted)
    return sought is not None and bool(value == sought)


def _converted_to(value: Any, wanted: str) -> Any:
    """Convert the value of a filter to the type of the property; None if they cannot be compared."""
    if isinstance(value, bool):
        return {"true": True, "false": False}.get(wanted.lower())
    if isinstance(value, int | float):
        return _number(wanted)
    if isinstance(value, datetime):
        return parse_time(wanted)
    return wanted if isinstance(value, str) else None


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return None if math.isnan(number) else number

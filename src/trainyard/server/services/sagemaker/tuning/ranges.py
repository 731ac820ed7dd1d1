"""ParameterRanges: the hyperparameters to search, parsed from a request and checked."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.jobs.tuning import HyperparameterRange, RangeKind, Scaling
from trainyard.server.services.sagemaker.tuning.trial_requests import OBJECTIVE

_INTEGER = re.compile(r"[+-]?[0-9]+")
# The largest integer up to which floats, with which strategies compute, are exact.
_MAX_EXACT_INTEGER = 2**53


def ranges_of(given: Mapping[str, Any]) -> tuple[HyperparameterRange, ...]:
    """Return the ranges in the order integer, continuous, categorical.

    Raises InvalidRequest that names an invalid range and says what to change.
    """
    found = tuple(_ranges(given))
    names = [each.name for each in found]
    for name in names:
        if names.count(name) > 1:
            raise InvalidRequest(f'The hyperparameter "{name}" has more than one range; give it only one.')
    return found


def notes_on_ranges(ranges: Sequence[HyperparameterRange]) -> Iterator[str]:
    """Yield notes on ranges with a single value."""
    for each in ranges:
        if each.low == each.high and len(each.values) <= 1:
            value = each.values[0] if each.values else f"{each.low:g}"
            yield f'The range of "{each.name}" has only one value; every training job gets {value}.'


def combinations(ranges: Sequence[HyperparameterRange]) -> int | None:
    """Return the number of combinations of values; None if it is infinite."""
    counts = [_count(each) for each in ranges]
    return None if None in counts else math.prod(count for count in counts if count is not None)


def _count(given: HyperparameterRange) -> int | None:
    if given.kind is RangeKind.CATEGORICAL:
        return len(given.values)
    if given.kind is RangeKind.INTEGER:
        return int(given.high - given.low) + 1
    return 1 if given.low == given.high else None


def _ranges(given: Mapping[str, Any]) -> Iterator[HyperparameterRange]:
    for shape in given.get("IntegerParameterRanges", ()):
        yield _numeric(shape, RangeKind.INTEGER)
    for shape in given.get("ContinuousParameterRanges", ()):
        yield _numeric(shape, RangeKind.CONTINUOUS)
    for shape in given.get("CategoricalParameterRanges", ()):
        yield _categorical(shape)


def _numeric(shape: Mapping[str, Any], kind: RangeKind) -> HyperparameterRange:
    name, scaling = _name(shape), Scaling(shape.get("ScalingType", "Auto"))
    low, high = (_parse_number(shape, member, kind) for member in ("MinValue", "MaxValue"))
    if low > high:
        raise InvalidRequest(
            f'The range of "{name}" has the MinValue {shape["MinValue"]}, which is more than its MaxValue '
            f"{shape['MaxValue']}; swap them."
        )
    _require_scaling(name, scaling, kind=kind, low=low, high=high)
    return HyperparameterRange(name, kind, low=low, high=high, scaling=scaling)


def _name(shape: Mapping[str, Any]) -> str:
    name: str = shape["Name"]
    if not name or name == OBJECTIVE:
        raise InvalidRequest(f'"{name}" is not a valid name of a tuned hyperparameter; choose another.')
    return name


def _parse_number(shape: Mapping[str, Any], member: str, kind: RangeKind) -> float:
    text: str = shape[member]
    if kind is RangeKind.INTEGER:
        return _parse_integer(text, f'The {member} of the integer range "{shape["Name"]}"')
    try:
        number = math.nan if "_" in text else float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InvalidRequest(f'The {member} of the range "{shape["Name"]}" is "{text}"; it must be a finite number.')
    return number


def _parse_integer(text: str, what: str) -> float:
    if not _INTEGER.fullmatch(text.strip()):
        raise InvalidRequest(f'{what} is "{text}"; it must be a whole number; otherwise use a continuous range.')
    if abs(int(text)) > _MAX_EXACT_INTEGER:
        raise InvalidRequest(f"{what} is {text}; it must be from {-_MAX_EXACT_INTEGER} to {_MAX_EXACT_INTEGER}.")
    return float(int(text))


def _require_scaling(name: str, scaling: Scaling, *, kind: RangeKind, low: float, high: float) -> None:
    if scaling is Scaling.LOGARITHMIC and low <= 0:
        raise InvalidRequest(
            f'The range of "{name}" is Logarithmic, so its MinValue must be above 0, not {low:g}; raise it, or choose '
            "Linear."
        )
    if scaling is not Scaling.REVERSE_LOGARITHMIC:
        return
    if kind is RangeKind.INTEGER:
        raise InvalidRequest(
            f'The range of "{name}" is ReverseLogarithmic, which needs a continuous range; choose Linear or '
            "Logarithmic."
        )
    if low < 0 or high >= 1:
        raise InvalidRequest(
            f'The range of "{name}" is ReverseLogarithmic, so it must be at least 0 and below 1, not {low:g} to '
            f"{high:g}; change it, or choose Linear."
        )


def _categorical(shape: Mapping[str, Any]) -> HyperparameterRange:
    name, values = _name(shape), tuple(shape["Values"])
    for value in values:
        if values.count(value) > 1:
            raise InvalidRequest(f'The range of "{name}" has the value {value} twice; remove one.')
    return HyperparameterRange(name, RangeKind.CATEGORICAL, values=values)

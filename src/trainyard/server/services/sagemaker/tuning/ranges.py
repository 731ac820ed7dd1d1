"""ParameterRanges: what is searched, read from the texts of a request and checked."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.tuning import ParameterRange, RangeKind, Scaling
from trainyard.server.services.sagemaker.tuning.trials import OBJECTIVE

_INTEGER = re.compile(r"[+-]?[0-9]+")
_MOST = 2**53  # up to which every whole number is one of the floats that strategies compute with


def ranges_of(given: Mapping[str, Any]) -> tuple[ParameterRange, ...]:
    """What ParameterRanges say, in the order integers, continuous ones, categories.

    InvalidRequest names the hyperparameter that cannot be searched as it stands, and what would do.
    """
    found = tuple(_ranges(given))
    names = [each.name for each in found]
    for name in names:
        if names.count(name) > 1:
            raise InvalidRequest(f'The hyperparameter "{name}" has more than one range; give each one range.')
    return found


def notes_on_ranges(ranges: Sequence[ParameterRange]) -> Iterator[str]:
    """Sentences on ranges that leave no choice."""
    for each in ranges:
        if each.low == each.high and len(each.values) <= 1:
            value = each.values[0] if each.values else f"{each.low:g}"
            yield f'The range of "{each.name}" has one value only; every training job has {value}.'


def combinations(ranges: Sequence[ParameterRange]) -> int | None:
    """How many different trials there can be; None where there is no end of them."""
    counts = [_count(each) for each in ranges]
    return None if None in counts else math.prod(count for count in counts if count is not None)


def _count(given: ParameterRange) -> int | None:
    if given.kind is RangeKind.CATEGORICAL:
        return len(given.values)
    if given.kind is RangeKind.INTEGER:
        return int(given.high - given.low) + 1
    return 1 if given.low == given.high else None


def _ranges(given: Mapping[str, Any]) -> Iterator[ParameterRange]:
    for shape in given.get("IntegerParameterRanges", ()):
        yield _numeric(shape, RangeKind.INTEGER)
    for shape in given.get("ContinuousParameterRanges", ()):
        yield _numeric(shape, RangeKind.CONTINUOUS)
    for shape in given.get("CategoricalParameterRanges", ()):
        yield _categorical(shape)


def _numeric(shape: Mapping[str, Any], kind: RangeKind) -> ParameterRange:
    name, scaling = _name(shape), Scaling(shape.get("ScalingType", "Auto"))
    low, high = (_number(shape, member, kind) for member in ("MinValue", "MaxValue"))
    if low > high:
        raise InvalidRequest(
            f'The range of "{name}" has the MinValue {shape["MinValue"]} and the MaxValue {shape["MaxValue"]}, which '
            "is less; exchange them."
        )
    _require_scaling(name, scaling, kind=kind, low=low, high=high)
    return ParameterRange(name, kind, low=low, high=high, scaling=scaling)


def _name(shape: Mapping[str, Any]) -> str:
    name: str = shape["Name"]
    if not name or name == OBJECTIVE:
        raise InvalidRequest(f'"{name}" cannot be the name of a hyperparameter that is tuned; choose another.')
    return name


def _number(shape: Mapping[str, Any], member: str, kind: RangeKind) -> float:
    text: str = shape[member]
    if kind is RangeKind.INTEGER:
        return _whole(text, f'The {member} of the integer range "{shape["Name"]}"')
    try:
        number = math.nan if "_" in text else float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InvalidRequest(f'The {member} of the range "{shape["Name"]}" is "{text}"; it must be a finite number.')
    return number


def _whole(text: str, what: str) -> float:
    if not _INTEGER.fullmatch(text.strip()):
        raise InvalidRequest(f'{what} is "{text}"; it must be a whole number, or the range a continuous one.')
    if abs(int(text)) > _MOST:
        raise InvalidRequest(f"{what} is {text}; it must be from {-_MOST} to {_MOST}.")
    return float(int(text))


def _require_scaling(name: str, scaling: Scaling, *, kind: RangeKind, low: float, high: float) -> None:
    if scaling is Scaling.LOGARITHMIC and low <= 0:
        raise InvalidRequest(
            f'The range of "{name}" is Logarithmic, so that its MinValue must be above 0 and not {low:g}; raise it, or '
            "choose Linear."
        )
    if scaling is not Scaling.REVERSE_LOGARITHMIC:
        return
    if kind is RangeKind.INTEGER:
        raise InvalidRequest(
            f'The range of "{name}" is ReverseLogarithmic, which is only for continuous ones; choose Linear or '
            "Logarithmic."
        )
    if low < 0 or high >= 1:
        raise InvalidRequest(
            f'The range of "{name}" is ReverseLogarithmic, so that it must be from 0 to below 1 and not {low:g} to '
            f"{high:g}; change it, or choose Linear."
        )


def _categorical(shape: Mapping[str, Any]) -> ParameterRange:
    name, values = _name(shape), tuple(shape["Values"])
    for value in values:
        if values.count(value) > 1:
            raise InvalidRequest(f'The range of "{name}" has the value {value} twice; give each once.')
    return ParameterRange(name, RangeKind.CATEGORICAL, values=values)

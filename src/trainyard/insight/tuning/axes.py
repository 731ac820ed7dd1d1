"""One hyperparameter as a coordinate of a search space."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from trainyard.foundation.jobs.tuning import HyperparameterRange, RangeKind
from trainyard.insight.tuning.contract import Value
from trainyard.insight.tuning.scales import Floats, Scale, scale_between
from trainyard.insight.tuning.scaling import scaling_of


class SearchAxis(Protocol):
    """One hyperparameter that can differ from trial to trial.

    A number has a coordinate from 0 to 1, a category its index. `count` is the number of different values, None for a
    continuous range. Any coordinate is accepted and moved to the nearest valid one.
    """

    @property
    def name(self) -> str: ...

    @property
    def count(self) -> int | None: ...

    @property
    def is_categorical(self) -> bool: ...

    def coordinate(self, value: Value) -> float | None:
        """Return the coordinate of a value; a number outside the bounds counts as the nearer one. None if invalid."""

    def value(self, coordinate: float) -> Value: ...

    def nth(self, index: int) -> Value:
        """Return the value with this index; only if `count` is known."""

    def snap(self, coordinates: Floats) -> Floats: ...

    def spread(self, units: Floats) -> Floats:
        """Map numbers from 0 to 1 to coordinates, so that uniform numbers give each value an equal share."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A hyperparameter with only one value, and therefore no coordinate."""

    name: str
    value: Value

    def admits(self, value: Value | None) -> bool:
        """Whether a value is the constant, or a number that would be clipped to it."""
        if isinstance(self.value, str):
            return value == self.value
        return _is_number(value)


def axis_of(parameter_range: HyperparameterRange) -> SearchAxis | Constant:
    """Return the axis of a range, or a constant if it has only one value."""
    if parameter_range.kind is RangeKind.CATEGORICAL:
        return _categorical_axis(parameter_range)
    if parameter_range.kind is RangeKind.INTEGER:
        return _integer_axis(parameter_range)
    if not parameter_range.low < parameter_range.high:
        return Constant(parameter_range.name, parameter_range.low)
    return ContinuousAxis(
        parameter_range.name,
        parameter_range.low,
        parameter_range.high,
        scale_between(parameter_range.low, parameter_range.high, scaling_of(parameter_range)),
    )


def read_value(parameter_range: HyperparameterRange, text: str) -> Value | None:
    """Parse the value that a program was given as text; None if it is invalid."""
    if parameter_range.kind is RangeKind.CATEGORICAL:
        return text if text in parameter_range.values else None
    if parameter_range.kind is RangeKind.INTEGER and (whole := _parse_integer(text)) is not None:
        return whole
    number = _parse_number(text)
    if number is None or parameter_range.kind is RangeKind.CONTINUOUS:
        return number
    return round(number)


@dataclass(frozen=True)
class ContinuousAxis:
    name: str
    low: float
    high: float
    scale: Scale

    count: None = None
    is_categorical: bool = False

    def coordinate(self, value: Value) -> float | None:
        if isinstance(value, str) or not _is_number(value):
            return None
        clipped = float(min(max(value, self.low), self.high))
        return _clip_to_unit(_apply_to_number(self.scale.unit, clipped))

    def value(self, coordinate: float) -> float:
        number = _apply_to_number(self.scale.number, _clip_to_unit(coordinate))
        return min(max(number, self.low), self.high)

    def nth(self, index: int) -> Value:
        raise AssertionError(f"{self.name} is continuous, so it has no value with the index {index}")

    def snap(self, coordinates: Floats) -> Floats:
        return np.clip(coordinates, 0.0, 1.0)

    def spread(self, units: Floats) -> Floats:
        return np.clip(units, 0.0, 1.0)


@dataclass(frozen=True)
class IntegerAxis:
    """Integers. Each has a cell of the unit interval that reaches halfway to its neighbours.

    On a linear scale all cells have the same size, also at both ends. The coordinate of an integer is within its cell.
    """

    name: str
    low: int
    high: int
    # From half a step below the lower bound to half a step above the upper one.
    scale: Scale

    is_categorical: bool = False

    @property
    def count(self) -> int:
        return self.high - self.low + 1

    def coordinate(self, value: Value) -> float | None:
        if isinstance(value, str) or not _is_number(value):
            return None
        whole = min(max(round(value), self.low), self.high)
        return _clip_to_unit(_apply_to_number(self.scale.unit, whole))

    def value(self, coordinate: float) -> int:
        number = _apply_to_number(self.scale.number, _clip_to_unit(coordinate))
        return min(max(math.floor(number + 0.5), self.low), self.high)

    def nth(self, index: int) -> int:
        return self.low + index

    def snap(self, coordinates: Floats) -> Floats:
        numbers = np.floor(self.scale.number(np.clip(coordinates, 0.0, 1.0)) + 0.5)
        return np.clip(self.scale.unit(np.clip(numbers, float(self.low), float(self.high))), 0.0, 1.0)

    def spread(self, units: Floats) -> Floats:
        return self.snap(units)


@dataclass(frozen=True)
class CategoricalAxis:
    name: str
    values: tuple[str, ...]

    is_categorical: bool = True

    @property
    def count(self) -> int:
        return len(self.values)

    def coordinate(self, value: Value) -> float | None:
        index = self._indexes.get(value)
        return None if index is None else float(index)

    def value(self, coordinate: float) -> str:
        return self.values[int(np.clip(np.rint(coordinate), 0, self.count - 1))]

    def nth(self, index: int) -> str:
        return self.values[index]

    def snap(self, coordinates: Floats) -> Floats:
        return np.clip(np.rint(coordinates), 0.0, self.count - 1.0)

    def spread(self, units: Floats) -> Floats:
        return np.clip(np.floor(units * self.count), 0.0, self.count - 1.0)

    @cached_property
    def _indexes(self) -> dict[Value, int]:
        return {value: index for index, value in enumerate(self.values)}


def _categorical_axis(parameter_range: HyperparameterRange) -> SearchAxis | Constant:
    values = tuple(dict.fromkeys(parameter_range.values))
    assert values, f"the categorical hyperparameter {parameter_range.name} has no values to choose from"
    return (
        Constant(parameter_range.name, values[0]) if len(values) == 1 else CategoricalAxis(parameter_range.name, values)
    )


def _integer_axis(parameter_range: HyperparameterRange) -> SearchAxis | Constant:
    low, high = math.ceil(parameter_range.low), math.floor(parameter_range.high)
    if low >= high:
        return Constant(parameter_range.name, low)
    return IntegerAxis(
        parameter_range.name, low, high, scale_between(low - 0.5, high + 0.5, scaling_of(parameter_range))
    )


def _is_number(value: Value | None) -> bool:
    return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))


def _apply_to_number(function: Callable[[Floats], Floats], number: float) -> float:
    return float(function(np.array([number]))[0])


def _clip_to_unit(unit: float) -> float:
    return min(max(unit, 0.0), 1.0)


def _parse_integer(text: str) -> int | None:
    try:
        return int(text)
    # Not an integer, or with more digits than Python parses.
    except ValueError:
        return None


def _parse_number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None

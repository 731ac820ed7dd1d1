"""What one hyperparameter may be, as one coordinate of a search space."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from trainyard.foundation.tuning import ParameterRange, RangeKind
from trainyard.insight.tuning.contract import Value
from trainyard.insight.tuning.scales import Floats, Scale, scale_between, scaling_of


class Axis(Protocol):
    """One hyperparameter that can differ from trial to trial.

    A number has a coordinate from 0 to 1, a category its index. `count` is how many different values there are, None
    where they are not counted. Coordinates are taken as they come and moved to the nearest that there is.
    """

    @property
    def name(self) -> str: ...

    @property
    def count(self) -> int | None: ...

    @property
    def is_categorical(self) -> bool: ...

    def coordinate(self, value: Value) -> float | None:
        """Where a value lies; a number outside the bounds at the nearer one, and what is no such value nowhere."""

    def value(self, coordinate: float) -> Value: ...

    def nth(self, index: int) -> Value:
        """The value at a place in the order of all; only where they are counted."""

    def snap(self, coordinates: Floats) -> Floats: ...

    def spread(self, units: Floats) -> Floats:
        """Coordinates for numbers from 0 to 1, so that evenly spread ones give each value its fair share."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A hyperparameter that has one value only, and therefore no coordinate."""

    name: str
    value: Value

    def admits(self, value: Value | None) -> bool:
        """Whether a value is the constant, or for numbers would be clipped to it."""
        if isinstance(self.value, str):
            return value == self.value
        return _is_number(value)


def axis_of(asked: ParameterRange) -> Axis | Constant:
    """The coordinate of a range, or the only value it leaves."""
    if asked.kind is RangeKind.CATEGORICAL:
        return _categorical(asked)
    if asked.kind is RangeKind.INTEGER:
        return _integer(asked)
    if not asked.low < asked.high:
        return Constant(asked.name, asked.low)
    return ContinuousAxis(asked.name, asked.low, asked.high, scale_between(asked.low, asked.high, scaling_of(asked)))


def read_value(asked: ParameterRange, text: str) -> Value | None:
    """The value that a program was given as a text; None where it is none of this kind."""
    if asked.kind is RangeKind.CATEGORICAL:
        return text if text in asked.values else None
    if asked.kind is RangeKind.INTEGER and (whole := _whole(text)) is not None:
        return whole
    number = _number(text)
    if number is None or asked.kind is RangeKind.CONTINUOUS:
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
        return _clipped(_applied(self.scale.unit, clipped))

    def value(self, coordinate: float) -> float:
        number = _applied(self.scale.number, _clipped(coordinate))
        return min(max(number, self.low), self.high)

    def nth(self, index: int) -> Value:
        raise AssertionError(f"the values of {self.name} are not counted, so there is none with the number {index}")

    def snap(self, coordinates: Floats) -> Floats:
        return np.clip(coordinates, 0.0, 1.0)

    def spread(self, units: Floats) -> Floats:
        return np.clip(units, 0.0, 1.0)


@dataclass(frozen=True)
class IntegerAxis:
    """Whole numbers. Each has a cell of the unit interval, which reaches halfway to its neighbours.

    On a linear scale the cells are of one size, those of both ends too; a number's coordinate is within its cell.
    """

    name: str
    low: int
    high: int
    scale: Scale  # from half a step below the lower bound to half a step above the upper one

    is_categorical: bool = False

    @property
    def count(self) -> int:
        return self.high - self.low + 1

    def coordinate(self, value: Value) -> float | None:
        if isinstance(value, str) or not _is_number(value):
            return None
        whole = min(max(round(value), self.low), self.high)
        return _clipped(_applied(self.scale.unit, whole))

    def value(self, coordinate: float) -> int:
        number = _applied(self.scale.number, _clipped(coordinate))
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


def _categorical(asked: ParameterRange) -> Axis | Constant:
    values = tuple(dict.fromkeys(asked.values))
    assert values, f"the categorical hyperparameter {asked.name} has no values to choose from"
    return Constant(asked.name, values[0]) if len(values) == 1 else CategoricalAxis(asked.name, values)


def _integer(asked: ParameterRange) -> Axis | Constant:
    low, high = math.ceil(asked.low), math.floor(asked.high)
    if low >= high:
        return Constant(asked.name, low)
    return IntegerAxis(asked.name, low, high, scale_between(low - 0.5, high + 0.5, scaling_of(asked)))


def _is_number(value: Value | None) -> bool:
    return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))


def _applied(function: Callable[[Floats], Floats], number: float) -> float:
    return float(function(np.array([number]))[0])


def _clipped(unit: float) -> float:
    return min(max(unit, 0.0), 1.0)


def _whole(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:  # not whole, or longer than Python reads
        return None


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None

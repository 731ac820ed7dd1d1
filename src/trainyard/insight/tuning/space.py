"""The search space: maps hyperparameters to coordinates of a cube and back."""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from trainyard.foundation.jobs.tuning import HyperparameterRange, RangeKind
from trainyard.insight.tuning.axes import Constant, SearchAxis, axis_of, read_value
from trainyard.insight.tuning.contract import Value
from trainyard.insight.tuning.scales import Floats

# Up to this many points, the random order of a walk is a permutation in memory.
_MAX_PERMUTED = 100_000


class Space:
    """The ranges of one definition; each point is a row of coordinates.

    A range with only one value has no coordinate, so the rows of a space with a single point are empty. Numbers have a
    coordinate from 0 to 1, categories their index. All values that a space returns are within the ranges.
    """

    def __init__(self, ranges: Sequence[HyperparameterRange]) -> None:
        self.ranges = tuple(ranges)
        found = [axis_of(each) for each in ranges]
        self.axes: tuple[SearchAxis, ...] = tuple(each for each in found if not isinstance(each, Constant))
        self.constants = tuple(each for each in found if isinstance(each, Constant))

    @property
    def dimension(self) -> int:
        """The number of coordinates of a point."""
        return len(self.axes)

    @cached_property
    def size(self) -> int | None:
        """The number of points; None if a range is continuous."""
        counts = [axis.count for axis in self.axes]
        return None if None in counts else math.prod(count for count in counts if count is not None)

    @cached_property
    def categorical(self) -> NDArray[np.bool_]:
        return np.array([axis.is_categorical for axis in self.axes], dtype=np.bool_)

    def encode(self, values: Mapping[str, Value]) -> Floats | None:
        """Return the coordinates of a point; None if a value is missing or invalid, such as a removed category.

        Numbers outside their range count as the nearer bound.
        """
        if not all(constant.admits(values.get(constant.name)) for constant in self.constants):
            return None
        row = [axis.coordinate(values[axis.name]) if axis.name in values else None for axis in self.axes]
        known = [coordinate for coordinate in row if coordinate is not None]
        return np.array(known, dtype=np.float64) if len(known) == len(row) else None

    def decode(self, row: Floats) -> dict[str, Value]:
        """Return the point nearest to a row of coordinates."""
        free = {axis.name: axis.value(float(coordinate)) for axis, coordinate in zip(self.axes, row, strict=True)}
        return self._with_constants(free)

    def point(self, index: int) -> dict[str, Value]:
        """Return the point with this index; only if `size` is known."""
        free: dict[str, Value] = {}
        for axis in reversed(self.axes):
            assert axis.count is not None, f"{axis.name} is continuous, so the points of its space cannot be counted"
            index, digit = divmod(index, axis.count)
            free[axis.name] = axis.nth(digit)
        return self._with_constants(free)

    def walk(self, generator: np.random.Generator) -> Iterator[dict[str, Value]]:
        """Iterate over all points once, in random order; only if `size` is known."""
        assert self.size is not None, "only a space without continuous ranges can be walked"
        order = generator.permutation(self.size) if self.size <= _MAX_PERMUTED else _strides(self.size, generator)
        return (self.point(int(index)) for index in order)

    def snap(self, rows: Floats) -> Floats:
        """Move rows to the nearest points of the space, as decoding and encoding them would."""
        snapped = [axis.snap(rows[:, column]) for column, axis in enumerate(self.axes)]
        return _stack_columns(snapped, len(rows))

    def spread(self, units: Floats) -> Floats:
        """Map points of the unit cube, such as a quasi-random sequence, to rows; each value gets an equal share."""
        spread = [axis.spread(units[:, column]) for column, axis in enumerate(self.axes)]
        return _stack_columns(spread, len(units))

    def sample(self, generator: np.random.Generator, size: int = 1) -> Floats:
        """Draw random rows, uniform on the scale of each range."""
        return self.spread(generator.random((size, self.dimension)))

    def key(self, values: Mapping[str, Value]) -> tuple[Value | None, ...]:
        """Return a key that is equal for equal points only."""
        return tuple(values.get(each.name) for each in self.ranges)

    def texts(self, values: Mapping[str, Value]) -> dict[str, str]:
        """Return values as text for a program; parsing a number gives back exactly the same one."""
        return {name: value if isinstance(value, str) else repr(value) for name, value in values.items()}

    def values(self, texts: Mapping[str, str]) -> dict[str, Value]:
        """Parse the texts of the ranges; invalid values and unknown names are left out."""
        read = {each.name: read_value(each, texts[each.name]) for each in self.ranges if each.name in texts}
        return {name: value for name, value in read.items() if value is not None}

    def admits(self, values: Mapping[str, Value]) -> bool:
        """Whether a point is in this space exactly."""
        return set(values) == {each.name for each in self.ranges} and all(
            _is_within(each, values[each.name]) for each in self.ranges
        )

    def _with_constants(self, free: Mapping[str, Value]) -> dict[str, Value]:
        known = {**free, **{constant.name: constant.value for constant in self.constants}}
        return {each.name: known[each.name] for each in self.ranges}


def _strides(size: int, generator: np.random.Generator) -> Iterator[int]:
    """Iterate over all numbers below a large `size`: a step that is coprime to it reaches them all."""
    start, step = _below(size, generator), 1 + _below(size, generator)
    while math.gcd(step, size) != 1:
        step += 1
    return ((start + count * step) % size for count in range(size))


def _below(limit: int, generator: np.random.Generator) -> int:
    """Draw a random integer below a limit that may exceed 64 bits."""
    return int.from_bytes(generator.bytes(limit.bit_length() // 8 + 9)) % limit


def _stack_columns(columns: Sequence[Floats], length: int) -> Floats:
    return np.column_stack(columns) if columns else np.empty((length, 0))


def _is_within(parameter_range: HyperparameterRange, value: Value) -> bool:
    if parameter_range.kind is RangeKind.CATEGORICAL:
        return value in parameter_range.values
    if isinstance(value, str) or (parameter_range.kind is RangeKind.INTEGER and not isinstance(value, int)):
        return False
    return parameter_range.low <= value <= parameter_range.high

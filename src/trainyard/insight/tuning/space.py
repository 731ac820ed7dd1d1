"""What may be searched, as a cube: hyperparameters in, coordinates out, and back."""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from trainyard.foundation.tuning import ParameterRange, RangeKind
from trainyard.insight.tuning.axes import Axis, Constant, axis_of, read_value
from trainyard.insight.tuning.contract import Value
from trainyard.insight.tuning.scales import Floats

_LISTED = 100_000  # points of a space whose order is kept as a list while it is walked through


class Space:
    """The ranges of one definition, with a row of coordinates for each point.

    What has one value only has no coordinate, so that a space of a single point has rows of no length. Numbers have a
    coordinate from 0 to 1, categories their index. Everything that leaves a space as values is within the ranges.
    """

    def __init__(self, ranges: Sequence[ParameterRange]) -> None:
        self.ranges = tuple(ranges)
        found = [axis_of(each) for each in ranges]
        self.axes: tuple[Axis, ...] = tuple(each for each in found if not isinstance(each, Constant))
        self.constants = tuple(each for each in found if isinstance(each, Constant))

    @property
    def dimension(self) -> int:
        """How many coordinates a point has."""
        return len(self.axes)

    @cached_property
    def size(self) -> int | None:
        """How many points there are; None where some number is continuous."""
        counts = [axis.count for axis in self.axes]
        return None if None in counts else math.prod(count for count in counts if count is not None)

    @cached_property
    def categorical(self) -> NDArray[np.bool_]:
        return np.array([axis.is_categorical for axis in self.axes], dtype=np.bool_)

    def encode(self, values: Mapping[str, Value]) -> Floats | None:
        """The coordinates of a point; None where a value is missing or is none of its kind, as a category that is gone.

        Numbers outside their range are taken for the nearer bound.
        """
        if not all(constant.admits(values.get(constant.name)) for constant in self.constants):
            return None
        row = [axis.coordinate(values[axis.name]) if axis.name in values else None for axis in self.axes]
        known = [coordinate for coordinate in row if coordinate is not None]
        return np.array(known, dtype=np.float64) if len(known) == len(row) else None

    def decode(self, row: Floats) -> dict[str, Value]:
        """The point nearest to a row of coordinates."""
        free = {axis.name: axis.value(float(coordinate)) for axis, coordinate in zip(self.axes, row, strict=True)}
        return self._in_order(free)

    def point(self, index: int) -> dict[str, Value]:
        """The point at a place in the order of all; only where `size` is known."""
        free: dict[str, Value] = {}
        for axis in reversed(self.axes):
            assert axis.count is not None, f"{axis.name} is continuous, so the points of its space are not counted"
            index, place = divmod(index, axis.count)
            free[axis.name] = axis.nth(place)
        return self._in_order(free)

    def walk(self, generator: np.random.Generator) -> Iterator[dict[str, Value]]:
        """All points, each once, in an order by chance; only where `size` is known."""
        assert self.size is not None, "only a space without continuous numbers can be walked through"
        order = generator.permutation(self.size) if self.size <= _LISTED else _strides(self.size, generator)
        return (self.point(int(place)) for place in order)

    def snap(self, rows: Floats) -> Floats:
        """Rows moved to points that there are: what `encode` makes of what `decode` makes of them."""
        snapped = [axis.snap(rows[:, column]) for column, axis in enumerate(self.axes)]
        return _joined(snapped, len(rows))

    def spread(self, units: Floats) -> Floats:
        """Rows for points of the unit cube, such as a quasi-random sequence gives them; each value has its share."""
        spread = [axis.spread(units[:, column]) for column, axis in enumerate(self.axes)]
        return _joined(spread, len(units))

    def sample(self, generator: np.random.Generator, size: int = 1) -> Floats:
        """Rows of points by chance, spread as the scales of the ranges say."""
        return self.spread(generator.random((size, self.dimension)))

    def key(self, values: Mapping[str, Value]) -> tuple[Value | None, ...]:
        """What two points have in common only when they are the same."""
        return tuple(values.get(each.name) for each in self.ranges)

    def texts(self, values: Mapping[str, Value]) -> dict[str, str]:
        """Values as a program is given them: numbers are read back as the very same."""
        return {name: value if isinstance(value, str) else repr(value) for name, value in values.items()}

    def values(self, texts: Mapping[str, str]) -> dict[str, Value]:
        """What texts mean here; those that are no value of their kind, or of no range, are left out."""
        read = {each.name: read_value(each, texts[each.name]) for each in self.ranges if each.name in texts}
        return {name: value for name, value in read.items() if value is not None}

    def admits(self, values: Mapping[str, Value]) -> bool:
        """Whether a point is of this space, and not only near it."""
        return set(values) == {each.name for each in self.ranges} and all(
            _is_within(each, values[each.name]) for each in self.ranges
        )

    def _in_order(self, free: Mapping[str, Value]) -> dict[str, Value]:
        known = {**free, **{constant.name: constant.value for constant in self.constants}}
        return {each.name: known[each.name] for each in self.ranges}


def _strides(size: int, generator: np.random.Generator) -> Iterator[int]:
    """All numbers below one that is too large for a list: steps that have no divisor in common with it reach them."""
    start, step = _below(size, generator), 1 + _below(size, generator)
    while math.gcd(step, size) != 1:
        step += 1
    return ((start + count * step) % size for count in range(size))


def _below(limit: int, generator: np.random.Generator) -> int:
    """A whole number by chance, also where the limit is more than 64 bits hold."""
    return int.from_bytes(generator.bytes(limit.bit_length() // 8 + 9)) % limit


def _joined(columns: Sequence[Floats], length: int) -> Floats:
    return np.column_stack(columns) if columns else np.empty((length, 0))


def _is_within(asked: ParameterRange, value: Value) -> bool:
    if asked.kind is RangeKind.CATEGORICAL:
        return value in asked.values
    if isinstance(value, str) or (asked.kind is RangeKind.INTEGER and not isinstance(value, int)):
        return False
    return asked.low <= value <= asked.high

"""How the values of a numeric range are spread over the unit interval: what is a step of equal size."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from trainyard.foundation.tuning import ParameterRange, RangeKind, Scaling

Floats = NDArray[np.float64]

# Auto is logarithmic from these ratios of the bounds on. Who lets a real number vary by a factor of 100, such as a
# learning rate from 0.001 to 0.1, thinks in orders of magnitude: on a linear scale nine trials of ten would fall into
# the upper one. A lower bound of an integer is more often just the least that makes sense (1 to 100 trees), and on a
# logarithmic scale a fifth of all trials would be spent on it; a factor of 1000 is wanted there.
_LOGARITHMIC_FROM = {RangeKind.CONTINUOUS: 100.0, RangeKind.INTEGER: 1000.0}


class Scale(Protocol):
    """Maps numbers between two bounds to the unit interval and back, in order, end to end."""

    def unit(self, numbers: Floats) -> Floats: ...

    def number(self, units: Floats) -> Floats: ...


def scale_between(low: float, high: float, scaling: Scaling) -> Scale:
    """The scale from `low` to a higher `high`, which is linear where the asked one cannot tell them apart.

    A logarithm wants positive bounds, and a reverse one bounds from 0 to below 1.
    """
    if scaling is Scaling.LOGARITHMIC and low > 0 and np.log(high) > np.log(low):
        return LogarithmicScale(low, high)
    if scaling is Scaling.REVERSE_LOGARITHMIC and low >= 0 and high < 1 and np.log1p(-high) < np.log1p(-low):
        return ReverseLogarithmicScale(low, high)
    return LinearScale(low, high)


def scaling_of(asked: ParameterRange) -> Scaling:
    """The scaling of a range, with Auto decided by how many times the upper bound is the lower one."""
    if asked.scaling is not Scaling.AUTO:
        return asked.scaling
    is_wide = asked.low > 0 and asked.high / asked.low >= _LOGARITHMIC_FROM[asked.kind]
    return Scaling.LOGARITHMIC if is_wide else Scaling.LINEAR


@dataclass(frozen=True, slots=True)
class LinearScale:
    low: float
    high: float

    def unit(self, numbers: Floats) -> Floats:
        # Divided by the larger bound first, because the difference of two bounds may be more than a float holds.
        largest = max(abs(self.low), abs(self.high))
        low, high = self.low / largest, self.high / largest
        return (numbers / largest - low) / (high - low)

    def number(self, units: Floats) -> Floats:
        return (1 - units) * self.low + units * self.high


@dataclass(frozen=True, slots=True)
class LogarithmicScale:
    low: float
    high: float

    def unit(self, numbers: Floats) -> Floats:
        low, high = np.log(self.low), np.log(self.high)
        return np.asarray((np.log(numbers) - low) / (high - low), dtype=np.float64)

    def number(self, units: Floats) -> Floats:
        # Near the largest float the exponential of its own logarithm may be infinite.
        exact = np.exp(np.minimum((1 - units) * np.log(self.low) + units * np.log(self.high), _LARGEST))
        return np.asarray(exact, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class ReverseLogarithmicScale:
    low: float
    high: float

    def unit(self, numbers: Floats) -> Floats:
        low, high = np.log1p(-self.low), np.log1p(-self.high)
        return np.asarray((low - np.log1p(-numbers)) / (low - high), dtype=np.float64)

    def number(self, units: Floats) -> Floats:
        exponents = (1 - units) * np.log1p(-self.low) + units * np.log1p(-self.high)
        return np.asarray(-np.expm1(exponents), dtype=np.float64)


_LARGEST = float(np.log(np.finfo(np.float64).max))

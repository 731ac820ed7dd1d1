"""The scales of numeric ranges: how values map to the unit interval."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from trainyard.foundation.jobs.tuning import Scaling

Floats = NDArray[np.float64]


class Scale(Protocol):
    """Maps numbers between two bounds monotonically to the unit interval and back."""

    def unit(self, numbers: Floats) -> Floats: ...

    def number(self, units: Floats) -> Floats: ...


def scale_between(low: float, high: float, scaling: Scaling) -> Scale:
    """Return the scale from `low` to `high`; it is linear if the requested scaling cannot represent the bounds.

    A logarithmic scale needs positive bounds, a reverse logarithmic one bounds from 0 to below 1.
    """
    if scaling is Scaling.LOGARITHMIC and low > 0 and np.log(high) > np.log(low):
        return LogarithmicScale(low, high)
    if scaling is Scaling.REVERSE_LOGARITHMIC and low >= 0 and high < 1 and np.log1p(-high) < np.log1p(-low):
        return ReverseLogarithmicScale(low, high)
    return LinearScale(low, high)


@dataclass(frozen=True, slots=True)
class LinearScale:
    low: float
    high: float

    def unit(self, numbers: Floats) -> Floats:
        # Divide by the larger bound first, because the difference of two bounds may overflow.
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
        # Near the largest float, the exponential of its own logarithm may be infinite.
        exact = np.exp(np.minimum((1 - units) * np.log(self.low) + units * np.log(self.high), _MAX_LOG))
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


_MAX_LOG = float(np.log(np.finfo(np.float64).max))

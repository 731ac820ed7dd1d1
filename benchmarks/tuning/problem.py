"""What an engine of the benchmark is given to minimise."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from trainyard.foundation.tuning import ParameterRange, RangeKind, Scaling
from trainyard.insight.tuning.contract import Value

Values = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something to minimise over ranges, of which the least value is known.

    `truth` is the value without noise, or None where a trial fails. `noise` is the standard deviation of what is added
    to it when an engine is told. `optimum` are values at which `truth` is least.
    """

    name: str
    ranges: tuple[ParameterRange, ...]
    truth: Callable[[Values], float | None]
    optimum: Values
    noise: float = 0.0

    @property
    def least(self) -> float:
        value = self.truth(self.optimum)
        assert value is not None, f"The optimum of {self.name} fails."
        return value


def continuous(name: str, low: float, high: float) -> ParameterRange:
    return ParameterRange(name, RangeKind.CONTINUOUS, low, high, Scaling.LINEAR)


def logarithmic(name: str, low: float, high: float) -> ParameterRange:
    return ParameterRange(name, RangeKind.CONTINUOUS, low, high, Scaling.LOGARITHMIC)


def reverse_logarithmic(name: str, low: float, high: float) -> ParameterRange:
    return ParameterRange(name, RangeKind.CONTINUOUS, low, high, Scaling.REVERSE_LOGARITHMIC)


def integer(name: str, low: int, high: int) -> ParameterRange:
    return ParameterRange(name, RangeKind.INTEGER, low, high, Scaling.LINEAR)


def logarithmic_integer(name: str, low: int, high: int) -> ParameterRange:
    return ParameterRange(name, RangeKind.INTEGER, low, high, Scaling.LOGARITHMIC)


def categorical(name: str, *values: str) -> ParameterRange:
    return ParameterRange(name, RangeKind.CATEGORICAL, values=values)


def number(values: Values, name: str) -> float:
    """A numeric hyperparameter of a suggestion."""
    return float(values[name])

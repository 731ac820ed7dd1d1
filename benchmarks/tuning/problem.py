"""The problems that the engines of the benchmark minimize."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from trainyard.foundation.jobs.tuning import HyperparameterRange, RangeKind, Scaling
from trainyard.insight.tuning.contract import Value

Values = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Problem:
    """A function to minimize over ranges, with a known minimum.

    `truth` is the value without noise, or None where a trial fails. `noise` is the standard deviation of the noise that
    engines see on top of it. `optimum` are values at which `truth` is least.
    """

    name: str
    ranges: tuple[HyperparameterRange, ...]
    truth: Callable[[Values], float | None]
    optimum: Values
    noise: float = 0.0

    @property
    def least(self) -> float:
        value = self.truth(self.optimum)
        assert value is not None, f"The optimum of {self.name} fails."
        return value


def continuous(name: str, low: float, high: float) -> HyperparameterRange:
    return HyperparameterRange(name, RangeKind.CONTINUOUS, low, high, Scaling.LINEAR)


def logarithmic(name: str, low: float, high: float) -> HyperparameterRange:
    return HyperparameterRange(name, RangeKind.CONTINUOUS, low, high, Scaling.LOGARITHMIC)


def reverse_logarithmic(name: str, low: float, high: float) -> HyperparameterRange:
    return HyperparameterRange(name, RangeKind.CONTINUOUS, low, high, Scaling.REVERSE_LOGARITHMIC)


def integer(name: str, low: int, high: int) -> HyperparameterRange:
    return HyperparameterRange(name, RangeKind.INTEGER, low, high, Scaling.LINEAR)


def logarithmic_integer(name: str, low: int, high: int) -> HyperparameterRange:
    return HyperparameterRange(name, RangeKind.INTEGER, low, high, Scaling.LOGARITHMIC)


def categorical(name: str, *values: str) -> HyperparameterRange:
    return HyperparameterRange(name, RangeKind.CATEGORICAL, values=values)


def number(values: Values, name: str) -> float:
    """Return a numeric hyperparameter of a suggestion."""
    return float(values[name])

"""Pairs of related problems, like a tuning job and its warm-started child."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import sqrt

from benchmarks.tuning.problem import Problem, Values
from benchmarks.tuning.scales import from_unit, to_unit
from trainyard.foundation.jobs.tuning import HyperparameterRange, RangeKind
from trainyard.insight.tuning.contract import Value

# How far ranges extend from the optimum to either side, as a fraction of the whole range.
NEARER, FARTHER = 0.3, 0.6
# The shift of the middle of a range in a relative, as a fraction of the range.
SHIFT = 0.08
# The linear map from the values of the parent to those of a relative.
FACTOR, OFFSET = 3.0, 7.0


@dataclass(frozen=True, slots=True)
class Related:
    """A parent and its child. `as_parents` converts a value of the child to one of the parent."""

    parent: Problem
    child: Problem
    as_parents: Callable[[float], float]


def with_changed_ranges(problem: Problem) -> Related:
    """Return the same function twice: ranges extend farther below the optimum in the parent, above in the child."""
    parent = tuple(_around(each, problem.optimum, below=FARTHER, above=NEARER) for each in problem.ranges)
    child = tuple(_around(each, problem.optimum, below=NEARER, above=FARTHER) for each in problem.ranges)
    return Related(replace(problem, ranges=parent), replace(problem, ranges=child), lambda value: value)


def shifted_and_scaled(problem: Problem) -> Related:
    """Return another function whose real parameters have their optima elsewhere and whose values are scaled."""
    shifts = {each.name: _shift(each, problem.optimum) for each in problem.ranges}

    def truth(values: Values) -> float | None:
        value = problem.truth({each.name: _there(each, values, shift=shifts[each.name]) for each in problem.ranges})
        return None if value is None else FACTOR * value + OFFSET

    child = replace(
        problem,
        truth=truth,
        optimum={each.name: _here(each, problem.optimum, shift=shifts[each.name]) for each in problem.ranges},
        noise=FACTOR * problem.noise,
    )
    return Related(problem, child, lambda value: (value - OFFSET) / FACTOR)


def _around(within: HyperparameterRange, optimum: Values, *, below: float, above: float) -> HyperparameterRange:
    if within.kind is RangeKind.CATEGORICAL:
        return within
    middle = to_unit(within, float(optimum[within.name]))
    return replace(within, low=from_unit(within, middle - below), high=from_unit(within, middle + above))


def _shift(within: HyperparameterRange, optimum: Values) -> float:
    """Return the shift of the middle of a range, toward the end that is farther from the optimum."""
    if within.kind is not RangeKind.CONTINUOUS:
        return 0.0
    return SHIFT if to_unit(within, float(optimum[within.name])) < 0.5 else -SHIFT


def _there(within: HyperparameterRange, values: Values, *, shift: float) -> Value:
    """Map a value of the child to the parent. The ends of a range stay where they are."""
    value = values[within.name]
    if shift == 0.0:
        return value
    unit = to_unit(within, float(value))
    return from_unit(within, unit - 4.0 * shift * unit * (1.0 - unit))


def _here(within: HyperparameterRange, values: Values, *, shift: float) -> Value:
    """Map a value of the parent to the child: the inverse of `_there`."""
    value = values[within.name]
    if shift == 0.0:
        return value
    straight = 1.0 - 4.0 * shift
    unit = to_unit(within, float(value))
    return from_unit(within, (sqrt(straight**2 + 16.0 * shift * unit) - straight) / (8.0 * shift))

"""Problems that are related to another, as those that a tuning job is warm-started for."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import sqrt

from benchmarks.tuning.problem import Problem, Values
from benchmarks.tuning.scales import from_unit, to_unit
from trainyard.foundation.tuning import ParameterRange, RangeKind
from trainyard.insight.tuning.contract import Value

NEARER, FARTHER = 0.3, 0.6  # how far ranges reach from the optimum to either side, where 1 is the whole range
SHIFT = 0.08  # by how much of its range what is in the middle of it lies elsewhere in a relative
FACTOR, OFFSET = 3.0, 7.0  # what a relative's values are to those of its parent


@dataclass(frozen=True, slots=True)
class Related:
    """A parent and its child. `as_parents` says what a value of the child would be in the parent."""

    parent: Problem
    child: Problem
    as_parents: Callable[[float], float]


def with_changed_ranges(problem: Problem) -> Related:
    """The same function: the parent's ranges reach farther below the optimum, and those of the child farther above."""
    parent = tuple(_around(each, problem.optimum, below=FARTHER, above=NEARER) for each in problem.ranges)
    child = tuple(_around(each, problem.optimum, below=NEARER, above=FARTHER) for each in problem.ranges)
    return Related(replace(problem, ranges=parent), replace(problem, ranges=child), lambda value: value)


def shifted_and_scaled(problem: Problem) -> Related:
    """Another function: every real number has its optimum elsewhere, and values are of another size."""
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


def _around(within: ParameterRange, optimum: Values, *, below: float, above: float) -> ParameterRange:
    if within.kind is RangeKind.CATEGORICAL:
        return within
    middle = to_unit(within, float(optimum[within.name]))
    return replace(within, low=from_unit(within, middle - below), high=from_unit(within, middle + above))


def _shift(within: ParameterRange, optimum: Values) -> float:
    """How far the middle of a range is moved, toward the end that is farther from the optimum."""
    if within.kind is not RangeKind.CONTINUOUS:
        return 0.0
    return SHIFT if to_unit(within, float(optimum[within.name])) < 0.5 else -SHIFT


def _there(within: ParameterRange, values: Values, *, shift: float) -> Value:
    """What a value of the child is in the parent. The ends of a range stay where they are."""
    value = values[within.name]
    if shift == 0.0:
        return value
    unit = to_unit(within, float(value))
    return from_unit(within, unit - 4.0 * shift * unit * (1.0 - unit))


def _here(within: ParameterRange, values: Values, *, shift: float) -> Value:
    """What a value of the parent is in the child: the reverse of `_there`."""
    value = values[within.name]
    if shift == 0.0:
        return value
    straight = 1.0 - 4.0 * shift
    unit = to_unit(within, float(value))
    return from_unit(within, (sqrt(straight**2 + 16.0 * shift * unit) - straight) / (8.0 * shift))

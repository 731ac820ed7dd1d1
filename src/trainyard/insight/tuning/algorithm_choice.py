"""The choice of the algorithm for the next trial, in a study of several.

Each algorithm gets a few trials first. After that, the next trial goes to the algorithm with the largest expected
improvement on the best value of the study. The better half of an algorithm's own trials gives its prediction: their
mean and standard deviation, which after a single trial is that of all trials. So an algorithm that leads but has
stopped improving yields to one that is nearly as good and still varies. One that fails or stays far behind gets few
trials, but never less than a quarter of an even share: some algorithms need more trials to become good. Running trials
count as if they had improved nothing, so that one algorithm does not get all free slots.

The objectives of all definitions are compared as they are; a study has one direction for all.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy.special import stdtr

from trainyard.foundation.jobs.tuning import Direction, TuningPlan
from trainyard.insight.tuning.contract import Observation, State

# Trials of each algorithm before the expected improvement decides.
_INITIAL_TRIALS = 4
_MIN_SHARE = 0.25  # of an even share
# Standard deviations below the mean; beyond, the expected improvement underflows.
_MIN_THRESHOLD = -1e6


def rank_definitions(plan: TuningPlan, histories: Mapping[str, Sequence[Observation]]) -> list[str]:
    """Return the names of the definitions; the first one gets the next trial."""
    sign = 1.0 if plan.definitions[0].objective.direction is Direction.MINIMIZE else -1.0
    all_results = [_results_of(each.name, histories[each.name], sign=sign) for each in plan.definitions]
    values_so_far = sorted(value for results in all_results for value in results.values)
    best, deviation = (values_so_far[0], _standard_deviation(values_so_far)) if values_so_far else (math.inf, 0.0)
    is_due = {results.name: _is_due(results, all_results, initial=_initial_trials(plan)) for results in all_results}
    ordered = sorted(
        all_results,
        key=lambda results: (
            not is_due[results.name],
            -_expected_improvement(results, best, default_deviation=deviation),
            results.count,
        ),
    )
    return [results.name for results in ordered]


@dataclass(frozen=True, slots=True)
class _AlgorithmResults:
    """The results of one algorithm. Smaller values are better; the best comes first."""

    name: str
    values: tuple[float, ...]
    count: int
    pending: int


def _results_of(name: str, history: Sequence[Observation], *, sign: float) -> _AlgorithmResults:
    own = [each for each in history if not each.source]
    values_so_far = [each.value for each in own if each.state in (State.MEASURED, State.CUT_SHORT)]
    finite = [sign * value for value in values_so_far if value is not None and math.isfinite(value)]
    return _AlgorithmResults(name, tuple(sorted(finite)), len(own), sum(each.state is State.PENDING for each in own))


def _initial_trials(plan: TuningPlan) -> int:
    if plan.max_trials is None:
        return _INITIAL_TRIALS
    return min(_INITIAL_TRIALS, max(1, plan.max_trials // (3 * len(plan.definitions))))


def _is_due(results: _AlgorithmResults, all_results: Sequence[_AlgorithmResults], *, initial: int) -> bool:
    """Whether a definition must get the next trial, whatever is expected of the others."""
    fewest = min(each.count for each in all_results)
    least = _MIN_SHARE * sum(each.count for each in all_results) / len(all_results)
    return results.count == fewest and fewest < max(initial, least)


def _expected_improvement(results: _AlgorithmResults, best: float, *, default_deviation: float) -> float:
    """Return the expected improvement of the next trial on the best value of all, predicted by the better half."""
    if not results.values:
        return 0.0
    half = results.values[: max(2, math.ceil(len(results.values) / 2))]
    deviation = (_standard_deviation(half) if len(half) > 1 else default_deviation) * math.sqrt(1 + 1 / len(half))
    if deviation == 0.0 or not math.isfinite(deviation):
        return 0.0
    threshold = (best - sum(half) / len(half)) / deviation
    return _expected_shortfall(threshold, max(2, len(half))) * deviation / (1 + results.pending)


def _standard_deviation(values: Sequence[float]) -> float:
    if len(values) < 2:
        return 0.0
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) * (value - mean) for value in values) / (len(values) - 1))


def _expected_shortfall(threshold: float, freedom: int) -> float:
    """Return the mean of max(0, threshold - x), where x has a Student's t-distribution with `freedom` >= 2."""
    if threshold < _MIN_THRESHOLD:
        return 0.0
    below = float(stdtr(freedom, threshold))
    scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - 0.5 * math.log(freedom * math.pi)
    density = math.exp(scale - (freedom + 1) / 2 * math.log1p(threshold**2 / freedom))
    return threshold * below + (freedom + threshold**2) / (freedom - 1) * density

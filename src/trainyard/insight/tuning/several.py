"""Which of several algorithms the next trial is of.

Each is given a few trials first. After that the one is chosen from which the next trial promises to improve most on the
best value of the study. What an algorithm promises is told by the better half of its own trials: their mean and how far
they lie apart, which a single trial leaves to be guessed from the trials of all. So an algorithm that leads but no
longer moves gives way to one that is nearly as good and still varies, and one that fails or stays far behind is left
alone, but never to less than a quarter of an even share: an algorithm may need more trials than others to become good.
Trials that run count as if they had brought nothing, so that free slots are not all given to one.

The objectives of all definitions are compared as they are; a study has one direction for all.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy.special import stdtr

from trainyard.foundation.tuning import Direction, TuningPlan
from trainyard.insight.tuning.contract import Observation, State

_FIRST = 4  # trials that each has before promises count
_LEAST_SHARE = 0.25  # of an even one
_HOPELESS = -1e6  # spreads below the mean, where no improvement can be told from none


def preferred(plan: TuningPlan, histories: Mapping[str, Sequence[Observation]]) -> list[str]:
    """The names of the definitions, the one that shall have the next trial first."""
    sign = 1.0 if plan.definitions[0].objective.direction is Direction.MINIMIZE else -1.0
    records = [_record(each.name, histories[each.name], sign=sign) for each in plan.definitions]
    known = sorted(value for record in records for value in record.values)
    best, spread = (known[0], _spread(known)) if known else (math.inf, 0.0)
    turns = {record.name: _has_turn(record, records, first=_first(plan)) for record in records}
    ordered = sorted(
        records, key=lambda record: (not turns[record.name], -_promise(record, best, usual=spread), record.count)
    )
    return [record.name for record in ordered]


@dataclass(frozen=True, slots=True)
class _Record:
    """What one algorithm has come to: the smaller a value the better, the best first."""

    name: str
    values: tuple[float, ...]
    count: int
    pending: int


def _record(name: str, history: Sequence[Observation], *, sign: float) -> _Record:
    own = [each for each in history if not each.source]
    known = [each.value for each in own if each.state in (State.MEASURED, State.CUT_SHORT)]
    finite = [sign * value for value in known if value is not None and math.isfinite(value)]
    return _Record(name, tuple(sorted(finite)), len(own), sum(each.state is State.PENDING for each in own))


def _first(plan: TuningPlan) -> int:
    if plan.max_trials is None:
        return _FIRST
    return min(_FIRST, max(1, plan.max_trials // (3 * len(plan.definitions))))


def _has_turn(record: _Record, records: Sequence[_Record], *, first: int) -> bool:
    """Whether a definition must have the next trial, whatever the others promise."""
    fewest = min(each.count for each in records)
    least = _LEAST_SHARE * sum(each.count for each in records) / len(records)
    return record.count == fewest and fewest < max(first, least)


def _promise(record: _Record, best: float, *, usual: float) -> float:
    """By how much the next trial improves on the best value of all, as its own better half lets expect."""
    if not record.values:
        return 0.0
    half = record.values[: max(2, math.ceil(len(record.values) / 2))]
    spread = (_spread(half) if len(half) > 1 else usual) * math.sqrt(1 + 1 / len(half))
    if spread == 0.0 or not math.isfinite(spread):
        return 0.0
    threshold = (best - sum(half) / len(half)) / spread
    return _expected_below(threshold, max(2, len(half))) * spread / (1 + record.pending)


def _spread(values: Sequence[float]) -> float:
    if len(values) < 2:
        return 0.0
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) * (value - mean) for value in values) / (len(values) - 1))


def _expected_below(threshold: float, freedom: int) -> float:
    """The mean of max(0, threshold - x) where x is of Student's distribution with at least two degrees of freedom."""
    if threshold < _HOPELESS:
        return 0.0
    below = float(stdtr(freedom, threshold))
    scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - 0.5 * math.log(freedom * math.pi)
    density = math.exp(scale - (freedom + 1) / 2 * math.log1p(threshold**2 / freedom))
    return threshold * below + (freedom + threshold**2) / (freedom - 1) * density

"""The curve rule: a trial ends when its learning curve leads, most likely, to nothing better than the best so far.

It judges a trial from its third report on, once three others have run to their end, further than it has come: these
show how such trainings go and how long they are. What is asked is the chance that the last value of the trial will be
better than that of the best trial that has ended. `forecasting` says how it is found. A forecast from the beginning of
a curve takes a slow trial for a bad one now and then, so that less chance is enough to go on there.
"""

import math
from collections.abc import Sequence

from trainyard.foundation.tuning import Direction, Objective
from trainyard.insight.tuning.contract import Run
from trainyard.insight.tuning.forecasting import learn

_FIRST_REPORT = 3
_FEWEST_FINISHED = 3

_LEAST_CHANCE = 0.08
_LEAST_CHANCE_AT_FIRST = 0.03
_AT_FIRST = 5  # reports
_AT_FIRST_OF_LENGTH = 1 / 5

_LEARNED_FROM = 25  # finished trials, the latest ones


class CurveRule:
    """Ends trials that have little chance to become the best."""

    def __init__(self, objective: Objective) -> None:
        self._metric = objective.metric
        self._sign = 1.0 if objective.direction is Direction.MINIMIZE else -1.0

    def verdict(self, run: Run, others: Sequence[Run]) -> str | None:
        report = len(run.curve)
        if run.is_over or report < _FIRST_REPORT:
            return None
        longer = [other for other in others if _has_finished(other) and len(other.curve) > report]
        if len(longer) < _FEWEST_FINISHED:
            return None
        if not math.isfinite(run.curve[-1]):
            return f"{self._metric} was {run.curve[-1]} at report {report}, while {len(longer)} other trials finished."
        return self._compare(run, longer, best=self._best(others))

    def _compare(self, run: Run, finished: Sequence[Run], *, best: float) -> str | None:
        latest = sorted(finished, key=lambda other: other.number)[-_LEARNED_FROM:]
        model = learn(tuple(self._losses(other.curve) for other in latest))
        forecast = model.forecast(self._losses(run.curve))
        chance = forecast.chance_below(self._sign * best)
        if chance >= _enough_chance(len(run.curve), model.length):
            return None
        return (
            f"{self._metric} was {run.curve[-1]:.6g} at report {len(run.curve)} of about {model.length}, which leads "
            f"to {self._sign * forecast.mean:.4g} give or take {forecast.deviation:.2g}; the chance that it becomes "
            f"better than {best:.6g}, the best so far, is {chance:.1%}."
        )

    def _best(self, others: Sequence[Run]) -> float:
        ended = (other.curve[-1] for other in others if other.is_over and other.curve)
        return min((value for value in ended if math.isfinite(value)), key=lambda value: self._sign * value)

    def _losses(self, curve: Sequence[float]) -> tuple[float, ...]:
        return tuple(self._sign * value for value in curve)


def _has_finished(run: Run) -> bool:
    return run.is_over and not run.is_cut_short and bool(run.curve) and math.isfinite(run.curve[-1])


def _enough_chance(report: int, length: int) -> float:
    is_beginning = report <= max(_AT_FIRST, length * _AT_FIRST_OF_LENGTH)
    return _LEAST_CHANCE_AT_FIRST if is_beginning else _LEAST_CHANCE

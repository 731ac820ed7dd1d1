"""The curve rule: a trial ends when its learning curve will probably not beat the best value so far.

The rule applies from the third report on, once three other trials have finished with longer curves: they show the
typical course and length of such trainings. It computes the probability that the last value of the trial will be better
than that of the best ended trial; see `curve_forecast`. A forecast from the beginning of a curve sometimes mistakes a
slow trial for a bad one, so there a lower probability is enough to continue.
"""

import math
from collections.abc import Sequence

from trainyard.foundation.jobs.tuning import Direction, Objective
from trainyard.insight.tuning.contract import TrialCurve
from trainyard.insight.tuning.curve_forecast import fit_curve_model

_FIRST_REPORT = 3
_MIN_FINISHED = 3

_MIN_PROBABILITY = 0.08
# The minimum at the beginning of a curve: the first reports, or the first part of its length if that is more.
_MIN_EARLY_PROBABILITY = 0.03
_EARLY_REPORTS = 5
_EARLY_FRACTION = 1 / 5

# Finished trials that the forecast learns from: the latest ones.
_MAX_FINISHED = 25


class CurveRule:
    """Ends trials that have little chance of becoming the best."""

    def __init__(self, objective: Objective) -> None:
        self._metric = objective.metric
        self._sign = 1.0 if objective.direction is Direction.MINIMIZE else -1.0

    def verdict(self, trial: TrialCurve, others: Sequence[TrialCurve]) -> str | None:
        report = len(trial.curve)
        if trial.is_over or report < _FIRST_REPORT:
            return None
        longer = [other for other in others if _has_finished(other) and len(other.curve) > report]
        if len(longer) < _MIN_FINISHED:
            return None
        if not math.isfinite(trial.curve[-1]):
            return (
                f"{self._metric} was {trial.curve[-1]} at report {report}, while {len(longer)} other trials finished."
            )
        return self._compare(trial, longer, best=self._best(others))

    def _compare(self, trial: TrialCurve, finished: Sequence[TrialCurve], *, best: float) -> str | None:
        latest = sorted(finished, key=lambda other: other.number)[-_MAX_FINISHED:]
        model = fit_curve_model(tuple(self._losses(other.curve) for other in latest))
        forecast = model.forecast(self._losses(trial.curve))
        probability = forecast.probability_below(self._sign * best)
        if probability >= _min_probability(len(trial.curve), model.length):
            return None
        return (
            f"{self._metric} was {trial.curve[-1]:.6g} at report {len(trial.curve)} of about {model.length}, which "
            f"leads to {self._sign * forecast.mean:.4g} give or take {forecast.deviation:.2g}; the chance that it "
            f"becomes better than {best:.6g}, the best so far, is {probability:.1%}."
        )

    def _best(self, others: Sequence[TrialCurve]) -> float:
        ended = (other.curve[-1] for other in others if other.is_over and other.curve)
        return min((value for value in ended if math.isfinite(value)), key=lambda value: self._sign * value)

    def _losses(self, curve: Sequence[float]) -> tuple[float, ...]:
        return tuple(self._sign * value for value in curve)


def _has_finished(trial: TrialCurve) -> bool:
    return trial.is_over and not trial.is_cut_short and bool(trial.curve) and math.isfinite(trial.curve[-1])


def _min_probability(report: int, length: int) -> float:
    is_early = report <= max(_EARLY_REPORTS, length * _EARLY_FRACTION)
    return _MIN_EARLY_PROBABILITY if is_early else _MIN_PROBABILITY

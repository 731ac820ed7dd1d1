"""The median rule: a trial ends when it is worse than the median of the other trials at the same report.

This is what AWS documents for early stopping of type Auto. At each report of the objective, the rule takes the running
average of every other trial up to the same report, and ends the trial if its report is worse than their median. AWS
does not say when it starts; here the rule applies from the second report on, once five others have come as far.

A report that is not a finite number counts as worse than any other, and so does a running average that contains it.
"""

import math
from collections.abc import Sequence
from statistics import median

from trainyard.foundation.jobs.tuning import Direction, Objective
from trainyard.insight.tuning.contract import TrialCurve

FIRST_REPORT = 2
MIN_OTHERS = 5


class MedianRule:
    """Ends trials whose objective is worse than the median of the running averages of the others."""

    def __init__(self, objective: Objective) -> None:
        self._metric = objective.metric
        self._sign = 1.0 if objective.direction is Direction.MINIMIZE else -1.0

    def verdict(self, trial: TrialCurve, others: Sequence[TrialCurve]) -> str | None:
        report = len(trial.curve)
        if trial.is_over or report < FIRST_REPORT:
            return None
        averages = [self._average(other.curve, report) for other in others if len(other.curve) >= report]
        if len(averages) < MIN_OTHERS:
            return None
        middle = median(averages)
        if self._loss(trial.curve[-1]) <= middle:
            return None
        return (
            f"{self._metric} was {trial.curve[-1]:.6g} at report {report}, worse than {self._sign * middle:.6g}, "
            f"the median of the running averages of {len(averages)} other trials up to that report."
        )

    def _average(self, curve: Sequence[float], report: int) -> float:
        # One report that is not finite makes the sum, and so the average, as bad as possible.
        return self._loss(sum(curve[:report]) / report)

    def _loss(self, value: float) -> float:
        return self._sign * value if math.isfinite(value) else math.inf

"""The median rule: a trial ends when it does worse than the trials before it had done by then, taken in the middle.

This is what AWS documents for early stopping of type Auto. After each report of the objective, the running average of
every other trial up to that same report is taken, and the trial ends when what it just reported is worse than their
median. AWS does not say from when on it judges; here a trial is judged from its second report on, and once five others
have come as far.

A report that is not a finite number counts as worse than any other, and so does the running average that it is in.
"""

import math
from collections.abc import Sequence
from statistics import median

from trainyard.foundation.tuning import Direction, Objective
from trainyard.insight.tuning.contract import Run

FIRST_REPORT = 2
FEWEST_OTHERS = 5


class MedianRule:
    """Ends trials whose objective is worse than the median of the running averages of the others."""

    def __init__(self, objective: Objective) -> None:
        self._metric = objective.metric
        self._sign = 1.0 if objective.direction is Direction.MINIMIZE else -1.0

    def verdict(self, run: Run, others: Sequence[Run]) -> str | None:
        report = len(run.curve)
        if run.is_over or report < FIRST_REPORT:
            return None
        averages = [self._average(other.curve, report) for other in others if len(other.curve) >= report]
        if len(averages) < FEWEST_OTHERS:
            return None
        middle = median(averages)
        if self._loss(run.curve[-1]) <= middle:
            return None
        return (
            f"{self._metric} was {run.curve[-1]:.6g} at report {report}, worse than {self._sign * middle:.6g}, "
            f"the median of the running averages of {len(averages)} other trials up to that report."
        )

    def _average(self, curve: Sequence[float], report: int) -> float:
        # One addend that is not finite makes the sum so, and thereby the average as bad as can be.
        return self._loss(sum(curve[:report]) / report)

    def _loss(self, value: float) -> float:
        return self._sign * value if math.isfinite(value) else math.inf

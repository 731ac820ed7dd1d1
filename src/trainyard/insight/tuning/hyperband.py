"""Asynchronous Hyperband: trials compete at rungs, and only the best third of each rung continues.

The rungs are at `least`, 3 `least`, 9 `least`, ... reports of the objective, below `most`. A trial that has reached a
rung continues while it is among the best third of all trials that have reached it, compared by their reports at that
rung. Later results count too: a trial that continued because it came early is ended once enough better trials have
passed its last rung. No trial is ended at a rung that fewer than `ETA` trials have reached. At `most` reports every
trial is ended, unless its program is known to end there by itself: it may still have to save its model.

A trial that is good early is not always good late. So the trials are divided into brackets that differ in their first
rung: the first bracket has all rungs, the next lacks the lowest, the last has none. The share of each bracket is that
of Hyperband, and the number of a trial alone decides its bracket. Trials compete within their bracket.
"""

import math
from collections.abc import Mapping, Sequence

from trainyard.foundation.jobs.tuning import Direction, HyperbandResources, Objective
from trainyard.insight.tuning.contract import TrialCurve

ETA = 3
# The maximum that AWS allows.
MAX_REPORTS = 20_000
# The names that AWS looks for.
EPOCH_HYPERPARAMETERS = ("epochs", "numepochs", "n-epochs", "n_epochs", "num_epochs")

_GOLDEN_RATIO = (math.sqrt(5) - 1) / 2


def resources_of(
    static: Mapping[str, str], *, least: int | None = None, most: int | None = None
) -> HyperbandResources | None:
    """Return the least and the most reports of a trial; by default 1 and the number of epochs.

    The number of epochs is a static hyperparameter. None means that nothing says how long a trial may be.
    """
    most = most if most is not None else epochs_of(static)
    if most is None:
        return None
    return HyperbandResources(least=min(least or 1, most), most=most)


def epochs_of(static: Mapping[str, str]) -> int | None:
    """Return after how many epochs a program ends by itself, if a static hyperparameter says so."""
    for name in EPOCH_HYPERPARAMETERS:
        # The SDK writes values as JSON.
        text = static.get(name, "").strip().strip('"')
        if text.isdecimal() and int(text) >= 1:
            return int(text)
    return None


class Hyperband:
    """Ends trials that are not among the best third at the last rung they reached, and all trials at `most` reports."""

    def __init__(
        self, objective: Objective, resources: HyperbandResources, *, epochs: int | None = None, eta: int = ETA
    ) -> None:
        self._metric, self._most, self._eta = objective.metric, resources.most, eta
        self._ends_by_itself = epochs is not None and epochs <= resources.most
        self._sign = 1.0 if objective.direction is Direction.MINIMIZE else -1.0
        self._rungs = _rungs(resources, eta)
        self._shares = _shares(len(self._rungs) + 1, eta)

    def verdict(self, trial: TrialCurve, others: Sequence[TrialCurve]) -> str | None:
        reports = len(trial.curve)
        if trial.is_over:
            return None
        if reports == self._most and self._ends_by_itself:
            return None
        if reports >= self._most:
            return f"It has made {reports} reports of {self._metric}, all that a trial is given."
        passed = [rung for rung in self.rungs(trial.number) if rung <= reports]
        if not passed:
            return None
        return self._compare(trial, self._rivals(trial, others, rung=passed[-1]), rung=passed[-1])

    def bracket(self, number: int) -> int:
        """Return the bracket of a trial; bracket 0 has every rung."""
        # Multiples of the golden ratio are spread evenly over the shares, however many trials there are.
        point = (number * _GOLDEN_RATIO) % 1.0
        for bracket, share in enumerate(self._shares):
            point -= share
            if point < 0:
                return bracket
        return len(self._shares) - 1

    @property
    def all_rungs(self) -> tuple[int, ...]:
        """The rungs of bracket 0."""
        return self._rungs

    def rungs(self, number: int) -> tuple[int, ...]:
        """Return after how many reports a trial is compared with others."""
        return self._rungs[self.bracket(number) :]

    def _rivals(self, trial: TrialCurve, others: Sequence[TrialCurve], *, rung: int) -> list[float]:
        bracket = self.bracket(trial.number)
        return [
            self._loss(other.curve[rung - 1])
            for other in others
            if len(other.curve) >= rung and self.bracket(other.number) == bracket
        ]

    def _compare(self, trial: TrialCurve, rivals: Sequence[float], *, rung: int) -> str | None:
        count = len(rivals) + 1
        if count < self._eta:
            return None
        reached = trial.curve[rung - 1]
        better = sum(rival < self._loss(reached) for rival in rivals)
        continuing = math.ceil(count / self._eta)
        if better < continuing:
            return None
        return (
            f"{self._metric} was {reached:.6g} at report {rung}, where {better} of the {count} trials that came as far "
            f"did better; the best {continuing} go on."
        )

    def _loss(self, value: float) -> float:
        return self._sign * value if math.isfinite(value) else math.inf


def _rungs(resources: HyperbandResources, eta: int) -> tuple[int, ...]:
    rungs = []
    rung = resources.least
    while rung < resources.most:
        rungs.append(rung)
        rung *= eta
    return tuple(rungs)


def _shares(brackets: int, eta: int) -> tuple[float, ...]:
    """Return the share of the trials of each bracket, so that the trials of all brackets cost the same in total."""
    weights = [eta**lowest / (lowest + 1) for lowest in reversed(range(brackets))]
    return tuple(weight / sum(weights) for weight in weights)

"""Hyperband, without waiting: trials compete at rungs, and only the best third of each goes on.

The rungs are at `least`, 3 `least`, 9 `least`, ... reports of the objective, below `most`. A trial that has come to a
rung goes on as long as it is among the best third of those that have come to that rung, each judged by what it had
reported there. What comes to be known later counts too: a trial that went on because it was early is ended once enough
better ones have passed its last rung. Until `ETA` trials have come to a rung, nothing is ended there. At `most` reports
every trial is ended, unless its program is known to end then by itself: it may have its model yet to save.

What is good early is not always good late, so the trials are divided into brackets, which differ in their first rung:
the first bracket has them all, the next lacks the lowest, the last one has none. The share of each is Hyperband's, and
the number of a trial alone says to which it belongs. Trials compete within their bracket.
"""

import math
from collections.abc import Mapping, Sequence

from trainyard.foundation.tuning import Direction, Objective, Resources
from trainyard.insight.tuning.contract import Run

ETA = 3
MOST_REPORTS = 20_000  # that AWS allows
EPOCHS = ("epochs", "numepochs", "n-epochs", "n_epochs", "num_epochs")  # the names that AWS looks for

_GOLDEN = (math.sqrt(5) - 1) / 2


def resources_of(static: Mapping[str, str], *, least: int | None = None, most: int | None = None) -> Resources | None:
    """What trials are given at the least and at the most; what is not said is 1, and the number of epochs.

    That number is a static hyperparameter. None means that nothing says how long a trial may be.
    """
    most = most if most is not None else epochs_of(static)
    if most is None:
        return None
    return Resources(least=min(least or 1, most), most=most)


def epochs_of(static: Mapping[str, str]) -> int | None:
    """After how many epochs a program ends by itself, as far as a static hyperparameter says so."""
    for name in EPOCHS:
        text = static.get(name, "").strip().strip('"')  # the SDK writes values as JSON
        if text.isdecimal() and int(text) >= 1:
            return int(text)
    return None


class Hyperband:
    """Ends trials that are not among the best third at the last rung they came to, and all at `most` reports."""

    def __init__(
        self, objective: Objective, resources: Resources, *, epochs: int | None = None, eta: int = ETA
    ) -> None:
        self._metric, self._most, self._eta = objective.metric, resources.most, eta
        self._ends_by_itself = epochs is not None and epochs <= resources.most
        self._sign = 1.0 if objective.direction is Direction.MINIMIZE else -1.0
        self._rungs = _rungs(resources, eta)
        self._shares = _shares(len(self._rungs) + 1, eta)

    def verdict(self, run: Run, others: Sequence[Run]) -> str | None:
        reports = len(run.curve)
        if run.is_over:
            return None
        if reports == self._most and self._ends_by_itself:
            return None
        if reports >= self._most:
            return f"It has made {reports} reports of {self._metric}, all that a trial is given."
        passed = [rung for rung in self.rungs(run.number) if rung <= reports]
        if not passed:
            return None
        return self._compare(run, self._rivals(run, others, rung=passed[-1]), rung=passed[-1])

    def bracket(self, number: int) -> int:
        """Which bracket a trial belongs to, from 0, the one with every rung."""
        # Multiples of the golden ratio fall evenly into the shares however many trials there are.
        point = (number * _GOLDEN) % 1.0
        for bracket, share in enumerate(self._shares):
            point -= share
            if point < 0:
                return bracket
        return len(self._shares) - 1

    def rungs(self, number: int) -> tuple[int, ...]:
        """After how many reports a trial is judged."""
        return self._rungs[self.bracket(number) :]

    def _rivals(self, run: Run, others: Sequence[Run], *, rung: int) -> list[float]:
        bracket = self.bracket(run.number)
        return [
            self._loss(other.curve[rung - 1])
            for other in others
            if len(other.curve) >= rung and self.bracket(other.number) == bracket
        ]

    def _compare(self, run: Run, rivals: Sequence[float], *, rung: int) -> str | None:
        count = len(rivals) + 1
        if count < self._eta:
            return None
        reached = run.curve[rung - 1]
        better = sum(rival < self._loss(reached) for rival in rivals)
        going_on = math.ceil(count / self._eta)
        if better < going_on:
            return None
        return (
            f"{self._metric} was {reached:.6g} at report {rung}, where {better} of the {count} trials that came as far "
            f"did better; the best {going_on} go on."
        )

    def _loss(self, value: float) -> float:
        return self._sign * value if math.isfinite(value) else math.inf


def _rungs(resources: Resources, eta: int) -> tuple[int, ...]:
    rungs = []
    rung = resources.least
    while rung < resources.most:
        rungs.append(rung)
        rung *= eta
    return tuple(rungs)


def _shares(brackets: int, eta: int) -> tuple[float, ...]:
    """The part of the trials that each bracket has: as many as together cost what those of another do."""
    weights = [eta**lowest / (lowest + 1) for lowest in reversed(range(brackets))]
    return tuple(weight / sum(weights) for weight in weights)

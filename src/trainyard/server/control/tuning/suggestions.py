"""When to ask a strategy for the next suggestion, and a random suggestion for when it cannot be asked. Pure."""

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from statistics import median

from trainyard.foundation.jobs.tuning import HyperparameterRange, RangeKind, Scaling, TuningPlan, TuningTrial
from trainyard.server.control.tuning.contract import Suggestion

# A slot may stay free for this fraction of a trial's time, so that the newest result counts for the next suggestion.
MAX_IDLE_FRACTION = 0.05

# How many of the latest trials and answers count.
_TRIALS, _ANSWERS = 15, 5


@dataclass(frozen=True, slots=True)
class PreparedSuggestion:
    """A suggestion for the trial with this number, made when `ended` trials had ended; None if nothing is left."""

    number: int
    ended: int
    suggestion: Suggestion | None


@dataclass(slots=True)
class TrialPace:
    """How long trials and answers of the strategy take."""

    trial_s: deque[float] = field(default_factory=lambda: deque(maxlen=_TRIALS))
    answer_s: deque[float] = field(default_factory=lambda: deque(maxlen=_ANSWERS))

    @classmethod
    def of(cls, trials: Iterable[TuningTrial]) -> "TrialPace":
        pace = cls()
        for trial in trials:
            pace.add(trial)
        return pace

    def add(self, trial: TuningTrial) -> None:
        """Count a trial that has ended."""
        if trial.created_at is not None and trial.ended_at is not None:
            self.trial_s.append((trial.ended_at - trial.created_at).total_seconds())

    @property
    def asks_ahead(self) -> bool:
        """Whether a slot would stay free for too long if the strategy were asked only then. Unknown counts as yes."""
        if not self.trial_s or not self.answer_s:
            return True
        return median(self.answer_s) > MAX_IDLE_FRACTION * median(self.trial_s)

    def accepts(self, prepared: PreparedSuggestion, *, ended: int) -> bool:
        """Whether to use a suggestion, rather than ask again with the results since then."""
        return prepared.ended == ended or self.asks_ahead


def suggest_at_random(plan: TuningPlan, number: int) -> Suggestion:
    """Return a random suggestion, the same for the same plan and number. Needs only the standard library."""
    random = Random(f"{plan.seed}/{number}")
    definition = random.choice(plan.definitions)
    return Suggestion(definition.name, {each.name: _draw(each, random) for each in definition.ranges})


def _draw(searched: HyperparameterRange, random: Random) -> str:
    if searched.kind is RangeKind.CATEGORICAL:
        return random.choice(searched.values)
    value = _scale(searched, random.random())
    bounded = min(searched.high, max(searched.low, value))
    return str(round(bounded)) if searched.kind is RangeKind.INTEGER else repr(bounded)


def _scale(searched: HyperparameterRange, fraction: float) -> float:
    low, high = searched.low, searched.high
    if searched.scaling is Scaling.LOGARITHMIC and low > 0:
        return math.exp(math.log(low) * (1 - fraction) + math.log(high) * fraction)
    if searched.scaling is Scaling.REVERSE_LOGARITHMIC and high < 1:
        return 1 - math.exp(math.log1p(-low) * (1 - fraction) + math.log1p(-high) * fraction)
    return low + (high - low) * fraction

"""How quickly trials go and strategies answer, and whether a suggestion made ahead is to be used. Pure."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median

from trainyard.foundation.tuning import Trial
from trainyard.server.control.tuning.contract import Suggestion

WORTH_WAITING = 0.05  # the part of a trial's time for which a slot may stay free so that the freshest result counts

_TRIALS, _ANSWERS = 15, 5  # the latest ones, which tell


@dataclass(frozen=True, slots=True)
class Prepared:
    """A suggestion for the trial of that number, made when so many trials had ended; None is that none is left."""

    number: int
    ended: int
    suggestion: Suggestion | None


@dataclass(slots=True)
class Pace:
    """What asking takes, against what a trial takes."""

    trial_s: deque[float] = field(default_factory=lambda: deque(maxlen=_TRIALS))
    answer_s: deque[float] = field(default_factory=lambda: deque(maxlen=_ANSWERS))

    @classmethod
    def of(cls, trials: Iterable[Trial]) -> "Pace":
        pace = cls()
        for trial in trials:
            pace.add(trial)
        return pace

    def add(self, trial: Trial) -> None:
        """A trial that has ended."""
        if trial.created_at is not None and trial.ended_at is not None:
            self.trial_s.append((trial.ended_at - trial.created_at).total_seconds())

    @property
    def is_asked_ahead(self) -> bool:
        """Whether a slot would stay free for too long if the next suggestion were asked for only then.

        As long as nothing is known, it might.
        """
        if not self.trial_s or not self.answer_s:
            return True
        return median(self.answer_s) > WORTH_WAITING * median(self.trial_s)

    def accepts(self, prepared: Prepared, *, ended: int) -> bool:
        """Whether a suggestion is good enough now, or the strategy is asked anew with what has ended since."""
        return prepared.ended == ended or self.is_asked_ahead

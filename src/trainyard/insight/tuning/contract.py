"""The interfaces of hyperparameter search.

A `Strategy` suggests the next trial and a `Pruner` decides which trials end early, both from the history alone. They
are pure: the same plan, history and trial number give the same answer on every machine and in every process. They read
no clock, file or network and keep no state (a cache may make an answer faster, never different). Suggested values are
always within the ranges. A history may contain anything: values outside the ranges, such as a parent's, objectives that
are not finite, hundreds of observations, or none.

Every strategy must pass `trainyard.testing.tuning.StrategyContract`, and every pruner `PrunerContract` there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

# The value of a continuous, integer or categorical hyperparameter.
Value = float | int | str

# Fewer measured trials say nothing about what the hyperparameters do to the objective.
MIN_FITTED_TRIALS = 5


class State(Enum):
    # It is running or about to start.
    PENDING = auto()
    # It ran to its end; `value` is its final objective.
    MEASURED = auto()
    # A pruner ended it early; `value` is the last objective that it reported.
    CUT_SHORT = auto()
    # A rule ended it, or its objective is not finite: it counts as being as bad as the worst.
    DIVERGED = auto()
    # It says nothing about the objective, but its values are not worth another try.
    FAILED = auto()


@dataclass(frozen=True, slots=True)
class Observation:
    """What is known about one trial. `value` and `curve` are as measured, whichever direction is better.

    `source` is empty for trials of this study, and the name of the parent for trials of a parent.
    """

    values: Mapping[str, Value]
    state: State
    value: float | None = None
    curve: tuple[float, ...] = ()
    source: str = ""


class Strategy(Protocol):
    """Suggests the next trial.

    `number` is the number of the trial, from 1; together with the plan's seed it is the only source of randomness. None
    means that nothing is left to try, as at the end of a grid. No history makes a strategy raise.
    """

    def suggest(self, history: Sequence[Observation], *, number: int) -> Mapping[str, Value] | None: ...


@dataclass(frozen=True, slots=True)
class TrialCurve:
    """A trial as a pruner sees it: its objective at each report."""

    number: int
    curve: tuple[float, ...]
    is_over: bool = False
    is_cut_short: bool = False


class Pruner(Protocol):
    """Decides whether a running trial ends now.

    `others` are all other trials of the study with the same definition. The verdict is a sentence for the user, or None
    if the trial continues. The same curves always give the same verdict; a longer curve may give another.
    """

    def verdict(self, trial: TrialCurve, others: Sequence[TrialCurve]) -> str | None: ...

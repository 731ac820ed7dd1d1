"""What it means to search hyperparameters.

A `Strategy` says what to try next and a `Pruner` which trial to end early, each from the history alone. Both are pure:
the same plan, history and number give the same answer on every machine, in every process; they read no clock, no file
and no network, and keep nothing that the history does not say (a cache may make a second answer quicker, never another
one). Values are always within the ranges, and history may hold anything: values outside the ranges, as a parent's may
be, objectives that are not finite, hundreds of observations, or none.

Every strategy must pass `trainyard.testing.tuning.StrategyContract`, and every pruner `PrunerContract` there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

Value = float | int | str  # of a continuous, an integer, a categorical hyperparameter


class State(Enum):
    PENDING = auto()  # it runs, or is about to
    MEASURED = auto()  # it ran to its end, and `value` is what came of it
    CUT_SHORT = auto()  # it was ended early as not promising; `value` is what it had reached by then
    DIVERGED = auto()  # it was ended by a rule, or its objective is not finite: as bad as the worst
    FAILED = auto()  # it says nothing about the objective, but its values are not worth another try


@dataclass(frozen=True, slots=True)
class Observation:
    """What is known of one trial. `value` and `curve` are as they were measured, whichever direction is better.

    `source` is empty for trials of this study, and the name of a parent for those that it starts from.
    """

    values: Mapping[str, Value]
    state: State
    value: float | None = None
    curve: tuple[float, ...] = ()
    source: str = ""


class Strategy(Protocol):
    """Says what to try next.

    `number` is that of the trial, from 1, and with the plan's seed the only source of chance. None means that there is
    nothing left to try, as at the end of a grid. It never raises for what a history holds.
    """

    def suggest(self, history: Sequence[Observation], *, number: int) -> Mapping[str, Value] | None: ...


@dataclass(frozen=True, slots=True)
class Run:
    """A trial as a pruner sees it: what its objective was, report by report."""

    number: int
    curve: tuple[float, ...]
    is_over: bool = False
    is_cut_short: bool = False


class Pruner(Protocol):
    """Says whether a trial that runs shall end now.

    `others` are all other trials of the study of the same definition. The answer is a sentence for the user, or None
    when the trial goes on. Asked again with a longer curve it may answer otherwise; asked again with the same it may
    not.
    """

    def verdict(self, run: Run, others: Sequence[Run]) -> str | None: ...

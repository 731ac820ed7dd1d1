"""What the controller of tuning jobs needs of others: someone to begin trials, and someone to ask what to try."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from trainyard.foundation.tuning import Trial, TuningPlan
from trainyard.server.records.contract import Resource, ResourceId


class TrialLauncher(Protocol):
    """Begins the training job of a trial, as if the owner of the tuning job had created it.

    Blocks; may be called from any thread. Called again for the same trial it gives back the job that it made. Raises
    what a create call raises: InvalidRequest or NotFound when the job cannot be had any more (its bucket is gone),
    LimitExceeded when a quota has no room now, Unavailable when it may be tried again.
    """

    def launch(self, tuning_job: Resource, trial: Trial, *, now: datetime) -> ResourceId: ...


@dataclass(frozen=True, slots=True)
class Question:
    """All that is known when a trial is to be chosen. `parents` are the trials that a warm start begins from."""

    plan: TuningPlan
    number: int
    trials: Sequence[Trial] = ()
    parents: Mapping[str, Sequence[Trial]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Suggestion:
    """The values of a trial to be, as its program is given them, and of which algorithm."""

    definition: str
    values: Mapping[str, str]


class Advisor(Protocol):
    """Says what to try next; blocks for as long as that takes, and may be asked from any thread.

    None means that there is nothing left to try. It falls back to a random suggestion, and says so in the log, when the
    strategy fails or takes too long, so that no tuning job ever waits for one.
    """

    def suggest(self, question: Question) -> Suggestion | None: ...

"""What the controller of tuning jobs needs of others: someone to begin trials, and someone to ask what to try."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from trainyard.foundation.tuning import Trial, TuningPlan
from trainyard.insight.tuning.contract import Run
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
    """All that is known when a trial is to be chosen. `parents` are the trials that a warm start begins from.

    `study` is the id of the tuning job: of a study that was asked about before, only what is new has to be told on.
    """

    plan: TuningPlan
    number: int
    trials: Sequence[Trial] = ()
    parents: Mapping[str, Sequence[Trial]] = field(default_factory=dict)
    study: str = ""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """The values of a trial to be, as its program is given them, and of which algorithm."""

    definition: str
    values: Mapping[str, str]
    cpu_s: float | None = field(default=None, compare=False)  # what choosing them took of a processor, if known


class Advisor(Protocol):
    """Says what to try next; blocks for as long as that takes, and may be asked from any thread.

    None means that there is nothing left to try. It falls back to a random suggestion, and says so in the log, when the
    strategy fails or takes too long, so that no tuning job waits for one. Where chance would be wrong, as in a grid,
    Unavailable is raised instead, and the question may be asked again.
    """

    def suggest(self, question: Question) -> Suggestion | None: ...


class Judge(Protocol):
    """Says which trials that run shall end now; blocks, and may be asked from any thread.

    `others` are the other trials of the definition, also those that are over. The answer is a sentence for the user;
    None, also when the rule fails, lets the trial go on.
    """

    def verdict(
        self, study: str, plan: TuningPlan, *, definition: str, run: Run, others: Sequence[Run]
    ) -> str | None: ...

"""What tuning jobs need from others: a launcher of trials, an advisor on what to try, and a pruner of trials."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from trainyard.foundation.jobs.tuning import TuningPlan, TuningTrial
from trainyard.insight.tuning.contract import TrialCurve
from trainyard.server.records.contract import Resource, ResourceId


class TrialLauncher(Protocol):
    """Creates the training job of a trial, as if the owner of the tuning job had created it.

    Blocks; may be called from any thread. A second call for the same trial returns the job of the first. Raises what a
    create call raises: InvalidRequest or NotFound if the job can no longer be created (its bucket is gone),
    LimitExceeded if a quota is used up for now, Unavailable if a later try may succeed.
    """

    def launch(self, tuning_job: Resource, trial: TuningTrial, *, now: datetime) -> ResourceId: ...


@dataclass(frozen=True, slots=True)
class Question:
    """What an advisor knows when it chooses a trial. `parents` are the trials of a warm start.

    `study` is the id of the tuning job. An advisor that was asked before needs only what is new.
    """

    plan: TuningPlan
    number: int
    trials: Sequence[TuningTrial] = ()
    parents: Mapping[str, Sequence[TuningTrial]] = field(default_factory=dict)
    study: str = ""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """The values of the next trial, as its program gets them, and its algorithm."""

    definition: str
    values: Mapping[str, str]
    cpu_s: float | None = field(default=None, compare=False)  # of choosing the values


@dataclass(frozen=True, slots=True)
class ExplainedSuggestion:
    """What the next trial would be, and why; see `insight.tuning.explanation`, which loads what the yard does not."""

    definition: str
    values: Mapping[str, str]
    reasons: Sequence[str]
    expected: float | None = None
    deviation: float | None = None
    chance: float | None = None


class Advisor(Protocol):
    """Suggests what to try next. Blocks; may be called from any thread.

    None means that nothing is left to try. If the strategy fails or takes too long, the advisor falls back to a random
    suggestion and logs that, so that no tuning job is stuck. Where a random one would be wrong, as in a grid, it raises
    Unavailable instead, and may be asked again.
    """

    def suggest(self, question: Question) -> Suggestion | None: ...


class TrialPruner(Protocol):
    """Decides which running trials to stop early. Blocks; may be called from any thread.

    `others` are the other trials of the definition, running or ended. The answer is a sentence for the user. None lets
    the trial continue, also if the pruner fails.
    """

    def stop_reason(
        self, study: str, plan: TuningPlan, *, definition: str, run: TrialCurve, others: Sequence[TrialCurve]
    ) -> str | None: ...

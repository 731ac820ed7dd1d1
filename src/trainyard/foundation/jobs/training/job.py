"""A training job: its plan, its history, its results, and its bill."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from trainyard.foundation.jobs.attempts import Attempt, MetricSummary, RuleState, merge_metrics
from trainyard.foundation.jobs.status import FINAL, ON_INSTANCES, PRIMARY, SecondaryStatus, Status, Transition
from trainyard.foundation.jobs.training.plan import TrainingPlan


@dataclass(frozen=True, slots=True)
class Artifact:
    uri: str
    size: int


@dataclass(frozen=True, slots=True)
class PoolEnd:
    """When the warm pool of a job ended before its time was over, and which job reused it, if any."""

    at: datetime
    reused_by: str = ""


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """A training job as it is stored.

    `failure` is the full reason, however long. `notes` are sentences for the user, such as what is not enforced here or
    what was substituted. `profiler_rules` are the states of those profiler rules that were evaluated, in any order; see
    `profiler_rule_states`.
    """

    name: str
    arn: str
    account: str
    region: str
    plan: TrainingPlan
    created_at: datetime
    transitions: tuple[Transition, ...]
    attempts: tuple[Attempt, ...] = ()
    site: str = ""  # of the yard that has its data, if several share one database
    stop_reason: str = ""  # why the job was asked to stop; empty if it was not
    failure: str = ""
    card: Mapping[str, object] = field(default_factory=dict)  # of the first instance that failed
    artifacts: Mapping[str, Artifact] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    pool_end: PoolEnd | None = None
    profiler_rules: tuple[RuleState, ...] = ()

    @property
    def secondary(self) -> SecondaryStatus:
        return self.transitions[-1].status

    @property
    def status(self) -> Status:
        return PRIMARY[self.secondary]

    @property
    def is_final(self) -> bool:
        return self.status in FINAL

    @property
    def attempt(self) -> Attempt | None:
        """The live attempt, or None."""
        return self.attempts[-1] if self.attempts and self.attempts[-1].ended_at is None else None

    @property
    def training_started_at(self) -> datetime | None:
        return next((step.started_at for step in self.transitions if step.status in ON_INSTANCES), None)

    @property
    def ended_at(self) -> datetime | None:
        return self.transitions[-1].started_at if self.is_final else None

    @property
    def training_time(self) -> timedelta | None:
        """How long instances worked on the job in all attempts; None if they never did, or still do."""
        return self.time_used if self.training_started_at is not None and self.is_final else None

    @property
    def time_used(self) -> timedelta:
        """How long instances worked on the job in the attempts that have ended."""
        return sum(map(self.time_of, self.attempts), timedelta())

    @property
    def retries_used(self) -> int:
        """How often the job was retried after a failure that was not its own."""
        return sum(1 for attempt in self.attempts if attempt.failure)

    @property
    def waits_until(self) -> datetime | None:
        """When a job that was never placed gives up waiting; None if it has no such limit."""
        if self.plan.max_pending_s is None or self.attempts or self.is_final:
            return None
        return self.created_at + timedelta(seconds=self.plan.max_pending_s)

    @property
    def ends_until(self) -> datetime | None:
        """When a spot job must have ended, waiting and running together; None if it has no such limit."""
        if self.plan.max_wait_s is None or self.is_final:
            return None
        return self.created_at + timedelta(seconds=self.plan.max_wait_s)

    @property
    def metrics(self) -> Mapping[str, MetricSummary]:
        """The newest value of each metric, over all instances of all attempts."""
        return merge_metrics(attempt.metrics for attempt in self.attempts)

    def time_of(self, attempt: Attempt) -> timedelta:
        """Return how long instances worked in an attempt that has ended."""
        ended_at = attempt.ended_at or self.ended_at
        steps = (step.started_at for step in self.transitions if step.status in ON_INSTANCES)
        began_at = next((at for at in steps if at >= attempt.placed_at), None)
        if began_at is None or ended_at is None or began_at > ended_at:
            return timedelta()
        return ended_at - began_at

    def with_attempt(self, attempt: Attempt) -> "TrainingJob":
        """Return the job with its last attempt replaced."""
        return replace(self, attempts=(*self.attempts[:-1], attempt))

    def with_notes(self, *notes: str) -> "TrainingJob":
        """Return the job with these notes added, each once."""
        return replace(self, notes=tuple(dict.fromkeys((*self.notes, *notes))))


@dataclass(frozen=True, slots=True)
class Bill:
    """Whole seconds: those that instances worked in all attempts, and those of them that are billed."""

    trained_s: int
    billed_s: int


def bill_of(job: TrainingJob) -> Bill | None:
    """Return the bill of a job that has ended; None if its instances never worked, or still do."""
    if job.training_time is None:
        return None
    seconds = max(1, math.ceil(job.training_time / timedelta(seconds=1)))
    # From whole seconds, so that the saving that clients compute from the two matches the prices.
    billed = round(seconds * job.plan.billed_share) or min(1, math.ceil(job.plan.billed_share))
    return Bill(seconds, billed)

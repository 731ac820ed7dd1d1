"""What jobs of every kind with instances have in common: their plan, their history, and their attempts."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import ClassVar, Protocol, Self

from trainyard.foundation.jobs.attempts import Attempt, MetricSummary, merge_metrics
from trainyard.foundation.jobs.status import FINAL, ON_INSTANCES, PRIMARY, SecondaryStatus, Status, Transition


class InstancePlan(Protocol):
    """What the plan of every job with instances says."""

    @property
    def image(self) -> str: ...

    @property
    def instance_type(self) -> str: ...

    @property
    def instance_count(self) -> int: ...

    @property
    def instance_types(self) -> tuple[str, ...]:
        """The instance type of each host."""
        ...

    @property
    def hosts(self) -> tuple[str, ...]:
        """The host names of the instances."""
        ...

    @property
    def role(self) -> str:
        """The name of the role of the job's credentials."""
        ...

    @property
    def engine(self) -> str:
        """The engine that runs the job; empty means the default engine."""
        ...

    @property
    def is_isolated(self) -> bool:
        """Whether the job can reach only its own instances."""
        ...

    @property
    def is_spot(self) -> bool:
        """Whether on-demand jobs may preempt it."""
        ...

    @property
    def is_spread(self) -> bool:
        """Whether each instance has a node of its own."""
        ...

    @property
    def max_runtime_s(self) -> int: ...

    @property
    def retries(self) -> int:
        """How often the job is retried after failures that are not its own."""
        ...


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """The statuses of one kind of job: its legal transitions, which nothing else decides, and the words for them."""

    noun: str  # such as "training job"
    legal: Mapping[SecondaryStatus, frozenset[SecondaryStatus]]
    messages: Mapping[SecondaryStatus, str]
    running: SecondaryStatus  # while the program runs
    # What users can do so that a job whose instance was lost starts again.
    lost_advice: str
    # How a job ends that was stopped for one of these reasons; for any other it is Stopped.
    stopped_for: Mapping[str, SecondaryStatus] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InstanceJob:
    """A job with instances as it is stored.

    `failure` is the full reason, however long. `notes` are sentences for the user, such as what is not enforced here or
    what was substituted.
    """

    lifecycle: ClassVar[Lifecycle]

    name: str
    arn: str
    account: str
    region: str
    plan: InstancePlan
    created_at: datetime
    transitions: tuple[Transition, ...]
    attempts: tuple[Attempt, ...] = ()
    site: str = ""  # of the yard that has its data, if several share one database
    stop_reason: str = ""  # why the job was asked to stop; empty if it was not
    failure: str = ""
    card: Mapping[str, object] = field(default_factory=dict)  # of the first instance that failed
    notes: tuple[str, ...] = ()

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
    def started_at(self) -> datetime | None:
        return next((step.started_at for step in self.transitions if step.status in ON_INSTANCES), None)

    @property
    def ended_at(self) -> datetime | None:
        return self.transitions[-1].started_at if self.is_final else None

    @property
    def time_used(self) -> timedelta:
        """How long instances worked on the job in the attempts that have ended."""
        return sum(map(self.time_of, self.attempts), timedelta())

    @property
    def retries_used(self) -> int:
        """How often the job was retried after a failure that was not its own."""
        return sum(1 for attempt in self.attempts if attempt.failure)

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

    def with_attempt(self, attempt: Attempt) -> Self:
        """Return the job with its last attempt replaced."""
        return replace(self, attempts=(*self.attempts[:-1], attempt))

    def with_notes(self, *notes: str) -> Self:
        """Return the job with these notes added, each once."""
        return replace(self, notes=tuple(dict.fromkeys((*self.notes, *notes))))


def whole_seconds_of(job: InstanceJob) -> int:
    """Return for how many seconds instances worked on a job that has ended: at least one, unless they never did."""
    return max(1, math.ceil(job.time_used / timedelta(seconds=1))) if job.started_at is not None else 0

"""A training job: its plan, its history, its results, and its bill."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import ClassVar

from trainyard.foundation.jobs.attempts import RuleState
from trainyard.foundation.jobs.instance_job import InstanceJob, Lifecycle, whole_seconds_of
from trainyard.foundation.jobs.training.plan import TrainingPlan
from trainyard.foundation.jobs.training.statuses import LIFECYCLE


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
class TrainingJob(InstanceJob):
    """A training job as it is stored.

    `profiler_rules` are the states of those profiler rules that were evaluated, in any order; see
    `profiler_rule_states`.
    """

    lifecycle: ClassVar[Lifecycle] = LIFECYCLE

    plan: TrainingPlan
    artifacts: Mapping[str, Artifact] = field(default_factory=dict)
    pool_end: PoolEnd | None = None
    profiler_rules: tuple[RuleState, ...] = ()

    @property
    def training_time(self) -> timedelta | None:
        """How long instances worked on the job in all attempts; None if they never did, or still do."""
        return self.time_used if self.started_at is not None and self.is_final else None

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


@dataclass(frozen=True, slots=True)
class Bill:
    """Whole seconds: those that instances worked in all attempts, and those of them that are billed."""

    trained_s: int
    billed_s: int


def bill_of(job: TrainingJob) -> Bill | None:
    """Return the bill of a job that has ended; None if its instances never worked, or still do."""
    if job.training_time is None:
        return None
    seconds = whole_seconds_of(job)
    # From whole seconds, so that the saving that clients compute from the two matches the prices.
    billed = round(seconds * job.plan.billed_share) or min(1, math.ceil(job.plan.billed_share))
    return Bill(seconds, billed)

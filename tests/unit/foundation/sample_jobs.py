"""Training jobs for tests."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from trainyard.foundation.jobs.attempts import Attempt, InstanceState
from trainyard.foundation.jobs.status import SecondaryStatus
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.foundation.jobs.training.plan import TrainingPlan
from trainyard.foundation.jobs.training.transitions import advance, first_transition

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)


def seconds(count: float) -> datetime:
    return NOON + timedelta(seconds=count)


def pending(*, instances: int = 1) -> TrainingJob:
    plan = TrainingPlan("image", "ml.m5.large", instances, role="Role", output_path="s3://data/out")
    return TrainingJob("mnist", "arn:mnist", "111111111111", "us-east-1", plan, NOON, (first_transition(NOON),))


def placed(*, instances: int = 1) -> TrainingJob:
    job = pending(instances=instances)
    attempt = Attempt(1, NOON, "ASIAKEY", tuple(InstanceState(host) for host in job.plan.hosts), is_started=True)
    return advance(replace(job, attempts=(attempt,)), SecondaryStatus.STARTING, at=NOON)

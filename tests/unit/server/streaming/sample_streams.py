"""Jobs whose instances write logs, for tests of streams."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.unit.foundation.sample_jobs import pending, placed, seconds
from trainyard.formats.logs import LogWriter
from trainyard.foundation.jobs.attempts import Attempt, InstanceState
from trainyard.foundation.jobs.status import SecondaryStatus
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.foundation.jobs.training.transitions import advance
from trainyard.link.folders import AttemptRef, InstanceRef
from trainyard.server.records.contract import ResourceId
from trainyard.server.streaming.batches import FollowCursor, JobSnapshot, read_batch

JOB = ResourceId("01a1de26-54cb-7e8b-aa83-2f443d1f2fc2")
TRAINING = SecondaryStatus.TRAINING
# Five seconds after the jobs start.
LATE_MS = 1782907205000


@dataclass
class Stage:
    """A folder of jobs and one job in it, which the test changes."""

    jobs: Path
    job: TrainingJob
    id: ResourceId = JOB

    @property
    def snapshot(self) -> JobSnapshot:
        return JobSnapshot(self.id, self.job, self.jobs)

    def write(self, text: str, *, instance: str = "algo-1", attempt: int = 1, ms: int = LATE_MS) -> None:
        folder = InstanceRef(AttemptRef(self.id, attempt), instance).folder(self.jobs)
        with LogWriter(folder.logs) as writer:
            writer.append(text.encode(), ms)

    def read_all(self, cursor: FollowCursor | None = None, *, with_logs: bool = True) -> list[dict[str, Any]]:
        """Return all lines after a cursor."""
        cursor = cursor or FollowCursor.start(self.id)
        told: list[dict[str, Any]] = []
        while True:
            batch = read_batch(self.snapshot, cursor, with_logs=with_logs)
            told += lines_of(batch.lines)
            if batch.is_last or not batch.lines:
                return told
            cursor = batch.cursor


def waiting(jobs: Path) -> Stage:
    return Stage(jobs, pending())


def training(jobs: Path, *, instances: int = 1) -> Stage:
    return Stage(jobs, advance(placed(instances=instances), TRAINING, at=seconds(1)))


def ended(job: TrainingJob, status: SecondaryStatus = SecondaryStatus.COMPLETED) -> TrainingJob:
    return advance(job, status, at=seconds(9))


def tried_again(job: TrainingJob) -> TrainingJob:
    """Return the job in a second attempt, after the first was lost."""
    lost = advance(job, SecondaryStatus.RESTARTING, at=seconds(2))
    first = replace(lost.attempts[-1], ended_at=seconds(2))
    second = Attempt(2, seconds(3), "KEY", tuple(InstanceState(host) for host in job.plan.hosts), is_started=True)
    return advance(replace(lost, attempts=(first, second)), SecondaryStatus.STARTING, at=seconds(3))


def lines_of(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]


def texts(told: list[dict[str, Any]]) -> list[str]:
    return [each["text"] for each in told if each["kind"] == "log"]

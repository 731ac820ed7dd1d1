"""Jobs whose instances write logs, for tests of those who follow them."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.unit.foundation.jobs import pending, placed, seconds
from trainyard.formats.logs import LogWriter
from trainyard.foundation.jobs import Attempt, InstanceState, SecondaryStatus, TrainingJob
from trainyard.foundation.transitions import advance
from trainyard.link.folders import AttemptRef, InstanceRef
from trainyard.server.following.place import Place
from trainyard.server.following.reading import Story, read_on
from trainyard.server.records.contract import ResourceId

JOB = ResourceId("01a1de26-54cb-7e8b-aa83-2f443d1f2fc2")
TRAINING = SecondaryStatus.TRAINING
LATE_MS = 1782907205000  # five seconds after the jobs begin


@dataclass
class Stage:
    """A folder of jobs and one job in it, which the test moves on."""

    jobs: Path
    job: TrainingJob
    id: ResourceId = JOB

    @property
    def story(self) -> Story:
        return Story(self.id, self.job, self.jobs)

    def write(self, text: str, *, instance: str = "algo-1", attempt: int = 1, ms: int = LATE_MS) -> None:
        folder = InstanceRef(AttemptRef(self.id, attempt), instance).folder(self.jobs)
        with LogWriter(folder.logs) as writer:
            writer.append(text.encode(), ms)

    def read_all(self, place: Place | None = None, *, with_logs: bool = True) -> list[dict[str, Any]]:
        """What there is now behind a place."""
        place = place or Place.before(self.id)
        told: list[dict[str, Any]] = []
        while True:
            batch = read_on(self.story, place, with_logs=with_logs)
            told += lines_of(batch.lines)
            if batch.is_last or not batch.lines:
                return told
            place = batch.place


def waiting(jobs: Path) -> Stage:
    return Stage(jobs, pending())


def training(jobs: Path, *, instances: int = 1) -> Stage:
    return Stage(jobs, advance(placed(instances=instances), TRAINING, at=seconds(1)))


def ended(job: TrainingJob, status: SecondaryStatus = SecondaryStatus.COMPLETED) -> TrainingJob:
    return advance(job, status, at=seconds(9))


def tried_again(job: TrainingJob) -> TrainingJob:
    """The job in a second attempt, after one that was lost."""
    lost = advance(job, SecondaryStatus.RESTARTING, at=seconds(2))
    first = replace(lost.attempts[-1], ended_at=seconds(2))
    second = Attempt(2, seconds(3), "KEY", tuple(InstanceState(host) for host in job.plan.hosts), is_started=True)
    return advance(replace(lost, attempts=(first, second)), SecondaryStatus.STARTING, at=seconds(3))


def lines_of(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]


def texts(told: list[dict[str, Any]]) -> list[str]:
    return [each["text"] for each in told if each["kind"] == "log"]

"""The jobs that have been placed, and the line of those that wait."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainyard.foundation.clock import EPOCH
from trainyard.foundation.jobs import Status, TrainingJob
from trainyard.server.jobs import KIND, due_at, job_of
from trainyard.server.records.contract import Query, Records

_PAGE = 50


@dataclass(frozen=True, slots=True)
class Line:
    """The jobs that run, the oldest first, and how many wait."""

    running: Sequence[TrainingJob]
    waiting: int

    @property
    def instances(self) -> int:
        """How many run."""
        return sum(len(job.attempts[-1].instances) for job in self.running)


def line_of(records: Records) -> Line:
    """The line as it is now, read without those that have ended, and with few of those that wait."""
    moving = list(_running(records, Status.IN_PROGRESS))
    going = records.count(Query(KIND, status=Status.IN_PROGRESS))
    stopping = list(_running(records, Status.STOPPING))
    running = sorted([*moving, *stopping], key=lambda job: job.created_at)
    return Line(running, max(0, going - len(moving)))


def position_of(records: Records, job: TrainingJob) -> int:
    """Which in line a job is that waits; the next to be placed is 1."""
    return 1 + records.count_due(KIND, after=EPOCH, before=due_at(job) or job.created_at)


def _running(records: Records, status: Status) -> Iterator[TrainingJob]:
    """Those with an attempt that goes on.

    Nobody overtakes the first in line, so behind a whole page of jobs that wait there is none that runs, unless all of
    them are spot.
    """
    after: str | None = ""
    while after is not None:
        page = records.find(Query(KIND, status=status, limit=_PAGE, after=after))
        jobs = [job_of(resource) for resource in page.resources]
        running = [job for job in jobs if job.attempt is not None]
        yield from running
        after = page.next_after if running or all(job.plan.is_spot for job in jobs) else None

"""The jobs that have been placed, and the line of those that wait."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from trainyard.foundation.clock import EPOCH
from trainyard.foundation.jobs import TrainingJob
from trainyard.server.jobs import KIND, due_at, job_of
from trainyard.server.records.contract import Records

_NEVER = datetime.max.replace(tzinfo=UTC)


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
    """The line as it is now: those that run are read, and those that wait are counted in an index."""
    placed = map(job_of, records.due_until(KIND, EPOCH))
    running = [job for job in placed if job.attempt is not None]
    return Line(running, records.count_due(KIND, after=EPOCH, before=_NEVER))


def position_of(records: Records, job: TrainingJob) -> int:
    """Which in line a job is that waits; the next to be placed is 1."""
    return 1 + records.count_due(KIND, after=EPOCH, before=due_at(job) or job.created_at)

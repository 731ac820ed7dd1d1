"""The jobs that have been placed, and the lines of those that wait."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from trainyard.engines.contract import Capacity, Engine
from trainyard.foundation.clock import EPOCH
from trainyard.foundation.errors import Unavailable
from trainyard.foundation.jobs import Share, TrainingJob
from trainyard.server.control.lines import keys_of, lines_of
from trainyard.server.jobs import KIND, due_at, job_of
from trainyard.server.services.contract import Yard

_NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Line:
    """The jobs of a line that run, the oldest first, and how many wait in it."""

    engines: Sequence[str]
    running: Sequence[TrainingJob]
    waiting: int

    @property
    def instances(self) -> int:
        """How many run."""
        return len(self.shares)

    @property
    def shares(self) -> Sequence[Share]:
        """What these have."""
        return [each.share for job in self.running for each in job.attempts[-1].instances]


def machine_now(engine: Engine) -> Capacity:
    """What an engine has; nothing, and why, while it cannot be asked."""
    try:
        return engine.capacity()
    except Unavailable as error:
        return Capacity((), obstacle=error.message)


def lines_now(yard: Yard) -> Sequence[Line]:
    """The lines as they are now: those that run are read, and those that wait are counted in an index."""
    engines, found = yard.workshop.engines, lines_of(yard.workshop.engines)
    placed = map(job_of, yard.records.due_until(KIND, EPOCH))
    running = [job for job in placed if job.attempt is not None]
    return [
        Line(names, [job for job in running if engines.line_of(job.plan.engine) == name], _waiting(yard, name))
        for name, names in found.items()
    ]


def line_now(yard: Yard, engine: str) -> Line:
    """The line of an engine."""
    return next(line for line in lines_now(yard) if engine in line.engines)


def position_of(yard: Yard, job: TrainingJob) -> int:
    """Which in line a job is that waits; the next to be placed is 1.

    Accounts take turns, so that behind as many of its own a job is at most that many times the accounts in line.
    """
    engines, records, due = yard.workshop.engines, yard.records, due_at(job) or job.created_at
    keys = keys_of(engines.line_of(job.plan.engine), engines, site=job.site)
    before = records.count_due(KIND, after=EPOCH, before=due, lines=keys)
    own = records.count_due(KIND, after=EPOCH, before=due, lines=keys, account=job.account)
    accounts = {head.account for head in records.heads(KIND, keys, after=EPOCH)} | {job.account}
    return min(before + 1, (own + 1) * len(accounts))


def _waiting(yard: Yard, name: str) -> int:
    keys = keys_of(name, yard.workshop.engines, site=yard.workshop.site)
    return yard.records.count_due(KIND, after=EPOCH, before=_NEVER, lines=keys)

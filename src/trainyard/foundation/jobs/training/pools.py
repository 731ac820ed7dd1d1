"""The warm pool that a training job leaves for the next one. Its state follows from times, so it is not stored."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from trainyard.foundation.failures import is_platform_failure
from trainyard.foundation.jobs.training.job import TrainingJob


class PoolStatus(StrEnum):
    IN_USE = "InUse"
    AVAILABLE = "Available"
    REUSED = "Reused"
    TERMINATED = "Terminated"


@dataclass(frozen=True, slots=True)
class Pool:
    """A warm pool at one moment. `retained` is how long it was kept for later jobs; None while it is in use."""

    status: PoolStatus
    retained: timedelta | None = None
    reused_by: str = ""


def pool_of(job: TrainingJob, *, now: datetime) -> Pool | None:
    """Return the warm pool of a job; None if it did not ask for one, or was never placed.

    A job whose program failed leaves a pool, and so does one that was stopped. A failure of the machine leaves none,
    because what is left may be damaged.
    """
    ended_at, end = job.ended_at, job.pool_end
    if end is not None and ended_at is not None:
        status = PoolStatus.REUSED if end.reused_by else PoolStatus.TERMINATED
        return Pool(status, max(timedelta(), end.at - ended_at), end.reused_by)
    if not job.plan.keep_alive_s or not job.attempts:
        return None
    if ended_at is None:
        return Pool(PoolStatus.IN_USE)
    if not any(attempt.is_started for attempt in job.attempts) or is_platform_failure(job.card):
        return Pool(PoolStatus.TERMINATED, timedelta())
    kept = timedelta(seconds=job.plan.keep_alive_s)
    passed = max(timedelta(), now - ended_at)
    return Pool(PoolStatus.AVAILABLE, passed) if passed < kept else Pool(PoolStatus.TERMINATED, kept)

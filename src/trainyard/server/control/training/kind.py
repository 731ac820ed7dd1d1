"""Training jobs as the controller drives them: which to claim, how often to step, and what still runs here."""

import asyncio
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

from trainyard.link.doorbell import Doorbell
from trainyard.server.control.contract import Wake
from trainyard.server.control.scheduling.contract import Allocation
from trainyard.server.control.training.demand import allocation_of
from trainyard.server.control.training.work import LEASE, TrainingWork
from trainyard.server.jobs.training import KIND, job_of
from trainyard.server.records.contract import Claim, ResourceId

POLL_INTERVAL = timedelta(seconds=1)
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0  # between two steps with a job that nothing wakes

# A job is polled again after this fraction of the time for which nothing has happened to it.
_PAUSE_FRACTION = 1 / 8
# Agents often ring twice in a row. One step for both is half the work.
_DOORBELL_DELAY_S = 0.005


@dataclass(frozen=True, slots=True)
class PlacedJob:
    """A training job that is placed and claimed here, and how long nothing has happened to it."""

    claim: Claim
    allocation: Allocation
    pause_s: float = 0.0
    quiet_s: float = 0.0

    @property
    def id(self) -> ResourceId:
        return self.claim.resource.id


class TrainingJobKind:
    """The training jobs of a yard. With a doorbell, reports of agents are read at once; without, at the next poll."""

    record_kind = KIND
    max_concurrent = None

    def __init__(self, work: TrainingWork, doorbell: Doorbell | None = None) -> None:
        self._work = work
        self._doorbell = doorbell
        # All jobs that are placed here and have not ended, whether this controller drives them or not.
        self._running = work.scheduler.table
        self._next_claim_at = 0.0  # by the clock of the event loop

    @property
    def lease(self) -> timedelta:
        return LEASE

    @property
    def poll_interval(self) -> timedelta:
        return POLL_INTERVAL

    def open(self, wake: Wake) -> None:
        self._loop = asyncio.get_running_loop()
        if self._doorbell is not None:
            self._loop.add_reader(self._doorbell.descriptor, self._read_doorbell, self._doorbell, wake)

    def close(self) -> None:
        if self._doorbell is not None:
            self._loop.remove_reader(self._doorbell.descriptor)

    def job_id(self, job: PlacedJob) -> ResourceId:
        return job.id

    def claim_due(self) -> Iterator[PlacedJob]:
        """Claim placed jobs that nobody drives, and place jobs from the queues, until neither is possible."""
        scheduler = self._work.scheduler
        self._running.load(scheduler.read_allocations)
        while True:
            if (claim := self._claim_placed()) is not None:
                if (job := self._hold(claim)) is not None:
                    yield job
                continue
            has_placed = False
            for placement in scheduler.next_placements(self._running.snapshot()):
                # The controller of another kind places the jobs of that kind.
                if placement.kind == KIND and (claim := self._work.place(placement)) is not None:
                    has_placed = True
                    if (job := self._hold(claim)) is not None:
                        yield job
            if not has_placed:
                return

    def step(self, job: PlacedJob, changed: Collection[str]) -> PlacedJob | None:
        claim = self._work.step(job.claim, is_woken=bool(changed))
        if claim is None:
            return None
        # Metrics alone do not make a job urgent: each step that reads some is a write to the records.
        quiet_s = 0.0 if _has_advanced(job.claim, claim) else job.quiet_s + job.pause_s
        pause_s = min(LONGEST_PAUSE_S, max(SHORTEST_PAUSE_S, quiet_s * _PAUSE_FRACTION))
        return replace(job, claim=claim, pause_s=pause_s, quiet_s=quiet_s)

    def pause_s(self, job: PlacedJob) -> float:
        return job.pause_s

    def extend_lease(self, job: PlacedJob) -> None:
        self._work.extend_lease(job.claim)

    def release(self, job: PlacedJob, *, is_held: bool) -> None:
        if is_held:
            self._work.release(job.claim)
        elif self._work.has_left(job.id):
            self._running.remove(job.id, job.allocation)
        else:
            # Another yard has the job, or nobody: find out at once.
            self._next_claim_at = 0.0

    def _read_doorbell(self, doorbell: Doorbell, wake: Wake) -> None:
        for job_id in doorbell.read():
            self._loop.call_later(_DOORBELL_DELAY_S, wake, ResourceId(job_id), "")

    def _claim_placed(self) -> Claim | None:
        """Claim a placed job that nobody drives, as after a kill. No wake signal reports these, so this polls."""
        now = self._loop.time()
        if now < self._next_claim_at:
            return None
        claim = self._work.claim()
        if claim is None:
            self._next_claim_at = now + POLL_INTERVAL.total_seconds()
        return claim

    def _hold(self, claim: Claim) -> PlacedJob | None:
        """Count the job among those that run here; release one that has ended and return None."""
        job, job_id = job_of(claim.resource), claim.resource.id
        if job.is_final:
            self._work.release(claim)
            self._running.remove(job_id)
            return None
        assert job.attempt is not None, "a placed job that has not ended has a live attempt"
        placed = PlacedJob(claim, allocation_of(job))
        self._running.add(job_id, placed.allocation)
        return placed


def _has_advanced(before: Claim, after: Claim) -> bool:
    return after is not before and len(job_of(after.resource).transitions) != len(job_of(before.resource).transitions)

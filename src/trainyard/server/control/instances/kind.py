"""Jobs with instances as their controller drives them: which to claim, how often to step, and what still runs here.

All kinds of these jobs have one controller. They share the queues, so one thread decides what starts next.
"""

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Protocol

from trainyard.link.doorbell import Doorbell
from trainyard.server.control.contract import Wake
from trainyard.server.control.instances.work import LEASE
from trainyard.server.control.scheduling.contract import Allocation, Placement
from trainyard.server.control.scheduling.scheduler import Scheduler
from trainyard.server.records.contract import Claim, ResourceId

POLL_INTERVAL = timedelta(seconds=1)
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0  # between two steps with a job that nothing wakes

# A job is polled again after this fraction of the time for which nothing has happened to it.
_PAUSE_FRACTION = 1 / 8
# Agents often ring twice in a row. One step for both is half the work.
_DOORBELL_DELAY_S = 0.005


@dataclass(frozen=True, slots=True)
class PlacedJob:
    """A job that is placed and claimed here, and how long nothing has happened to it."""

    work: "JobWork"
    claim: Claim
    allocation: Allocation
    pause_s: float = 0.0
    quiet_s: float = 0.0

    @property
    def id(self) -> ResourceId:
        return self.claim.resource.id


class JobWork(Protocol):
    """The work on the jobs of one kind. `InstanceWork` implements it for every kind."""

    @property
    def record_kind(self) -> str: ...

    @property
    def scheduler(self) -> Scheduler: ...

    def claim(self) -> Claim | None: ...

    def place(self, placement: Placement) -> Claim | None: ...

    def step(self, claim: Claim, *, is_woken: bool = False) -> Claim | None: ...

    def allocation(self, claim: Claim) -> Allocation | None: ...

    def history_length(self, claim: Claim) -> int: ...

    def release(self, claim: Claim) -> None: ...

    def extend_lease(self, claim: Claim) -> None: ...

    def has_left(self, job_id: ResourceId) -> bool: ...


class InstanceJobKind:
    """The jobs with instances of a yard, of every kind that `works` has. All must share one scheduler.

    With a doorbell, reports of agents are read at once; without, at the next poll.
    """

    record_kind = "job with instances"
    max_concurrent = None

    def __init__(self, works: Sequence[JobWork], doorbell: Doorbell | None = None) -> None:
        self._works: Mapping[str, JobWork] = {work.record_kind: work for work in works}
        self._scheduler = works[0].scheduler
        self._doorbell = doorbell
        # All jobs that are placed here and have not ended, whether this controller drives them or not.
        self._running = self._scheduler.table
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
        self._running.load(self._scheduler.read_allocations)
        while True:
            if (job := self._claim_placed()) is not None:
                yield job
                continue
            has_placed = False
            for placement in self._scheduler.next_placements(self._running.snapshot()):
                work = self._works[placement.kind]
                if (claim := work.place(placement)) is not None:
                    has_placed = True
                    if (job := self._hold(work, claim)) is not None:
                        yield job
            if not has_placed:
                return

    def step(self, job: PlacedJob, changed: Collection[str]) -> PlacedJob | None:
        claim = job.work.step(job.claim, is_woken=bool(changed))
        if claim is None:
            return None
        # Metrics alone do not make a job urgent: each step that reads some is a write to the records.
        quiet_s = 0.0 if _has_advanced(job, claim) else job.quiet_s + job.pause_s
        pause_s = min(LONGEST_PAUSE_S, max(SHORTEST_PAUSE_S, quiet_s * _PAUSE_FRACTION))
        return replace(job, claim=claim, pause_s=pause_s, quiet_s=quiet_s)

    def pause_s(self, job: PlacedJob) -> float:
        return job.pause_s

    def extend_lease(self, job: PlacedJob) -> None:
        job.work.extend_lease(job.claim)

    def release(self, job: PlacedJob, *, is_held: bool) -> None:
        if is_held:
            job.work.release(job.claim)
        elif job.work.has_left(job.id):
            self._running.remove(job.id, job.allocation)
        else:
            # Another yard has the job, or nobody: find out at once.
            self._next_claim_at = 0.0

    def _read_doorbell(self, doorbell: Doorbell, wake: Wake) -> None:
        for job_id in doorbell.read():
            self._loop.call_later(_DOORBELL_DELAY_S, wake, ResourceId(job_id), "")

    def _claim_placed(self) -> PlacedJob | None:
        """Claim a placed job that nobody drives, as after a kill. No wake signal reports these, so this polls."""
        now = self._loop.time()
        if now < self._next_claim_at:
            return None
        for work in self._works.values():
            while (claim := work.claim()) is not None:
                if (job := self._hold(work, claim)) is not None:
                    return job
        self._next_claim_at = now + POLL_INTERVAL.total_seconds()
        return None

    def _hold(self, work: JobWork, claim: Claim) -> PlacedJob | None:
        """Count the job among those that run here; release one that has ended and return None."""
        allocation, job_id = work.allocation(claim), claim.resource.id
        if allocation is None:
            work.release(claim)
            self._running.remove(job_id)
            return None
        self._running.add(job_id, allocation)
        return PlacedJob(work, claim, allocation)


def _has_advanced(job: PlacedJob, claim: Claim) -> bool:
    if claim is job.claim:
        return False
    return job.work.history_length(claim) != job.work.history_length(job.claim)

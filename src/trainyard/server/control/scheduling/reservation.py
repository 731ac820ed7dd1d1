"""Capacity that is reserved for a job that does not fit yet, and for aged jobs behind it.

Capacity is reserved where least has to end first, and jobs behind may start beside it. They cannot delay the first job:
on nodes of its own it will find the same capacity with or without them. But they could delay others behind it for as
long as it waits, say a large job that wants GPUs while the first one wants cores. So capacity is also reserved for the
oldest of the jobs that have waited long, the aged jobs.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from trainyard.engines.placement import Demand, FreeResources
from trainyard.foundation.jobs.attempts import Share
from trainyard.server.control.scheduling.contract import Placement, ResourceRequest
from trainyard.server.control.scheduling.free_capacity import FreeCapacity
from trainyard.server.records.contract import QueuedResource, ResourceId

AGED_AFTER = timedelta(hours=1)
MAX_AGED = 5  # jobs with a reservation besides the first

# A reservation is computed again after this time even if nothing started or ended.
_LIFETIME = timedelta(minutes=1)


@dataclass(slots=True)
class Reservation:
    """What is left beside the capacity reserved for the first job of a queue and for the aged jobs behind it.

    It is remembered between two scheduling passes: as long as nothing is freed, a demand that was refused here will
    be refused again.
    """

    job_id: ResourceId
    aged: Sequence[QueuedResource]
    capacity_version: int
    expires_at: datetime
    left: FreeResources
    refused: set[Demand] = field(default_factory=set)
    last_backfill: Placement | None = None

    @classmethod
    def of(
        cls,
        job_id: ResourceId,
        aged: Sequence[QueuedResource],
        capacity: FreeCapacity,
        *,
        left: FreeResources,
        now: datetime,
    ) -> "Reservation":
        return cls(job_id, aged, capacity.version, now + _LIFETIME, left)

    def update(self, capacity: FreeCapacity) -> None:
        """Stay in force if the only change is that the last backfill placement has started."""
        placement = self.last_backfill
        if placement is None or capacity.added is None or capacity.version != self.capacity_version + 1:
            return
        job_id, allocation = capacity.added
        if job_id == placement.id and tuple(allocation.shares) == placement.shares:
            self.left.allocate(allocation.shares)
            self.capacity_version, self.last_backfill = capacity.version, None

    def is_for(self, job_id: ResourceId, capacity: FreeCapacity) -> bool:
        """Whether this job is known not to fit into the capacity as it is now."""
        return self.job_id == job_id and self.capacity_version == capacity.version

    def covers(self, aged: Sequence[QueuedResource], *, now: datetime) -> bool:
        """Whether capacity is reserved for exactly these aged jobs, and computed recently."""
        return self.aged == aged and now < self.expires_at


def reserve_nodes(demand: Demand, free: FreeResources) -> tuple[Share, ...]:
    """Return the shares to reserve for a job that does not fit, where least has to end first."""
    return free.without_running().place(demand, current=free) or ()


def select_aged(first: QueuedResource, behind: Iterable[QueuedResource], *, now: datetime) -> Sequence[QueuedResource]:
    """Return the jobs behind the first that have waited so long that capacity is reserved for them, oldest first.

    Spot jobs are among them only if the first job is one.
    """
    same_priority = (each for each in behind if each.priority == first.priority)
    aged = (each for each in same_priority if now - each.due_at > AGED_AFTER)
    return sorted(aged, key=lambda each: (each.due_at, each.id))[:MAX_AGED]


def place_or_reserve_aged(
    requests: Iterable[ResourceRequest], free: FreeResources, *, left: FreeResources, reserved: Sequence[Share]
) -> tuple[ResourceRequest, tuple[Share, ...]] | None:
    """Return the first aged job that fits beside the reservations of those before it, with its shares.

    If none fits, return None; the reservations of all of them are then taken from `left`.
    """
    reservations = left.without_running()
    reservations.allocate(reserved)
    for request in requests:
        shares = left.place(request.demand)
        if shares is not None:
            return request, shares
        shares = reservations.place(request.demand, current=free) or ()
        left.allocate(shares)
        reservations.allocate(shares)
    return None

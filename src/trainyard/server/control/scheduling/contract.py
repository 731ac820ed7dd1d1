"""What scheduling knows about jobs, whatever their kind.

A kind of job whose instances need capacity turns its jobs into these values and implements `SchedulableJobs`. The
modules beside this one decide; `Scheduler` reads what they need from the records and the engines.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from trainyard.engines.placement import Demand
from trainyard.foundation.jobs.attempts import Share
from trainyard.server.records.contract import Resource, ResourceId


@dataclass(frozen=True, slots=True)
class ResourceRequest:
    """What a waiting job needs, and from which engine. An empty name means the default engine."""

    id: ResourceId
    kind: str  # of its record
    engine: str
    demand: Demand


@dataclass(frozen=True, slots=True)
class Allocation:
    """What a placed job holds of its engine, one share for each instance, and since when."""

    shares: Sequence[Share]
    is_spot: bool
    engine: str
    account: str
    since: datetime


Allocations = Mapping[ResourceId, Allocation]


@dataclass(frozen=True, slots=True)
class Placement:
    """A job that can start now, with the share of each instance; or one that never can, with the reason.

    `shortfalls` are sentences that say where the job gets less than its instance types promise.
    """

    id: ResourceId
    kind: str
    shares: tuple[Share, ...] = ()
    shortfalls: Sequence[str] = ()
    refusal: str = ""
    is_backfill: bool = False  # another job is ahead of it in the queue


class SchedulableJobs(Protocol):
    """The jobs of one kind, as the scheduler sees them. All methods may be called from any thread."""

    def request_of(self, resource: Resource) -> ResourceRequest:
        """Return what a waiting job needs. The answer never changes: the scheduler remembers it.

        InvalidRequest if the catalog no longer has an instance type of the job. The job is then refused.
        """
        ...

    def read_allocations(self) -> Allocations:
        """Read from the records what each job holds that has been placed by this yard and has not ended."""
        ...

    def lasting_allocation(self, resource: Resource) -> Allocation | None:
        """Return what a placed job holds, or None if it will give that up soon anyway, or has already."""
        ...

    def preempt(self, job_id: ResourceId) -> None:
        """Ask a spot job to give up its allocation, unless it is about to. Its own controller does the rest."""
        ...


def shares_of(allocations: Allocations) -> list[Share]:
    return [share for allocation in allocations.values() for share in allocation.shares]

"""What jobs with instances ask of the scheduler, and how they give their capacity up."""

from dataclasses import dataclass
from typing import Generic

from trainyard.engines.catalog import Catalog
from trainyard.engines.placement import Demand
from trainyard.foundation.clock import Clock
from trainyard.foundation.errors import NotFound
from trainyard.foundation.jobs.instance_job import InstanceJob
from trainyard.foundation.jobs.status import SecondaryStatus, Status
from trainyard.foundation.jobs.transitions import J, interrupt
from trainyard.server.control.contract import JobStorage
from trainyard.server.control.instances.reports import live_attempt
from trainyard.server.control.scheduling.contract import Allocation, ResourceRequest
from trainyard.server.records.contract import QueueState, Records, Resource, ResourceId

PREEMPTED = "An on-demand job needed its capacity."


@dataclass(frozen=True, slots=True)
class SchedulableInstanceJobs(Generic[J]):
    """The jobs of one kind in a yard, as the scheduler sees them."""

    storage: JobStorage[J]
    records: Records
    catalog: Catalog
    clock: Clock
    site: str  # of this yard among several on one database; empty if it is the only one

    def request_of(self, resource: Resource) -> ResourceRequest:
        job = self.storage.job_of(resource)
        return ResourceRequest(resource.id, self.storage.KIND, job.plan.engine, demand_of(job, self.catalog))

    def read_allocations(self) -> dict[ResourceId, Allocation]:
        placed = self.records.in_state(self.storage.KIND, QueueState.PLACED)
        found = ((resource.id, self.storage.job_of(resource)) for resource in placed)
        return {
            job_id: allocation_of(job)
            for job_id, job in found
            if job.attempt is not None and job.attempt.site == self.site
        }

    def lasting_allocation(self, resource: Resource) -> Allocation | None:
        job = self.storage.job_of(resource)
        return None if is_leaving(job) else allocation_of(job)

    def preempt(self, job_id: ResourceId) -> None:
        while True:
            try:
                resource = self.records.load_by_id(job_id)
            except NotFound:
                return
            job = self.storage.job_of(resource)
            after = interrupt(job, PREEMPTED)
            if after == job:
                return
            if self.records.apply(resource, self.storage.change_to(resource, after), now=self.clock()) is not None:
                return


def demand_of(job: InstanceJob, catalog: Catalog) -> Demand:
    """Return the demand of a job. InvalidRequest if the catalog does not have one of its instance types."""
    types = tuple(catalog[name] for name in job.plan.instance_types)
    return Demand(types, job.plan.is_spot, job.plan.is_spread)


def allocation_of(job: InstanceJob) -> Allocation:
    """Return what a placed job holds."""
    attempt = live_attempt(job)
    shares = [instance.share for instance in attempt.instances]
    return Allocation(shares, job.plan.is_spot, job.plan.engine, job.account, attempt.placed_at)


def is_leaving(job: InstanceJob) -> bool:
    """Whether a job will soon give up its allocation anyway, or has none."""
    if job.attempt is None or job.attempt.interruption:
        return True
    return job.status is Status.STOPPING or job.secondary is SecondaryStatus.UPLOADING

"""Finds what an earlier job of the same user has left warm.

Whether a pool is available follows from the job that left it. What is kept here only finds that job: a child of it, so
named that all pools that suit a new job share a prefix and the youngest comes first.
"""

import contextlib
from dataclasses import dataclass, replace
from datetime import datetime

from trainyard.foundation.errors import AlreadyExists, NotFound
from trainyard.foundation.jobs import PoolEnd, TrainingJob
from trainyard.foundation.pools import PoolStatus, pool_of
from trainyard.server.jobs import change_to, job_of
from trainyard.server.records.contract import Draft, Query, Records, Resource, ResourceId, ResourceKey, SortBy

KIND = "warm-pool"

_PAGE = 20


@dataclass(frozen=True, slots=True)
class WarmPools:
    records: Records

    def leave(self, job_id: str, job: TrainingJob, *, now: datetime) -> None:
        """Let later jobs find the pool of one that ends. Done before its end is remembered, it is never forgotten."""
        pool = pool_of(job, now=now)
        if pool is None or pool.status is not PoolStatus.AVAILABLE:
            return
        key = ResourceKey(job.account, KIND, f"{job.plan.pool_key}/{job_id}")
        with contextlib.suppress(AlreadyExists, NotFound):  # told before, or the job is gone
            self.records.create(Draft(key, job.region, {}, parent=ResourceId(job_id)), now=now)

    def take_over(self, job: TrainingJob, *, now: datetime) -> None:
        """Give the youngest pool that suits a job to it, if it asks for a pool itself; each goes to one job only."""
        if not job.plan.keep_alive_s:
            return
        prefix = f"{job.plan.pool_key}/"
        query = Query(KIND, account=job.account, name_prefix=prefix, sort_by=SortBy.NAME, descending=True, limit=_PAGE)
        for resource in self.records.find(query).resources:
            if self._is_taken(resource, by=job.name, now=now):
                return

    def _is_taken(self, resource: Resource, *, by: str, now: datetime) -> bool:
        """Whether the pool was available and is ours now; one that never will be again is forgotten."""
        assert resource.parent is not None, "a pool is the child of its job"
        while True:
            try:
                owner = self.records.load_by_id(resource.parent)
            except NotFound:
                return False
            left = job_of(owner)
            if not left.is_final:  # its end is about to be remembered
                return False
            pool = pool_of(left, now=now)
            if pool is None or pool.status is not PoolStatus.AVAILABLE:
                self.records.delete(resource, now=now)
                return False
            after = replace(left, pool_end=PoolEnd(now, by))
            if self.records.apply(owner, change_to(owner, after), now=now) is not None:
                self.records.delete(resource, now=now)
                return True

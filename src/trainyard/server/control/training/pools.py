"""Finds the warm pools that earlier jobs of the same user left.

Whether a pool is available follows from the job that left it. The record here only helps to find that job: it is a
child of the job, and its name begins with the pool key, so that one query finds all pools that suit a new job, the
youngest first.
"""

import contextlib
from dataclasses import dataclass, replace
from datetime import datetime

from trainyard.foundation.errors import AlreadyExists, NotFound
from trainyard.foundation.jobs.training.job import PoolEnd, TrainingJob
from trainyard.foundation.jobs.training.pools import PoolStatus, pool_of
from trainyard.server.jobs.training import change_to, job_of
from trainyard.server.records.contract import Draft, Query, Records, Resource, ResourceId, ResourceKey, SortBy

KIND = "warm-pool"

_PAGE = 20


@dataclass(frozen=True, slots=True)
class WarmPools:
    """The warm pools of a yard."""

    records: Records

    def leave(self, job_id: str, job: TrainingJob, *, now: datetime) -> None:
        """Let later jobs find the pool of a job that ends. Called before the end is stored, so no pool gets lost."""
        pool = pool_of(job, now=now)
        if pool is None or pool.status is not PoolStatus.AVAILABLE:
            return
        key = ResourceKey(job.account, KIND, f"{job.plan.pool_key}/{job_id}")
        # It was recorded before, or the job is gone.
        with contextlib.suppress(AlreadyExists, NotFound):
            self.records.create(Draft(key, job.region, {}, parent=ResourceId(job_id)), now=now)

    def take_over(self, job: TrainingJob, *, now: datetime) -> None:
        """Give a job that asks for a pool the youngest one that suits it. Each pool goes to one job only."""
        if not job.plan.keep_alive_s:
            return
        prefix = f"{job.plan.pool_key}/"
        query = Query(KIND, account=job.account, name_prefix=prefix, sort_by=SortBy.NAME, descending=True, limit=_PAGE)
        for resource in self.records.find(query).resources:
            if self._take(resource, by=job.name, now=now):
                return

    def _take(self, resource: Resource, *, by: str, now: datetime) -> bool:
        """Take a pool if it is available, and return whether it was. A pool that is over is deleted."""
        assert resource.parent is not None, "a pool is the child of its job"
        while True:
            try:
                owner = self.records.load_by_id(resource.parent)
            except NotFound:
                return False
            left = job_of(owner)
            if not left.is_final:
                # Its end is about to be stored.
                return False
            pool = pool_of(left, now=now)
            if pool is None or pool.status is not PoolStatus.AVAILABLE:
                self.records.delete(resource, now=now)
                return False
            after = replace(left, pool_end=PoolEnd(now, by))
            if self.records.apply(owner, change_to(owner, after), now=now) is not None:
                self.records.delete(resource, now=now)
                return True

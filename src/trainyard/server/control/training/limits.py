"""Stops jobs that wait for capacity, or as spot jobs wait and run, longer than they may.

A job with such a limit has a reminder, a record that is due when the time is over. An index finds due reminders, so a
poll is cheap however many jobs wait.
"""

import logging
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from trainyard.foundation.clock import Clock
from trainyard.foundation.errors import NotFound
from trainyard.foundation.jobs.training.transitions import give_up
from trainyard.server.control.contract import OneStepKind
from trainyard.server.jobs.training import KIND, PENDING_LIMIT, change_to, events_of, job_of
from trainyard.server.records.contract import Claim, Records, ResourceKey

log = logging.getLogger(__name__)

POLL_INTERVAL = timedelta(seconds=0.5)

_LEASE = timedelta(seconds=5)  # on a reminder, after which another yard takes it


@dataclass(frozen=True)
class WaitingLimitKind(OneStepKind):
    """The reminders of a yard. One step ends each. Several yards on one database may share them."""

    records: Records
    clock: Clock
    worker: str

    @property
    def record_kind(self) -> str:
        return PENDING_LIMIT

    @property
    def lease(self) -> timedelta:
        return _LEASE

    @property
    def poll_interval(self) -> timedelta:
        return POLL_INTERVAL

    @property
    def max_concurrent(self) -> int | None:
        return 1

    def claim_due(self) -> Iterator[Claim]:
        while claim := self.records.claim_next(PENDING_LIMIT, worker=self.worker, lease=_LEASE, now=self.clock()):
            yield claim

    def step(self, job: Claim, _changed: Collection[str], /) -> None:
        """Stop the job of a reminder if its time is over, and delete the reminder."""
        reminder, now = job.resource, self.clock()
        self._stop(ResourceKey(reminder.key.account, KIND, reminder.body["job"]), now=now)
        self.records.delete(reminder, now=now)

    def _stop(self, key: ResourceKey, *, now: datetime) -> None:
        while True:
            try:
                resource = self.records.load(key)
            except NotFound:
                return
            job = job_of(resource)
            after = give_up(job, at=now)
            if after == job:
                # It was placed in time, has ended, or is a newer job of the same name.
                return
            change, events = change_to(resource, after), events_of(job, after)
            if self.records.apply(resource, change, now=now, events=events) is not None:
                log.info("job took too long", extra={"job": job.name, "id": resource.id})
                return

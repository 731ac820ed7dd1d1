"""Sees to it that no job waits for room, and no spot job waits and runs, longer than it may.

A job with a limit has a reminder, which is due when its time is over. Reminders are found by an index, so a look is
cheap however many jobs wait.
"""

import asyncio
import logging
from dataclasses import dataclass
from datetime import datetime, timedelta

from trainyard.foundation.clock import Clock
from trainyard.foundation.errors import NotFound, TrainyardError
from trainyard.foundation.transitions import give_up
from trainyard.server.jobs import KIND, PENDING_LIMIT, change_to, events_of, job_of
from trainyard.server.records.contract import Records, ResourceKey

log = logging.getLogger(__name__)

INTERVAL = timedelta(seconds=0.5)

_LEASE = timedelta(seconds=5)  # on a reminder, after which another yard sees to it


@dataclass(frozen=True, slots=True)
class Waiting:
    """The jobs that wait. Several yards on one database may watch them at once."""

    records: Records
    clock: Clock
    worker: str

    async def watch(self) -> None:
        """Stop jobs whose time is over, until this is cancelled."""
        while True:
            try:
                await asyncio.to_thread(self.end_overdue)
            except TrainyardError:
                log.warning("waiting jobs cannot be seen to; it is tried again", exc_info=True)
            await asyncio.sleep(INTERVAL.total_seconds())

    def end_overdue(self) -> None:
        """Stop the jobs that have taken as long as they may."""
        now = self.clock()
        while reminder := self.records.claim_next(PENDING_LIMIT, worker=self.worker, lease=_LEASE, now=now):
            resource = reminder.resource
            self._stop(ResourceKey(resource.key.account, KIND, resource.body["job"]), now=now)
            self.records.delete(resource, now=now)

    def _stop(self, key: ResourceKey, *, now: datetime) -> None:
        while True:
            try:
                resource = self.records.load(key)
            except NotFound:
                return
            job = job_of(resource)
            after = give_up(job, at=now)
            if after == job:  # it has been placed, or has ended, or is another one of its name
                return
            change, events = change_to(resource, after), events_of(job, after)
            if self.records.apply(resource, change, now=now, events=events) is not None:
                log.info("job took too long", extra={"job": job.name, "id": resource.id})
                return

"""Makes a trial component for every training job of this yard, and keeps it in step with the job.

It follows the events of jobs from a cursor in the records, so a yard that was killed continues where it was. Metrics
make no events: the components of running jobs follow those every few seconds.
"""

import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from trainyard.foundation.clock import Clock
from trainyard.foundation.errors import AlreadyExists, NotFound, Unavailable
from trainyard.foundation.experiments import component_name_of_job
from trainyard.foundation.jobs.status import FINAL, SecondaryStatus
from trainyard.server.control.contract import OneStepKind, Wake
from trainyard.server.experiments.job_components import end_component, update_component
from trainyard.server.experiments.storage import COMPONENT, entity_key
from trainyard.server.jobs.training import KIND as TRAINING_JOB
from trainyard.server.records.contract import (
    Change,
    Claim,
    Draft,
    Event,
    QueueState,
    Records,
    Resource,
    ResourceId,
    ResourceKey,
)

log = logging.getLogger(__name__)

POLL_INTERVAL = timedelta(seconds=0.5)
METRICS_INTERVAL = timedelta(seconds=5)

_KIND = "job-components"
_LEASE = timedelta(seconds=30)
_EVENTS_AT_ONCE = 500
_STATUS = "training-job.status"
_FOLLOWED = ("training-job.created", _STATUS)


class JobComponentKind(OneStepKind):
    """The cursor of a yard over the events of its jobs. One step updates the components of all jobs with new events.

    Jobs of homes from before components were made have none, unless they are still running.
    """

    max_concurrent = 1

    def __init__(self, records: Records, clock: Clock, *, worker: str, site: str = "") -> None:
        self._records, self._clock, self._worker, self._site = records, clock, worker, site
        self._key = ResourceKey("", f"{_KIND}@{site}" if site else _KIND, "cursor")
        # What the cursor was when this process last looked; None before the first look.
        self._last_seen: int | None = None
        # The jobs that have not ended, with the revision that their component is of.
        self._running: dict[ResourceId, int] = {}
        self._metrics_due_at: datetime | None = None

    @property
    def record_kind(self) -> str:
        return self._key.kind

    @property
    def lease(self) -> timedelta:
        return _LEASE

    @property
    def poll_interval(self) -> timedelta:
        return POLL_INTERVAL

    def open(self, wake: Wake) -> None:
        """Do nothing: the first claim finds where to begin."""

    def claim_due(self) -> Iterator[Claim]:
        """Claim the cursor if there is anything to do. Reads only, if there is not."""
        if self._last_seen is None:
            self._last_seen = self._first_position()
        now = self._clock()
        if self._records.events(after=self._last_seen, limit=1) or self._is_metrics_time(now):
            claim = self._records.claim_next(self.record_kind, worker=self._worker, lease=_LEASE, now=now)
            if claim is not None:
                yield claim

    def step(self, job: Claim, _changed: Collection[str], /) -> None:
        claim: Claim | None = job
        while claim is not None:
            position = int(claim.resource.body["sequence"])
            events = self._records.events(after=position, limit=_EVENTS_AT_ONCE)
            subjects = dict.fromkeys(event.subject for event in events if event.kind in _FOLLOWED)
            for resource in self._records.load_many(list(subjects)):
                self._update(resource)
            self._end_deleted(events)
            is_last = len(events) < _EVENTS_AT_ONCE
            if is_last and self._is_metrics_time(self._clock()):
                self._update_running()
            self._last_seen = events[-1].sequence if events else position
            now = self._clock()
            change = Change(body={"sequence": self._last_seen}, due_at=claim.resource.created_at, is_quiet=True)
            applied = self._records.apply_claimed(claim, change, now=now, release=is_last)
            claim = None if is_last else applied

    def _first_position(self) -> int:
        """Return where the cursor is, which is the newest event in a home that has no cursor yet."""
        for resource in self._records.in_state(TRAINING_JOB, QueueState.PLACED):
            self._update(resource)
        with suppress(NotFound):
            return int(self._records.load(self._key).body["sequence"])
        now, newest = self._clock(), self._records.last_event()
        with suppress(AlreadyExists):
            self._records.create(Draft(self._key, "", {"sequence": newest}, due_at=now), now=now)
        return int(self._records.load(self._key).body["sequence"])

    def _update(self, resource: Resource) -> None:
        """Update the component of a job that this yard runs."""
        if resource.key.kind != TRAINING_JOB or resource.body["job"].get("site", "") != self._site:
            return
        try:
            update_component(self._records, resource, now=self._clock())
        except Unavailable:
            raise
        except Exception:
            # The other jobs must not wait for this one.
            log.exception("the component of a job could not be updated", extra={"job": resource.key.name})
        if resource.status in FINAL:
            self._running.pop(resource.id, None)
        else:
            self._running[resource.id] = resource.revision

    def _end_deleted(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.kind == "training-job.deleted":
                steps = [each for each in events if each.subject == event.subject and each.kind == _STATUS]
                last = SecondaryStatus(steps[-1].body["status"]) if steps else None
                key = entity_key(event.account, COMPONENT, component_name_of_job(event.body["name"]))
                end_component(self._records, key, event.subject, last, now=self._clock())
                self._running.pop(event.subject, None)

    def _is_metrics_time(self, now: datetime) -> bool:
        return bool(self._running) and (self._metrics_due_at is None or now >= self._metrics_due_at)

    def _update_running(self) -> None:
        """Update the components of running jobs that have changed, such as by new metrics."""
        self._metrics_due_at = self._clock() + METRICS_INTERVAL
        found = {each.id: each for each in self._records.load_many(list(self._running))}
        for job_id, revision in list(self._running.items()):
            if job_id not in found:
                # It was deleted.
                del self._running[job_id]
            elif found[job_id].revision != revision:
                self._update(found[job_id])

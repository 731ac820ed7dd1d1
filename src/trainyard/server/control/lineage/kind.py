"""Records in the lineage what is due: jobs that have ended, and model packages that were registered or approved.

Each has a recording, see `server/lineage/recordings.py`, which is deleted once its subject is recorded. A yard that is
killed in between records it again, with the same result.
"""

import logging
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

from trainyard.foundation.clock import Clock, to_micros
from trainyard.foundation.errors import NotFound, TrainyardError
from trainyard.foundation.plain import to_plain
from trainyard.server.control.contract import OneStepKind
from trainyard.server.control.lineage.job_lineage import JobLineage
from trainyard.server.control.lineage.package_lineage import PackageLineage
from trainyard.server.jobs.training import KIND as TRAINING_JOB
from trainyard.server.jobs.training import job_of
from trainyard.server.lineage.recordings import JOB, Recording, kind_at, recording_of
from trainyard.server.records.contract import Change, Claim, Records, Resource, ResourceKey
from trainyard.server.registry import PACKAGE
from trainyard.server.source_contents import SourceContents

log = logging.getLogger(__name__)

POLL_INTERVAL = timedelta(seconds=0.5)
# The change that a recording precedes follows at once. What does not come, or fails so often, is given up.
FIRST_RETRY, LONGEST_RETRY, MAX_TRIES = timedelta(milliseconds=200), timedelta(minutes=1), 30

_LEASE = timedelta(seconds=60)


@dataclass(frozen=True)
class LineageKind(OneStepKind):
    """The recordings of a yard, one at a time. Each step records one subject."""

    records: Records
    contents: SourceContents
    clock: Clock
    worker: str
    site: str = ""

    @property
    def record_kind(self) -> str:
        return kind_at(self.site)

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
        while claim := self.records.claim_next(self.record_kind, worker=self.worker, lease=_LEASE, now=self.clock()):
            yield claim

    def extend_lease(self, job: Claim) -> None:
        self.records.renew(job, lease=_LEASE, now=self.clock())

    def step(self, job: Claim, _changed: Collection[str], /) -> None:
        """Record the subject of a recording, or say when to try again. This raises nothing: a claim expires."""
        try:
            self._take_step(job)
        except TrainyardError:
            log.warning("a recording could not be stored", exc_info=True, extra={"id": job.resource.id})
        except Exception:
            log.exception("a recording failed", extra={"id": job.resource.id})
            self._try_later(job)

    def _take_step(self, claim: Claim) -> None:
        recording = recording_of(claim.resource)
        try:
            subject = self._load(claim.resource, recording)
        except NotFound:
            self._handle_missing(claim, recording)
            return
        if recording.subject != JOB:
            PackageLineage(self.records).record(subject, now=self.clock())
        elif to_micros(job_of(subject).created_at) != recording.created_us:
            log.info("a job was replaced before it was recorded", extra={"job": recording.name})
        elif not job_of(subject).is_final:
            self._try_later(claim)
            return
        else:
            JobLineage(self.records, self.contents).record(subject, now=self.clock())
        self.records.delete(claim.resource, now=self.clock())

    def _load(self, resource: Resource, recording: Recording) -> Resource:
        kind = TRAINING_JOB if recording.subject == JOB else PACKAGE
        return self.records.load(ResourceKey(resource.key.account, kind, recording.name))

    def _handle_missing(self, claim: Claim, recording: Recording) -> None:
        if recording.subject == JOB:
            # It existed when its recording was stored, so it was deleted since.
            self.records.delete(claim.resource, now=self.clock())
        else:
            # It is about to be created, or was deleted since.
            self._try_later(claim)

    def _try_later(self, claim: Claim) -> None:
        recording, now = recording_of(claim.resource), self.clock()
        if recording.tries >= MAX_TRIES:
            log.info("a recording was given up", extra={"subject": recording.name})
            self.records.delete(claim.resource, now=now)
            return
        tried = replace(recording, tries=recording.tries + 1)
        pause = min(FIRST_RETRY * 2 ** min(recording.tries, 16), LONGEST_RETRY)
        self.records.apply_claimed(claim, Change(body=to_plain(tried), due_at=now + pause), now=now, release=True)

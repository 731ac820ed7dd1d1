"""Moves jobs with instances: stores their placements, starts their instances, reads their reports, and ends them.

Each step loads a job, works with nothing locked, and applies the result under a claim. A step that is cut short at any
point is taken again: an attempt is stored before anything of it exists, the engine starts an instance only once however
often it is asked, and the cursor of a spool moves in the same transaction as the effects of the frames.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Generic

from trainyard.engines.catalog import Catalog
from trainyard.engines.contract import Engine
from trainyard.engines.engine_set import EngineSet
from trainyard.engines.placement import check_promised_resources
from trainyard.foundation.clock import Clock
from trainyard.foundation.errors import Corrupt, InvalidRequest, NotFound, TrainyardError, Unavailable
from trainyard.foundation.failures import INTERNAL_ERROR
from trainyard.foundation.jobs.attempts import Attempt, InstanceState
from trainyard.foundation.jobs.status import SecondaryStatus
from trainyard.foundation.jobs.transitions import J, advance
from trainyard.link.contract import INTERRUPTED, CommandKind, Frame, InstanceSpec
from trainyard.link.folders import AttemptRef, InstanceRef
from trainyard.server.control.contract import InstanceSpecMaker, JobStorage
from trainyard.server.control.instances.attempt_end import (
    awaits_cause,
    can_retry,
    finish_job,
    has_ended,
    has_failed,
    mark_lost,
    mark_node_lost,
    requeue_interrupted,
    requeue_without_nodes,
    retry_job,
    was_interrupted,
)
from trainyard.server.control.instances.demand import allocation_of, demand_of
from trainyard.server.control.instances.reports import (
    InstanceReport,
    apply_reports,
    host_metrics,
    installed_packages,
    live_attempt,
)
from trainyard.server.control.instances.uids import uid_of
from trainyard.server.control.instances.views import JobViews
from trainyard.server.control.instances.yard_context import GRACE
from trainyard.server.control.scheduling.contract import Allocation, Placement
from trainyard.server.control.scheduling.scheduler import Scheduler
from trainyard.server.identity import Identities, new_key_id, role_key
from trainyard.server.jobs.instance_jobs import release_of, tagged_request
from trainyard.server.lineage.environments import keep_environment
from trainyard.server.records.contract import (
    AccessKey,
    Claim,
    QueueState,
    Records,
    Resource,
    ResourceId,
)

log = logging.getLogger(__name__)

LEASE = timedelta(seconds=5)  # how long a job waits for a yard that was killed
# How long an engine may refuse to start instances before the job fails.
START_TIMEOUT = timedelta(seconds=60)
START_RETRY_PAUSE = timedelta(seconds=2)
# How long instances may take to end after they were killed because another one failed.
KILL_TIMEOUT = timedelta(seconds=5)
# Credentials stay valid this much longer than a program may run, so that its results can be uploaded.
UPLOAD_TIME = timedelta(hours=12)


@dataclass(frozen=True, slots=True)
class InstanceWork(ABC, Generic[J]):
    """The work on the jobs of one kind, one step per call. Calls block; threads may work on different jobs.

    A kind has its own `storage`. It overrides the methods that say what only its jobs do at certain moments; each
    may be called again for the same moment if the yard is killed before the result is stored.
    """

    records: Records
    identities: Identities
    engines: EngineSet
    catalog: Catalog
    scheduler: Scheduler
    specs: InstanceSpecMaker[J]
    views: JobViews
    clock: Clock
    worker: str
    site: str  # of this yard among several on one database; empty if it is the only one
    runs_as_root: bool
    is_strict: bool = False  # refuses jobs that would get less than their instance types promise

    @property
    @abstractmethod
    def storage(self) -> JobStorage[J]:
        """How the jobs are stored."""

    @property
    def record_kind(self) -> str:
        return self.storage.KIND

    def check_limits(self, job: J) -> J:
        """Return a waiting job stopped if it has waited too long; unchanged otherwise."""
        return job

    def prepare_placed(self, job: J) -> None:
        """Do what a job's placement entails, once it is stored."""

    def start_attempt(self, job: J, specs: Sequence[InstanceSpec]) -> Attempt:  # noqa: ARG002 - for kinds that note them
        """Return the live attempt after its instances have started, with what is noted of what they read."""
        return replace(live_attempt(job), is_started=True)

    def apply_reports(self, job: J, reports: Sequence[InstanceReport]) -> J:
        """Apply what the instances reported."""
        return apply_reports(job, reports)

    def draw_conclusions(self, before: J, after: J) -> J:  # noqa: ARG002 - for kinds that compare
        """Return a job, which was `before` its new reports, with what follows from them."""
        return after

    def send_changes(self, ref: AttemptRef, job: J) -> J:  # noqa: ARG002 - for kinds with such calls
        """Send running instances what an update call changed, unless they have it already."""
        return job

    def prepare_change(self, job_id: ResourceId, before: J, after: J) -> None:
        """Do what must be stored before a step's result is, so that it happens even if the yard is killed between."""

    def prepare_end(self, job_id: ResourceId, after: J) -> None:
        """Do what the end of a job entails, just before it is stored."""

    def discard_results(self, job: J) -> None:
        """Delete results that the live attempt began to store and did not report. Nothing of it runs."""

    def allocation(self, claim: Claim) -> Allocation | None:
        """Return what a claimed job holds; None if it has ended."""
        job = self.storage.job_of(claim.resource)
        return None if job.is_final else allocation_of(job)

    def history_length(self, claim: Claim) -> int:
        return len(self.storage.job_of(claim.resource).transitions)

    def is_ours(self, job: J) -> bool:
        """Whether a placed job is for this yard to drive: it was placed here, on an engine of this yard."""
        return job.attempt is not None and job.attempt.site == self.site and self._has_engine(job)

    def claim(self) -> Claim | None:
        """Claim a placed job that nobody drives, as after a kill.

        Jobs of another yard on the same database are left alone, however slow that yard is.
        """
        first = self.records.first_due(self.record_kind, now=self.clock(), state=QueueState.PLACED)
        if first is not None and not self.is_ours(self.storage.job_of(first)):
            return self._claim_first_of_ours()
        claim = self._claim(state=QueueState.PLACED)
        if claim is None or self.is_ours(self.storage.job_of(claim.resource)):
            return claim
        # Another yard held this one until now.
        self.release(claim)
        return self._claim_first_of_ours()

    def release(self, claim: Claim) -> None:
        """Give a claimed job back as it is."""
        self.records.apply_claimed(
            claim, release_of(self.storage.job_of(claim.resource)), now=self.clock(), release=True
        )

    def extend_lease(self, claim: Claim) -> None:
        """Renew the lease of a job while a step with it runs. Nothing happens if the claim is lost."""
        self.records.renew(claim, lease=LEASE, now=self.clock())

    def has_left(self, job_id: ResourceId) -> bool:
        """Whether a job no longer holds an allocation, or does not exist any more."""
        try:
            return self.storage.job_of(self.records.load_by_id(job_id)).attempt is None
        except NotFound:
            return True

    def place(self, placement: Placement) -> Claim | None:
        """Store a new attempt of a job, with its shares and credentials; None if the job is not placed after all."""
        claim = self._claim(only=placement.id, state=QueueState.WAITING)
        if claim is None:
            return None
        job, now = self.storage.job_of(claim.resource), self.clock()
        if job.attempt is not None:
            # Another yard placed it first.
            self.release(claim)
            return None
        if (stopped := self.check_limits(job)) != job:
            # Its time to wait was over before a yard looked, as after a night without one.
            self._apply(claim, job, stopped)
            return None
        refusal = placement.refusal or self._find_shortfall(job)
        if refusal:
            self._apply(claim, job, _fail(job, refusal, at=now))
            return None
        return self._store_attempt(claim, placement)

    def step(self, claim: Claim, *, is_woken: bool = False) -> Claim | None:
        """Take one step with a placed job; return its claim, or None if the job has ended or the claim is lost.

        `is_woken` makes the step read changes that others made to the record.
        """
        now = self.clock()
        if is_woken or claim.expires_at - now < LEASE * 2 / 3:
            renewed = self.records.renew(claim, lease=LEASE, now=now)
            if renewed is None:
                return None
            claim = renewed
        job = self.storage.job_of(claim.resource)
        if job.attempt is None:
            self.release(claim)
            return None
        after = self._advance_attempt(claim.resource.id, job)
        if after == job:
            return claim
        self.prepare_change(claim.resource.id, job, after)
        return self._apply(claim, job, after)

    def _find_shortfall(self, job: J) -> str:
        """Return why a strict yard refuses a job, or an empty text.

        The create call checks this too, but cannot while the engine is not available.
        """
        if not self.is_strict:
            return ""
        demand = demand_of(job, self.catalog)
        try:
            check_promised_resources(
                demand.types, self._engine(job).capacity(), is_spot=demand.is_spot, is_spread=demand.is_spread
            )
        except InvalidRequest as error:
            return error.message
        return ""

    def _store_attempt(self, claim: Claim, placement: Placement) -> Claim | None:
        job, now = self.storage.job_of(claim.resource), self.clock()
        instances = (InstanceState(host, share) for host, share in zip(job.plan.hosts, placement.shares, strict=True))
        attempt = Attempt(len(job.attempts) + 1, now, new_key_id(), tuple(instances), site=self.site)
        placed = replace(job, attempts=(*job.attempts, attempt))
        if job.secondary is not SecondaryStatus.RESTARTING:
            status = SecondaryStatus.RESTARTING if job.attempts else SecondaryStatus.STARTING
            placed = advance(placed, status, at=now)
        applied = self._apply(claim, job, placed.with_notes(*placement.shortfalls))
        if applied is None or self.storage.job_of(applied.resource).attempt is None:
            # A user stopped the job first.
            return None
        self.prepare_placed(job)
        if not placement.is_backfill:
            self.scheduler.record_turn(job.plan.engine, job.account, at=now)
        return applied

    def _advance_attempt(self, job_id: ResourceId, job: J) -> J:
        ref = AttemptRef(job_id, live_attempt(job).number)
        if not live_attempt(job).is_started:
            return self._start(ref, job)
        before, job = job, self._read_reports(ref, job)
        if has_failed(live_attempt(job)) and not live_attempt(job).told:
            # The instance may have failed because another one died just after it was last seen alive.
            job = self._read_reports(ref, job)
        job = self.draw_conclusions(before, job)
        if self._is_over(live_attempt(job)):
            return self._end_attempt(ref, job)
        return self._send_command(ref, self.send_changes(ref, job))

    def _start(self, ref: AttemptRef, job: J) -> J:
        """Start the instances of an attempt, or end it if it has been stopped or interrupted already."""
        attempt, now = live_attempt(job), self.clock()
        should_end = bool(job.stop_reason or attempt.interruption)
        if should_end and not any(self._engine(job).is_alive(each) for each in _instances(ref, attempt)):
            return self._end_attempt(ref, job)
        is_resumed = attempt.number > 1 and bool(job.attempts[-2].interruption)
        if attempt.number > 1 and not is_resumed and now - attempt.placed_at < START_RETRY_PAUSE:
            return job
        self.views.open_streams(ref, job, now=now)
        try:
            specs = self._make_specs(ref, job)
        except (InvalidRequest, NotFound) as error:
            # Something that existed when the job was created has been deleted.
            return self._give_up(ref, job, error)
        try:
            self._engine(job).start(specs)
        except Unavailable as error:
            return (
                self._handle_refusal(ref, job, error)
                if self._is_start_overdue(job)
                else self._retry_start(ref, job, error)
            )
        except TrainyardError as error:
            return self._handle_refusal(ref, job, error)
        log.info("job started", extra={"job": job.name, "id": ref.job_id, "attempt": ref.attempt})
        job = job.with_attempt(self.start_attempt(job, specs))
        is_restarting = job.secondary is SecondaryStatus.RESTARTING
        return advance(job, SecondaryStatus.STARTING, at=now) if is_restarting else job

    def _is_start_overdue(self, job: J) -> bool:
        """Whether the engine has refused for too long, counted from when the job was placed or last retried.

        Time in the queue, because its nodes were gone, does not count.
        """
        first = live_attempt(job)
        for attempt in reversed(job.attempts[:-1]):
            if attempt.failure or attempt.interruption or attempt.ended_at != first.placed_at:
                break
            first = attempt
        return self.clock() - first.placed_at > START_TIMEOUT

    def _retry_start(self, ref: AttemptRef, job: J, error: Unavailable) -> J:
        """Replace an attempt that the engine could not start by a new one; queue the job if its nodes are gone."""
        log.warning("instances could not be started; will try again", exc_info=error, extra={"job": job.name})
        self._clean_up(ref, job)
        if not self._has_nodes(job):
            return requeue_without_nodes(job, now=self.clock())
        attempt, again = live_attempt(job), self._next_attempt(job)
        return replace(job, attempts=(*job.attempts[:-1], replace(attempt, ended_at=again.placed_at), again))

    def _handle_refusal(self, ref: AttemptRef, job: J, error: TrainyardError) -> J:
        """Retry or fail a job that the engine refused to start for good."""
        card = {"kind": INTERNAL_ERROR, "summary": error.message}
        failed = replace(job, failure=error.message, card=card)
        if can_retry(failed, now=self.clock()):
            return self._retry(ref, failed)
        return replace(self._give_up(ref, job, error), card=card)

    def _retry(self, ref: AttemptRef, job: J) -> J:
        """Give a job another attempt, once nothing of this one runs or can write any more."""
        self._clean_up(ref, job)
        has_nodes = self._has_nodes(job)
        after = retry_job(job, self._next_attempt(job)) if has_nodes else requeue_without_nodes(job, now=self.clock())
        log.warning("job is tried again", extra={"job": job.name, "id": ref.job_id, "retry": after.retries_used})
        return after

    def _has_nodes(self, job: J) -> bool:
        """Whether the engine still has the nodes on which the job was placed."""
        nodes = {node.name for node in self._engine(job).capacity().nodes}
        return all(instance.share.node in nodes for instance in live_attempt(job).instances)

    def _next_attempt(self, job: J) -> Attempt:
        """Return a new attempt with the same shares, which the job still holds."""
        attempt = live_attempt(job)
        instances = tuple(InstanceState(instance.name, instance.share) for instance in attempt.instances)
        return Attempt(attempt.number + 1, self.clock(), new_key_id(), instances, site=self.site)

    def _new_keys(self, before: J, after: J) -> Sequence[AccessKey]:
        """Return the credentials of new attempts. They are stored with the attempts, or not at all."""
        known = {attempt.key_id for attempt in before.attempts}
        plan, lifetime = after.plan, timedelta(seconds=after.plan.max_runtime_s) + GRACE + UPLOAD_TIME
        return [
            role_key(attempt.key_id, after.account, plan.role, session=after.name, lifetime=lifetime, now=self.clock())
            for attempt in after.attempts
            if attempt.key_id not in known
        ]

    def _make_specs(self, ref: AttemptRef, job: J) -> Sequence[InstanceSpec]:
        attempt = live_attempt(job)
        key = self.records.access_key(attempt.key_id)
        uid = uid_of(self.records, job.account, now=self.clock()) if self.runs_as_root else None
        specs = self.specs.make_specs(ref.job_id, job, attempt, key=key, uid=uid, engine=self._engine(job))
        request = tagged_request(self.records, ResourceId(ref.job_id))
        return [replace(spec, request=request) for spec in specs]

    def _read_reports(self, ref: AttemptRef, job: J) -> J:
        """Apply what the instances reported, and mark those lost that are dead and will not report any more."""
        open_instances = [instance for instance in live_attempt(job).instances if not instance.has_ended]
        # Check who is dead before reading: an agent may report and exit in between.
        dead = [each.name for each in open_instances if not self._engine(job).is_alive(InstanceRef(ref, each.name))]
        known_metrics = set(live_attempt(job).metrics)
        reports: Sequence[InstanceReport] = ()
        try:
            reports = [self._read_report(ref, job, instance) for instance in open_instances]
            job = self.apply_reports(job, reports)
        except Corrupt as error:
            log.error("spool is damaged", exc_info=error, extra={"job": job.name, "id": ref.job_id})
            dead = [instance.name for instance in open_instances]
        for name in dead:
            if not live_attempt(job).instance(name).has_ended:
                job = self._mark_dead(ref, job, name)
        self.views.open_metrics(ref, job, live_attempt(job).metrics.keys() - known_metrics, now=self.clock())
        for report in reports:
            # Before the cursors are stored: a yard that is killed in between reads the reports again.
            self.views.open_host_metrics(ref, job, report.instance, host_metrics(report), now=self.clock())
            keep_environment(
                self.records, job.account, region=job.region, packages=installed_packages(report), now=self.clock()
            )
        return job

    def _mark_dead(self, ref: AttemptRef, job: J, name: str) -> J:
        is_node_lost = self._engine(job).has_lost_node(InstanceRef(ref, name))
        mark = mark_node_lost if is_node_lost else mark_lost
        return mark(job, name, at=self.clock())

    def _read_report(self, ref: AttemptRef, job: J, instance: InstanceState) -> InstanceReport:
        frames: list[Frame] = []
        offset = instance.cursor
        while (read := self._engine(job).reports(InstanceRef(ref, instance.name), offset)).frames:
            frames += read.frames
            offset = read.next_offset
        return InstanceReport(instance.name, frames, offset)

    def _send_command(self, ref: AttemptRef, job: J) -> J:
        """Send the instances the command that the job's state calls for, unless they have it already.

        Instances that were told to stop keep their grace period and what they write in it, even if one of them fails
        meanwhile, as it may when those that it talks to are gone. A yard that is killed before it stores the command
        sends it again; agents expect that.
        """
        attempt = live_attempt(job)
        if job.stop_reason:
            kind, reason = CommandKind.STOP, job.stop_reason
        elif attempt.interruption:
            kind, reason = CommandKind.STOP, INTERRUPTED
        elif has_failed(attempt) and not awaits_cause(job, now=self.clock()):
            kind, reason = CommandKind.KILL, "another instance failed"
        else:
            return job
        told = INTERRUPTED if reason == INTERRUPTED else str(kind)
        if attempt.told in (told, CommandKind.KILL):
            return job
        for instance in attempt.instances:
            if not instance.has_ended:
                self._engine(job).command(InstanceRef(ref, instance.name), kind, {"reason": reason})
        return job.with_attempt(replace(attempt, told=told, told_at=self.clock()))

    def _is_over(self, attempt: Attempt) -> bool:
        """Whether all instances have ended, or should have by now."""
        if has_ended(attempt):
            return True
        # Counted from the command, which may come long after the failure if no yard ran.
        told_at = attempt.told_at or attempt.placed_at
        return attempt.told == CommandKind.KILL and self.clock() - told_at > KILL_TIMEOUT

    def _end_attempt(self, ref: AttemptRef, job: J) -> J:
        """End the job, once nothing of it runs and its credentials are revoked.

        A job that was lost is retried if it may be. A job that was interrupted waits in the queue again.
        """
        if not has_ended(live_attempt(job)):
            job = self._kill(ref, job)
        if was_interrupted(job):
            self._clean_up(ref, job)
            log.info("job was interrupted", extra={"job": job.name, "id": ref.job_id, "attempt": ref.attempt})
            return requeue_interrupted(job, now=self.clock())
        if can_retry(job, now=self.clock()):
            return self._retry(ref, job)
        self._clean_up(ref, job)
        after = finish_job(job, now=self.clock())
        self.prepare_end(ResourceId(ref.job_id), after)
        log.info("job ended", extra={"job": job.name, "id": ref.job_id, "status": after.secondary})
        return after

    def _kill(self, ref: AttemptRef, job: J) -> J:
        """Kill instances that did not end when told to, and mark those whose nodes are gone."""
        self._clean_up(ref, job)
        for instance in live_attempt(job).instances:
            if not instance.has_ended and self._engine(job).has_lost_node(InstanceRef(ref, instance.name)):
                job = mark_node_lost(job, instance.name, at=self.clock())
        return job

    def _give_up(self, ref: AttemptRef, job: J, error: TrainyardError) -> J:
        """Fail a job whose instances could not be started."""
        self._clean_up(ref, job)
        now = self.clock()
        log.warning("job could not be started", exc_info=error, extra={"job": job.name, "id": ref.job_id})
        return _fail(job.with_attempt(replace(live_attempt(job), ended_at=now)), error.message, at=now)

    def _clean_up(self, ref: AttemptRef, job: J) -> None:
        """End whatever is left of an attempt, and revoke its credentials."""
        self._engine(job).end(ref)
        self.identities.revoke(job.account, live_attempt(job).key_id)
        self.discard_results(job)

    def _apply(self, claim: Claim, before: J, after: J) -> Claim | None:
        """Store a job; return the claim on it as it is stored now, which may be what others wrote first.

        None if the job has ended or lost its allocation, or if the claim is lost.
        """
        change, events, now = (
            self.storage.change_to(claim.resource, after),
            self.storage.events_of(before, after),
            self.clock(),
        )
        change = replace(change, keys=self._new_keys(before, after))
        is_over = after.is_final or after.attempt is None
        applied = self.records.apply_claimed(claim, change, now=now, events=events, release=is_over)
        if applied is None:
            return self.records.renew(claim, lease=LEASE, now=now)
        return None if is_over else applied

    def _claim(self, *, state: QueueState, only: ResourceId | None = None) -> Claim | None:
        now = self.clock()
        return self.records.claim_next(
            self.record_kind, worker=self.worker, lease=LEASE, now=now, only=only, state=state
        )

    def _claim_first_of_ours(self) -> Claim | None:
        claims = (self._claim(only=resource.id, state=QueueState.PLACED) for resource in self._placed_here())
        return next((claim for claim in claims if claim is not None), None)

    def _placed_here(self) -> Iterable[Resource]:
        """The jobs that were placed here, the oldest first."""
        return (
            each
            for each in self.records.in_state(self.record_kind, QueueState.PLACED)
            if self.is_ours(self.storage.job_of(each))
        )

    def _engine(self, job: J) -> Engine:
        return self.engines[job.plan.engine]

    def _has_engine(self, job: J) -> bool:
        return not job.plan.engine or job.plan.engine in self.engines


def _instances(ref: AttemptRef, attempt: Attempt) -> Iterable[InstanceRef]:
    return (InstanceRef(ref, instance.name) for instance in attempt.instances)


def _fail(job: J, reason: str, *, at: datetime) -> J:
    return advance(replace(job, failure=reason), SecondaryStatus.FAILED, at=at)

"""Moves training jobs: places those whose turn it is, starts their instances, takes in their reports, and ends them.

Each round loads a job, works with nothing locked, and applies what came of it under a claim. A round that is cut short
at any point is simply done again: an attempt is remembered before anything of it exists, the engine starts an instance
once however often it is asked, and the cursor of a spool moves in the apply that remembers what the frames told.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from trainyard.engines.catalog import Catalog
from trainyard.engines.contract import Capacity, Engine
from trainyard.engines.placement import Room, check_strictly, lacking
from trainyard.engines.several import Engines
from trainyard.foundation.clock import EPOCH, Clock
from trainyard.foundation.errors import Corrupt, InvalidRequest, NotFound, TrainyardError, Unavailable
from trainyard.foundation.failures import INTERNAL_ERROR
from trainyard.foundation.jobs import Attempt, InstanceState, SecondaryStatus, Share, TrainingJob
from trainyard.foundation.transitions import advance, give_up, interrupt
from trainyard.link.contract import INTERRUPTED, CommandKind, Frame, InstanceSpec
from trainyard.link.folders import AttemptRef, InstanceRef
from trainyard.server.control.actions.asking import ask_for_actions, noted, stopped_by_rules
from trainyard.server.control.ending import (
    awaits_cause,
    conclude,
    gave_way,
    has_ended,
    has_failed,
    interrupted,
    lost,
    may_be_retried,
    retried,
    taken,
    waits_again,
)
from trainyard.server.control.lines import (
    Asking,
    Floor,
    Line,
    Memory,
    Offer,
    Seat,
    Seats,
    demand_of,
    is_shared,
    keys_of,
    lines_of,
)
from trainyard.server.control.pools import WarmPools
from trainyard.server.control.preemption import NodePlace, Place, chosen, is_leaving, outplaced
from trainyard.server.control.reports import Report, absorb, live_attempt
from trainyard.server.control.showing import JobViews
from trainyard.server.control.specs import GRACE, SpecMaker
from trainyard.server.control.uids import uid_of
from trainyard.server.identity import Identities, new_key_id, role_key
from trainyard.server.jobs import KIND, change_to, due_at, events_of, job_of
from trainyard.server.records.contract import AccessKey, Change, Claim, Records, Resource, ResourceId, Waiting

log = logging.getLogger(__name__)

LEASE = timedelta(seconds=5)  # how long a job waits for a yard that was killed
START_PATIENCE = timedelta(seconds=60)  # with a machine that refuses to start instances for now
START_PAUSE = timedelta(seconds=2)  # before it is asked again, or a job that was lost is tried again
KILL_PATIENCE = timedelta(seconds=5)  # with instances that were told to end because another one failed
UPLOAD_TIME = timedelta(hours=12)  # for which credentials outlive the time a program may run

GIVE_WAY = "A job that is not spot needed its place."


@dataclass(frozen=True, slots=True)
class TrainingWork:
    """The work on training jobs, one call a round. Calls block; those for different jobs may be made at once."""

    records: Records
    identities: Identities
    engines: Engines
    catalog: Catalog
    specs: SpecMaker
    views: JobViews
    clock: Clock
    worker: str
    site: str  # of this yard among several on one database; empty where it is the only one
    runs_as_root: bool
    is_strict: bool = False  # starts no job whose instance types can only be had in part
    memory: Memory = field(default_factory=Memory, compare=False)

    def running(self) -> dict[ResourceId, Seat]:
        """The seats of all jobs that have been placed here and have not ended."""
        placed = self.records.due_until(KIND, EPOCH)
        found = ((resource.id, job_of(resource)) for resource in placed)
        return {key: seat_of(job) for key, job in found if job.attempt is not None and job.attempt.site == self.site}

    def offers(self, running: Seats) -> Sequence[Offer]:
        """Who can start now beside those that run: one from each line in which there is such a one.

        Where there is no room for the first in line, and it is not spot, spot jobs that have the room are told to give
        it away.
        """
        looked = (self._offer_of(name, running) for name in lines_of(self.engines))
        return [offer for offer in looked if offer is not None]

    def is_ours(self, job: TrainingJob) -> bool:
        """Whether a job that has been placed is for this yard to work on: it was placed here, on an engine of ours."""
        return job.attempt is not None and job.attempt.site == self.site and self._has_engine(job)

    def claim(self) -> Claim | None:
        """A job that was placed and that nobody holds, as after a kill.

        What is for another yard on the same database is left as it is, however slow that one may be.
        """
        first = self.records.first_due(KIND, now=EPOCH)
        if first is not None and not self.is_ours(job_of(first)):
            return self._claim_of_ours()
        claim = self._claimed(until=EPOCH)
        if claim is None or self.is_ours(job_of(claim.resource)):
            return claim
        self.release(claim)  # one that another yard held until now
        return self._claim_of_ours()

    def release(self, claim: Claim) -> None:
        """Give a job back as it is, for the next who claims it."""
        change = Change(due_at=due_at(job_of(claim.resource)), is_quiet=True)
        self.records.apply_claimed(claim, change, now=self.clock(), release=True)

    def keep(self, claim: Claim) -> None:
        """Hold a job for longer, while work on it goes on elsewhere; in vain where the claim is lost."""
        self.records.renew(claim, lease=LEASE, now=self.clock())

    def has_left(self, id: ResourceId) -> bool:  # noqa: A002 - the domain's word
        """Whether a job has no place any more, or is gone altogether."""
        try:
            return job_of(self.records.load_by_id(id)).attempt is None
        except NotFound:
            return True

    def place(self, offer: Offer) -> Claim | None:
        """Give a job its shares and its credentials, and remember the attempt; None when that was not to be."""
        claim = self._claimed(only=offer.id)
        if claim is None:
            return None
        job, now = job_of(claim.resource), self.clock()
        if job.attempt is not None:  # another yard was quicker
            self.release(claim)
            return None
        if (stopped := give_up(job, at=now)) != job:  # as after a night on which no yard ran
            self._apply(claim, job, stopped)
            return None
        refusal = offer.refusal or self._strict_refusal(job)
        if refusal:
            self._apply(claim, job, _failed(job, refusal, at=now))
            return None
        return self._placed(claim, offer)

    def _strict_refusal(self, job: TrainingJob) -> str:
        """Why a strict yard does not start a job, as of one whose engine was out of reach when it was created."""
        if not self.is_strict:
            return ""
        demand = demand_of(job, self.catalog)
        try:
            check_strictly(
                demand.types, self._engine(job).capacity(), is_spot=demand.is_spot, is_spread=demand.is_spread
            )
        except InvalidRequest as error:
            return error.message
        return ""

    def _placed(self, claim: Claim, offer: Offer) -> Claim | None:
        job, now = job_of(claim.resource), self.clock()
        instances = (InstanceState(host, share) for host, share in zip(job.plan.hosts, offer.shares, strict=True))
        attempt = Attempt(len(job.attempts) + 1, now, new_key_id(), tuple(instances), site=self.site)
        placed = replace(job, attempts=(*job.attempts, attempt))
        if job.secondary is not SecondaryStatus.RESTARTING:
            status = SecondaryStatus.RESTARTING if job.attempts else SecondaryStatus.STARTING
            placed = advance(placed, status, at=now)
        applied = self._apply(claim, job, placed.noted(*offer.shortfalls))
        if applied is None or job_of(applied.resource).attempt is None:  # a user's stop was first
            return None
        WarmPools(self.records).take_over(job, now=now)
        if not offer.overtakes:
            self.memory.turns[self.engines.line_of(job.plan.engine), job.account] = now
        return applied

    def step(self, claim: Claim, *, is_woken: bool = False) -> Claim | None:
        """One round on a job that has been placed; None when it has ended, or the claim is lost.

        `is_woken` makes sure that what others changed is seen.
        """
        now = self.clock()
        if is_woken or claim.expires_at - now < LEASE * 2 / 3:
            renewed = self.records.renew(claim, lease=LEASE, now=now)
            if renewed is None:
                return None
            claim = renewed
        job = job_of(claim.resource)
        if job.attempt is None:
            self.release(claim)
            return None
        after = self._worked_on(claim.resource.id, job)
        if after == job:
            return claim
        # Before the findings are remembered: who is killed in between hears of them again.
        ask_for_actions(self.records, claim.resource.id, job, after=after, now=now)
        return self._apply(claim, job, after)

    def _worked_on(self, id: ResourceId, job: TrainingJob) -> TrainingJob:  # noqa: A002 - the domain's word
        ref = AttemptRef(id, live_attempt(job).number)
        if not live_attempt(job).is_started:
            return self._started(ref, job)
        before, job = job, self._heard(ref, job)
        if has_failed(live_attempt(job)) and not live_attempt(job).told:
            # What failed may have done so because another one died just after it was last seen alive.
            job = self._heard(ref, job)
        job = stopped_by_rules(before, noted(before, job), now=self.clock())
        if self._is_over(live_attempt(job)):
            return self._ended(ref, job)
        return self._told(ref, job)

    def _started(self, ref: AttemptRef, job: TrainingJob) -> TrainingJob:
        attempt, now = live_attempt(job), self.clock()
        shall_end = bool(job.stop_reason or attempt.interruption)
        if shall_end and not any(self._engine(job).is_alive(each) for each in _instances(ref, attempt)):
            return self._ended(ref, job)
        is_resumed = attempt.number > 1 and bool(job.attempts[-2].interruption)
        if attempt.number > 1 and not is_resumed and now - attempt.placed_at < START_PAUSE:
            return job
        self.views.open_streams(ref, job, now=now)
        try:
            specs = self._specs(ref, job)
        except (InvalidRequest, NotFound) as error:  # what was there at the create has gone since
            return self._given_up(ref, job, error)
        try:
            self._engine(job).start(specs)
        except Unavailable as error:
            return self._not_started(ref, job, error) if self._is_late(job) else self._placed_again(ref, job, error)
        except TrainyardError as error:
            return self._not_started(ref, job, error)
        log.info("job started", extra={"job": job.name, "id": ref.job_id, "attempt": ref.attempt})
        job = job.with_attempt(replace(attempt, is_started=True))
        is_back = job.secondary is SecondaryStatus.RESTARTING
        return advance(job, SecondaryStatus.STARTING, at=now) if is_back else job

    def _is_late(self, job: TrainingJob) -> bool:
        """Whether the machine has refused for too long, since the job was placed or last tried again.

        Time that it spent in line, because its nodes were gone, is not the machine's.
        """
        first = live_attempt(job)
        for attempt in reversed(job.attempts[:-1]):
            if attempt.failure or attempt.interruption or attempt.ended_at != first.placed_at:
                break
            first = attempt
        return self.clock() - first.placed_at > START_PATIENCE

    def _placed_again(self, ref: AttemptRef, job: TrainingJob, error: Unavailable) -> TrainingJob:
        """The job with another attempt, after the machine refused to start this one; in line if its nodes are gone."""
        log.warning("instances could not be started; will try again", exc_info=error, extra={"job": job.name})
        self._end(ref, job)
        if not self._has_nodes(job):
            return waits_again(job, now=self.clock())
        attempt, again = live_attempt(job), self._next_attempt(job)
        return replace(job, attempts=(*job.attempts[:-1], replace(attempt, ended_at=again.placed_at), again))

    def _not_started(self, ref: AttemptRef, job: TrainingJob, error: TrainyardError) -> TrainingJob:
        """The job tried again, or failed, after the machine refused it for good."""
        card = {"kind": INTERNAL_ERROR, "summary": error.message}
        failed = replace(job, failure=error.message, card=card)
        if may_be_retried(failed, now=self.clock()):
            return self._tried_again(ref, failed)
        return replace(self._given_up(ref, job, error), card=card)

    def _tried_again(self, ref: AttemptRef, job: TrainingJob) -> TrainingJob:
        """The job with another attempt, after the proof that nothing of this one runs or can write any more."""
        self._end(ref, job)
        is_placed = self._has_nodes(job)
        after = retried(job, self._next_attempt(job)) if is_placed else waits_again(job, now=self.clock())
        log.warning("job is tried again", extra={"job": job.name, "id": ref.job_id, "retry": after.retries_used})
        return after

    def _has_nodes(self, job: TrainingJob) -> bool:
        """Whether the nodes are there on which the job has its place."""
        there = {node.name for node in self._engine(job).capacity().nodes}
        return all(instance.share.node in there for instance in live_attempt(job).instances)

    def _next_attempt(self, job: TrainingJob) -> Attempt:
        """One with the same share, which the job still has."""
        attempt = live_attempt(job)
        instances = tuple(InstanceState(instance.name, instance.share) for instance in attempt.instances)
        return Attempt(attempt.number + 1, self.clock(), new_key_id(), instances, site=self.site)

    def _new_keys(self, before: TrainingJob, after: TrainingJob) -> Sequence[AccessKey]:
        """The credentials of attempts that are to be remembered; those of others never come to be."""
        known = {attempt.key_id for attempt in before.attempts}
        plan, lifetime = after.plan, timedelta(seconds=after.plan.max_runtime_s) + GRACE + UPLOAD_TIME
        return [
            role_key(attempt.key_id, after.account, plan.role, session=after.name, lifetime=lifetime, now=self.clock())
            for attempt in after.attempts
            if attempt.key_id not in known
        ]

    def _specs(self, ref: AttemptRef, job: TrainingJob) -> Sequence[InstanceSpec]:
        attempt = live_attempt(job)
        key = self.records.access_key(attempt.key_id)
        uid = uid_of(self.records, job.account, now=self.clock()) if self.runs_as_root else None
        return self.specs.specs(ref.job_id, job, attempt, key=key, uid=uid, engine=self._engine(job))

    def _heard(self, ref: AttemptRef, job: TrainingJob) -> TrainingJob:
        """The job after all that its instances have told, and after the death of those that cannot tell any more."""
        waiting = [instance for instance in live_attempt(job).instances if not instance.has_ended]
        # First who is dead, then what was said: an agent may report and go in between.
        dead = [each.name for each in waiting if not self._engine(job).is_alive(InstanceRef(ref, each.name))]
        known = set(live_attempt(job).metrics)
        try:
            job = absorb(job, [self._report(ref, job, instance) for instance in waiting])
        except Corrupt as error:
            log.error("spool is damaged", exc_info=error, extra={"job": job.name, "id": ref.job_id})
            dead = [instance.name for instance in waiting]
        for name in dead:
            if not live_attempt(job).instance(name).has_ended:
                job = self._lost(ref, job, name)
        self.views.open_metrics(ref, job, live_attempt(job).metrics.keys() - known, now=self.clock())
        return job

    def _lost(self, ref: AttemptRef, job: TrainingJob, name: str) -> TrainingJob:
        is_taken = self._engine(job).was_taken(InstanceRef(ref, name))
        return taken(job, name, at=self.clock()) if is_taken else lost(job, name, at=self.clock())

    def _report(self, ref: AttemptRef, job: TrainingJob, instance: InstanceState) -> Report:
        frames: list[Frame] = []
        offset = instance.cursor
        while (read := self._engine(job).reports(InstanceRef(ref, instance.name), offset)).frames:
            frames += read.frames
            offset = read.next_offset
        return Report(instance.name, frames, offset)

    def _told(self, ref: AttemptRef, job: TrainingJob) -> TrainingJob:
        """The job after its instances got the command that its state calls for, if they have not got it yet.

        Those that were told to go keep their grace and what they wrote in it, also when one of them fails meanwhile,
        as it may when those that it talks to are gone. Who is killed between telling and remembering tells again,
        which agents do not mind.
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
        if has_ended(attempt):
            return True
        # From when they were told, for that may be long after the failure if no yard ran.
        told_at = attempt.told_at or attempt.placed_at
        return attempt.told == CommandKind.KILL and self.clock() - told_at > KILL_PATIENCE

    def _ended(self, ref: AttemptRef, job: TrainingJob) -> TrainingJob:
        """The job in its final status, after the proof that nothing of it runs and its credentials are worthless.

        One that was lost is tried again, as long as it may be. One that gave its place away waits for another.
        """
        if not has_ended(live_attempt(job)):
            job = self._killed(ref, job)
        if gave_way(job):
            self._end(ref, job)
            log.info("job gave its place away", extra={"job": job.name, "id": ref.job_id, "attempt": ref.attempt})
            return interrupted(job, now=self.clock())
        if may_be_retried(job, now=self.clock()):
            return self._tried_again(ref, job)
        self._end(ref, job)
        after = conclude(job, now=self.clock())
        WarmPools(self.records).leave(ref.job_id, after, now=self.clock())
        log.info("job ended", extra={"job": job.name, "id": ref.job_id, "status": after.secondary})
        return after

    def _killed(self, ref: AttemptRef, job: TrainingJob) -> TrainingJob:
        """The job after its instances were killed that did not end; some may have been gone with their nodes."""
        self._end(ref, job)
        for instance in live_attempt(job).instances:
            if not instance.has_ended and self._engine(job).was_taken(InstanceRef(ref, instance.name)):
                job = taken(job, instance.name, at=self.clock())
        return job

    def _given_up(self, ref: AttemptRef, job: TrainingJob, error: TrainyardError) -> TrainingJob:
        """The job failed, after an attempt whose instances could not be started."""
        self._end(ref, job)
        now = self.clock()
        log.warning("job could not be started", exc_info=error, extra={"job": job.name, "id": ref.job_id})
        return _failed(job.with_attempt(replace(live_attempt(job), ended_at=now)), error.message, at=now)

    def _end(self, ref: AttemptRef, job: TrainingJob) -> None:
        self._engine(job).end(ref)
        self.identities.revoke(job.account, live_attempt(job).key_id)

    def _apply(self, claim: Claim, before: TrainingJob, after: TrainingJob) -> Claim | None:
        """The claim on the job as it is remembered now, which is what others made of it if they were first.

        None when the job has ended or lost its place, or the claim is lost.
        """
        change, events, now = change_to(claim.resource, after), events_of(before, after), self.clock()
        change = replace(change, keys=self._new_keys(before, after))
        is_over = after.is_final or after.attempt is None
        applied = self.records.apply_claimed(claim, change, now=now, events=events, release=is_over)
        if applied is None:
            return self.records.renew(claim, lease=LEASE, now=now)
        return None if is_over else applied

    def _claimed(self, *, only: ResourceId | None = None, until: datetime | None = None) -> Claim | None:
        now = self.clock()
        return self.records.claim_next(KIND, worker=self.worker, lease=LEASE, now=now, only=only, until=until)

    def _claim_of_ours(self) -> Claim | None:
        claims = (self._claimed(only=resource.id) for resource in self._ours())
        return next((claim for claim in claims if claim is not None), None)

    def _ours(self) -> Iterable[Resource]:
        """The jobs that were placed here, the oldest first."""
        return (each for each in self.records.due_until(KIND, EPOCH) if self.is_ours(job_of(each)))

    def _offer_of(self, name: str, running: Seats) -> Offer | None:
        """Who starts next of a line; nobody while its engine cannot be asked."""
        engines = {each for each in {seat.engine for seat in running.values()} if self.engines.line_of(each) == name}
        seats = {key: seat for key, seat in running.items() if seat.engine in engines}
        keys = keys_of(name, self.engines, site=self.site)
        line = Line(self.records, self.catalog, self.memory, name=name, keys=keys, seats=seats, now=self.clock())
        ranked = line.ranked()
        if not ranked:
            return None
        try:
            first = line.asking(ranked[0])
            machine = self.engines[first.engine].capacity()
        except InvalidRequest as error:  # the catalog has changed since the create
            return Offer(ranked[0].id, refusal=error.message)
        except (NotFound, Unavailable) as error:
            log.debug("a line has to wait", extra={"line": name, "why": error.message})
            return None
        floor = line.floor(machine)
        shares = None if line.is_blocked_by(first, floor) else floor.room.place(first.demand)
        if shares is not None:
            return Offer(first.id, shares, floor.room.fitted(first.demand).shortfalls)
        return self._beside(line, first, floor=floor, ranked=ranked)

    def _beside(self, line: Line, first: Asking, *, floor: Floor, ranked: Sequence[Waiting]) -> Offer | None:
        """Who starts before the first in line, which has no room, without delaying it."""
        behind = () if is_shared(floor.room.machine) else line.behind(ranked)
        elders = line.elders(ranked[0], behind)
        blockade = line.blockade(first, elders, floor)
        if blockade is None:
            kept, left = self._kept(line, first, floor=floor), floor.room.copy()
            left.take(kept)
            offer = line.elder(elders, floor, left=left, kept=kept)
            if offer is not None:
                return offer
            blockade = line.block(first, elders, floor, left=left)
        return line.overtaker(blockade, behind)

    def _kept(self, line: Line, first: Asking, *, floor: Floor) -> Sequence[Share]:
        """Where the first in line will be; those on spot that are in its way are told to go."""
        machine, has_spot = floor.room.machine, any(seat.is_spot for seat in line.seats.values())
        gives_way = has_spot and not first.demand.is_spot
        if is_shared(machine):
            if gives_way:
                self._make_room(first, line.seats, machine=machine)
            return ()
        kept = self._make_room_on_nodes(line, first, room=floor.room) if gives_way else None
        return kept or floor.room.emptied().place(first.demand, beside=floor.room) or ()

    def _make_room(self, first: Asking, seats: Seats, *, machine: Capacity) -> None:
        """Tell the spot jobs to go whose places let the first in line start, once all who leave anyway have left."""
        jobs = self._staying(seats)
        staying = {key: seats[key] for key in jobs}
        lack = lacking(first.demand.types, machine, running=_shares_of(staying))
        places = [_place(key, job, seat=staying[key]) for key, job in jobs.items() if job.plan.is_spot]
        for given in chosen(lack, places, now=self.clock()):
            self._interrupt(given.id, GIVE_WAY)

    def _make_room_on_nodes(self, line: Line, first: Asking, *, room: Room) -> tuple[Share, ...] | None:
        """The same on nodes: where the first in line will be, once the spot jobs there that must go have gone."""
        without_spot = line.lasting_floor(room.machine).room
        kept = without_spot.place(first.demand, beside=room)
        if kept is None:
            return None
        spot, nodes = {key: seat for key, seat in line.seats.items() if seat.is_spot}, {share.node for share in kept}
        near = {key: seat for key, seat in spot.items() if nodes & {share.node for share in seat.shares}}
        places = [NodePlace(key, near[key].shares, near[key].since) for key in self._staying(near)]
        without_near = without_spot.copy()
        without_near.take(_shares_of({key: seat for key, seat in spot.items() if key not in near}))
        for given in outplaced(first.demand, without_near, places):
            self._interrupt(given.id, GIVE_WAY)
        return kept

    def _staying(self, seats: Seats) -> dict[ResourceId, TrainingJob]:
        """The jobs whose places will not soon be free anyway."""
        found = ((key, self._found(key)) for key in seats)
        return {key: job for key, job in found if job is not None and not is_leaving(job)}

    def _found(self, id: ResourceId) -> TrainingJob | None:  # noqa: A002 - the domain's word
        try:
            return job_of(self.records.load_by_id(id))
        except NotFound:
            return None

    def _interrupt(self, id: ResourceId, why: str) -> None:  # noqa: A002 - the domain's word
        """Have a job give its place away, unless it is leaving it already. Its driver sees to the rest."""
        while True:
            try:
                resource = self.records.load_by_id(id)
            except NotFound:
                return
            after = interrupt(job_of(resource), why)
            if after == job_of(resource):
                return
            if self.records.apply(resource, change_to(resource, after), now=self.clock()) is not None:
                return

    def _engine(self, job: TrainingJob) -> Engine:
        return self.engines[job.plan.engine]

    def _has_engine(self, job: TrainingJob) -> bool:
        return not job.plan.engine or job.plan.engine in self.engines


def seat_of(job: TrainingJob) -> Seat:
    attempt = live_attempt(job)
    shares = [instance.share for instance in attempt.instances]
    return Seat(shares, job.plan.is_spot, job.plan.engine, job.account, attempt.placed_at)


def _shares_of(seats: Seats) -> list[Share]:
    return [share for seat in seats.values() for share in seat.shares]


def _place(id: ResourceId, job: TrainingJob, *, seat: Seat) -> Place:  # noqa: A002 - the domain's word
    gpus = sum(len(share.gpus) for share in seat.shares)
    return Place(id, slots=len(seat.shares), gpus=gpus, since=live_attempt(job).placed_at)


def _instances(ref: AttemptRef, attempt: Attempt) -> Iterable[InstanceRef]:
    return (InstanceRef(ref, instance.name) for instance in attempt.instances)


def _failed(job: TrainingJob, reason: str, *, at: datetime) -> TrainingJob:
    return advance(replace(job, failure=reason), SecondaryStatus.FAILED, at=at)

"""Runs the work on training jobs: one task that claims, and one for each job that has been placed."""

import asyncio
import logging
from datetime import timedelta

from trainyard.foundation.errors import TrainyardError, Unavailable
from trainyard.link.doorbell import Doorbell
from trainyard.server.control.bell import Bell
from trainyard.server.control.lines import Offer, Seat
from trainyard.server.control.training import LEASE, TrainingWork, seat_of
from trainyard.server.jobs import job_of
from trainyard.server.records.contract import Claim, ResourceId

log = logging.getLogger(__name__)

IDLE = timedelta(seconds=1)  # between looks for work that nobody rang for
QUICKEST, SLOWEST = 0.05, 1.0  # seconds between two rounds on a job for which nobody rings
AFTER_ERROR_S = 1.0

_PATIENCE = 8  # a job is asked again after this part of the time for which it has been silent
_SETTLE_S = 0.005  # agents often ring twice in a row, and one round for both is half the work


class TrainingLoop:
    """Moves all training jobs of a yard for as long as `run` goes on. `close` lets every round come to its end.

    Changes of the records are heard by `bell`, news in the spools by `doorbell`. Without either, both are found later.
    """

    def __init__(self, work: TrainingWork, bell: Bell, doorbell: Doorbell | None = None) -> None:
        self._work = work
        self._bell = bell
        self._doorbell = doorbell
        self._running: dict[ResourceId, Seat] = {}
        self._drives: dict[ResourceId, asyncio.Task[None]] = {}
        self._rings: dict[ResourceId, _Ring] = {}
        self._wakened = asyncio.Event()
        self._claims_from = 0.0  # the moment from which to look for jobs that nobody drives
        self._is_closing = False

    async def run(self) -> None:
        self._bell.listen(self._hear)
        if self._doorbell is not None:
            asyncio.get_running_loop().add_reader(self._doorbell.descriptor, self._hear_agents, self._doorbell)
        self._running = await self._recalled()
        while not self._is_closing:
            has_worked = await self._look_for_work()
            if not has_worked:
                await _wait(self._wakened, IDLE.total_seconds())
                self._wakened.clear()
        await asyncio.gather(*self._drives.values())

    def close(self) -> None:
        """Make `run` return soon, with no job held. Agents go on."""
        self._is_closing = True
        self._bell.silence()
        if self._doorbell is not None:
            asyncio.get_running_loop().remove_reader(self._doorbell.descriptor)
        self._wakened.set()
        for ring in self._rings.values():
            ring.wake()

    def _hear(self, job_id: str) -> None:
        """Whoever is driven here gives nobody room before the drive is over, of which `_let_go` tells."""
        ring = self._rings.get(ResourceId(job_id))
        if ring is None:
            self._wakened.set()
        else:
            ring.wake()

    def _hear_agents(self, doorbell: Doorbell) -> None:
        for job_id in doorbell.read():
            ring = self._rings.get(ResourceId(job_id))
            if ring is not None:
                asyncio.get_running_loop().call_later(_SETTLE_S, ring.knock)

    async def _recalled(self) -> dict[ResourceId, Seat]:
        while not self._is_closing:
            try:
                return await asyncio.to_thread(self._work.running)
            except TrainyardError:
                log.warning("running jobs cannot be read yet", exc_info=True)
                await asyncio.sleep(AFTER_ERROR_S)
        return {}

    async def _look_for_work(self) -> bool:
        """Whether a job was taken up, so that there may be another."""
        try:
            if await self._has_claimed():
                return True
            offers = await asyncio.to_thread(self._work.offers, dict(self._running))
            return any([await self._start(offer) for offer in offers])
        except Exception:
            log.exception("looking for work failed")
            await asyncio.sleep(AFTER_ERROR_S)
            return False

    async def _has_claimed(self) -> bool:
        """Whether a job that nobody drives was taken up; such come without a ring, and are looked for now and then."""
        now = asyncio.get_running_loop().time()
        if now < self._claims_from:
            return False
        claim = await asyncio.to_thread(self._work.claim)
        if claim is None:
            self._claims_from = now + IDLE.total_seconds()
            return False
        await self._take_up(claim)
        return True

    async def _start(self, offer: Offer) -> bool:
        claim = await asyncio.to_thread(self._work.place, offer)
        if claim is not None:
            await self._take_up(claim)
        return claim is not None

    async def _take_up(self, claim: Claim) -> None:
        job, job_id = job_of(claim.resource), claim.resource.id
        if job.is_final:
            await asyncio.to_thread(self._work.release, claim)
            self._running.pop(job_id, None)
            return
        assert job.attempt is not None, "a job that was placed and has not ended has an attempt that goes on"
        self._running[job_id] = seat_of(job)
        self._drives[job_id] = asyncio.create_task(self._drive(claim, self._drives.get(job_id)))

    async def _drive(self, claim: Claim, previous: asyncio.Task[None] | None) -> None:
        """Work on one job until it has ended or lost its place, or the claim on it is lost."""
        job_id = claim.resource.id
        if previous is not None:  # it lost its claim, and may not have noticed yet
            await previous
        ring = self._rings[job_id] = _Ring()
        held: Claim | None = claim
        silent_s, pause_s = 0.0, 0.0
        while held is not None and not self._is_closing:
            is_woken = await ring.wait(pause_s)
            before = held
            try:
                held = await self._stepped(held, is_woken=is_woken)
            except Unavailable as error:
                log.warning("work on a job must wait", extra={"id": job_id, "why": error.message})
                pause_s = AFTER_ERROR_S
                continue
            except Exception:
                log.exception("work on a job failed", extra={"id": job_id})
                pause_s = AFTER_ERROR_S
                continue
            # Metrics alone do not make a job urgent: each round that brings some is a write to the records.
            silent_s = silent_s + pause_s if held is not None and _is_as_far(held, before) else 0.0
            pause_s = min(SLOWEST, max(QUICKEST, silent_s / _PATIENCE))
        await self._let_go(job_id, held)

    async def _stepped(self, held: Claim, *, is_woken: bool) -> Claim | None:
        """One round, which may take as long as a node does to answer; the job is held all the while."""
        round_ = asyncio.create_task(asyncio.to_thread(self._work.step, held, is_woken=is_woken))
        while not (await asyncio.wait({round_}, timeout=(LEASE / 3).total_seconds()))[0]:
            await asyncio.to_thread(self._work.keep, held)
        return round_.result()

    async def _let_go(self, job_id: ResourceId, held: Claim | None) -> None:
        try:
            if held is not None:
                await asyncio.to_thread(self._work.release, held)
            elif await asyncio.to_thread(self._work.has_left, job_id) and self._is_driven_here(job_id):
                self._running.pop(job_id, None)
        except TrainyardError:  # then it is claimed once more and found to have ended
            log.warning("a job could not be let go", exc_info=True, extra={"id": job_id})
        if self._is_driven_here(job_id):
            del self._drives[job_id], self._rings[job_id]
            if job_id in self._running:  # somebody else has it, or nobody
                self._claims_from = 0.0
        self._wakened.set()

    def _is_driven_here(self, job_id: ResourceId) -> bool:
        """Whether no other task has taken the job up: one that lost its place may have another one already."""
        return self._drives.get(job_id) is asyncio.current_task()


class _Ring:
    """Cuts short the pause between two rounds on a job."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._is_woken = False

    def wake(self) -> None:
        """The records have changed."""
        self._is_woken = True
        self._event.set()

    def knock(self) -> None:
        """An agent has reported something."""
        self._event.set()

    async def wait(self, seconds: float) -> bool:
        """Whether the records have changed; returns at the first ring, or when the time is over."""
        if seconds:
            await _wait(self._event, seconds)
        is_woken, self._is_woken = self._is_woken, False
        self._event.clear()
        return is_woken


def _is_as_far(claim: Claim, before: Claim) -> bool:
    return claim is before or len(job_of(claim.resource).transitions) == len(job_of(before.resource).transitions)


async def _wait(event: asyncio.Event, seconds: float) -> bool:
    """Whether the event came before the time was over."""
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    return True

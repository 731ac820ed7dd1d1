"""Drives jobs of any kind: claims those that are due, takes steps with each in a task of its own, and releases them."""

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Generic

from trainyard.foundation.errors import TrainyardError, Unavailable
from trainyard.server.control.contract import Job, JobKind
from trainyard.server.records.contract import ResourceId

log = logging.getLogger(__name__)

RETRY_S = 1.0  # after an error


class WakeSignal:
    """Carries the ids of changed jobs from any thread to the controllers, on their event loop.

    A signal is a hint: a controller that misses one finds the change at its next poll.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listeners: list[Callable[[str], None]] = []

    def subscribe(self, listener: Callable[[str], None]) -> None:
        """Call `listener` on the running loop with each id from now on."""
        self._listeners = [*self._listeners, listener]
        self._loop = asyncio.get_running_loop()

    def unsubscribe(self, listener: Callable[[str], None]) -> None:
        """Stop calling `listener`; it need not have subscribed."""
        self._listeners = [each for each in self._listeners if each != listener]

    def send(self, job_id: str) -> None:
        """Wake the controllers for one job. Without a subscriber, nothing happens."""
        loop = self._loop
        if loop is None or loop.is_closed():
            return
        for listener in self._listeners:
            loop.call_soon_threadsafe(listener, job_id)


class Controller(Generic[Job]):
    """Drives all jobs of one kind while `run` is awaited. `close` lets every step finish and releases every job.

    The wake signal says which records have changed: a change to a job that is driven here cuts its pause short, any
    other change makes the controller look for due jobs at once. Without a signal the controller polls.
    """

    def __init__(self, kind: JobKind[Job], wake_signal: WakeSignal | None = None) -> None:
        self._kind = kind
        self._wake_signal = wake_signal
        self._loop: asyncio.AbstractEventLoop | None = None
        self._drives: dict[ResourceId, asyncio.Task[None]] = {}
        self._pauses: dict[ResourceId, _Pause] = {}
        self._look = asyncio.Event()
        self._is_closing = False

    async def run(self) -> None:
        """Claim and drive jobs until `close` is called."""
        self._loop = asyncio.get_running_loop()
        if self._wake_signal is not None:
            self._wake_signal.subscribe(self._handle_signal)
        self._kind.open(self._wake_from_any_thread)
        try:
            while not self._is_closing:
                await self._claim_due_jobs()
                await _wait(self._look, self._kind.poll_interval.total_seconds())
                self._look.clear()
            await asyncio.gather(*self._drives.values())
        finally:
            self._kind.close()

    def close(self) -> None:
        """Make `run` return soon, with no job held. What the jobs started continues without the controller."""
        self._is_closing = True
        if self._wake_signal is not None:
            self._wake_signal.unsubscribe(self._handle_signal)
        self._look.set()
        for pause in self._pauses.values():
            pause.cut_short()

    def _handle_signal(self, job_id: str) -> None:
        """Wake a job that is driven here, or look for due jobs.

        A change to a job that is driven here frees nothing for others until its drive ends, which looks for due jobs.
        """
        if (pause := self._pauses.get(ResourceId(job_id))) is None:
            self._look.set()
        else:
            pause.cut_short(job_id)

    def _wake_from_any_thread(self, job_id: ResourceId, changed: str) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._wake, job_id, changed)

    def _wake(self, job_id: ResourceId, changed: str) -> None:
        if (pause := self._pauses.get(job_id)) is not None:
            pause.cut_short(changed)

    async def _claim_due_jobs(self) -> None:
        claims = self._kind.claim_due()
        try:
            while not self._is_closing and not self._is_full():
                job = await asyncio.to_thread(next, claims, None)
                if job is None:
                    return
                job_id = self._kind.job_id(job)
                self._pauses.setdefault(job_id, _Pause())
                self._drives[job_id] = asyncio.create_task(self._drive(job, self._drives.get(job_id)))
        except Unavailable as error:
            log.warning("jobs cannot be claimed yet", extra={"kind": self._kind.record_kind, "why": error.message})
            await asyncio.sleep(RETRY_S)
        except Exception:
            log.exception("claiming jobs failed", extra={"kind": self._kind.record_kind})
            await asyncio.sleep(RETRY_S)

    def _is_full(self) -> bool:
        limit = self._kind.max_concurrent
        return limit is not None and len(self._drives) >= limit

    async def _drive(self, job: Job, previous: asyncio.Task[None] | None) -> None:
        """Take steps with one job until it ends, its lease is lost, or the controller closes."""
        if previous is not None:
            # It lost its lease, and may not have noticed yet.
            await previous
        job_id = self._kind.job_id(job)
        pause = self._pauses[job_id]
        pause_s, is_held = 0.0, True
        while is_held and not self._is_closing:
            changed = await pause.wait(pause_s)
            try:
                after = await self._step(job, changed)
            except Unavailable as error:
                log.warning("a step must wait", extra={**self._names(job_id), "why": error.message})
                pause.add(changed)
                pause_s = RETRY_S
            except Exception:
                log.exception("a step failed", extra=self._names(job_id))
                pause.add(changed)
                pause_s = RETRY_S
            else:
                is_held = after is not None
                if after is not None:
                    job, pause_s = after, self._kind.pause_s(after)
        await self._release(job, is_held=is_held)

    async def _step(self, job: Job, changed: Collection[str]) -> Job | None:
        """Take one step, which may take as long as a node does to answer; the lease is extended meanwhile."""
        step = asyncio.create_task(asyncio.to_thread(self._kind.step, job, changed))
        while not (await asyncio.wait({step}, timeout=(self._kind.lease / 3).total_seconds()))[0]:
            await asyncio.to_thread(self._kind.extend_lease, job)
        return step.result()

    async def _release(self, job: Job, *, is_held: bool) -> None:
        job_id = self._kind.job_id(job)
        try:
            await asyncio.to_thread(self._kind.release, job, is_held=is_held)
        except TrainyardError:
            # Whoever claims the job after the lease has expired finds it as it is.
            log.warning("a job could not be released", exc_info=True, extra=self._names(job_id))
        if self._drives.get(job_id) is asyncio.current_task():
            # Otherwise the job was claimed again already, and the next drive waits for this one.
            del self._drives[job_id], self._pauses[job_id]
        self._look.set()

    def _names(self, job_id: ResourceId) -> dict[str, str]:
        return {"kind": self._kind.record_kind, "id": job_id}


class _Pause:
    """The pause between two steps with a job, and what changed during it."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._changed: set[str] = set()

    def cut_short(self, changed: str = "") -> None:
        """End the pause now; `changed` is the id of the record that changed, or empty."""
        self.add({changed} if changed else ())
        self._event.set()

    def add(self, changed: Collection[str]) -> None:
        """Pass these ids to the next step, without ending the pause."""
        self._changed.update(changed)

    async def wait(self, seconds: float) -> Collection[str]:
        """Return the ids that changed, when the pause is cut short or the time is over."""
        if seconds:
            await _wait(self._event, seconds)
        changed, self._changed = self._changed, set()
        self._event.clear()
        return changed


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Wait for an event, but no longer than so many seconds."""
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return

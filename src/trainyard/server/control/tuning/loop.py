"""Runs the work on tuning jobs: one task that takes them up, and one for each."""

import asyncio
import logging
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from trainyard.foundation.errors import TrainyardError, Unavailable
from trainyard.server.control.bell import Bell
from trainyard.server.control.tuning.contract import Advisor, Question
from trainyard.server.control.tuning.pace import Prepared
from trainyard.server.control.tuning.study import Study
from trainyard.server.control.tuning.work import Moved, TuningWork
from trainyard.server.records.contract import ResourceId

log = logging.getLogger(__name__)

IDLE = timedelta(seconds=1)  # between looks for tuning jobs that nobody rang for
ROUND_S = 1.0  # between two rounds on one for which nobody rings
FOLLOW_S = 0.1  # the same, while what its trials report decides whether they go on
AFTER_ERROR_S = 1.0

_ADVICE_THREADS = 2  # which wait for an answer; no thread that others need does


class TuningLoop:
    """Moves all tuning jobs of a yard for as long as `run` goes on. `close` lets every round come to its end.

    Changes of training jobs are heard from the records, creates and stops of tuning jobs from `bell`.
    """

    def __init__(self, work: TuningWork, advisor: Advisor, bell: Bell) -> None:
        self._work, self._advisor, self._bell = work, advisor, bell
        self._drives: dict[ResourceId, asyncio.Task[None]] = {}
        self._rings: dict[ResourceId, _Ring] = {}
        self._children: dict[str, _Ring] = {}  # by the ids of training jobs
        self._wakened = asyncio.Event()
        self._threads = ThreadPoolExecutor(_ADVICE_THREADS, thread_name_prefix="advice")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closing = False

    async def run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._bell.listen(self._hear)
        self._work.records.listen(self._hear_change)
        while not self._is_closing:
            await self._look_for_work()
            await _wait(self._wakened, IDLE.total_seconds())
            self._wakened.clear()
        await asyncio.gather(*self._drives.values())
        self._threads.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """Make `run` return soon, with no tuning job held. Trials go on."""
        self._is_closing = True
        self._wakened.set()
        for ring in self._rings.values():
            ring.wake()

    def _hear(self, changed: str) -> None:
        ring = self._rings.get(ResourceId(changed))
        if ring is not None:
            ring.hear(changed)
        elif changed not in self._children:
            self._wakened.set()

    def _hear_change(self, changed: ResourceId) -> None:
        """From any thread; most of what is changed in a yard is no trial."""
        ring, loop = self._children.get(changed), self._loop
        if ring is not None and loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(ring.hear, changed)

    async def _look_for_work(self) -> None:
        try:
            due = await asyncio.to_thread(self._work.due)
        except Exception:
            log.exception("looking for tuning jobs failed")
            await asyncio.sleep(AFTER_ERROR_S)
            return
        for found in due:
            if found not in self._drives and not self._is_closing:
                await self._take_up(found)

    async def _take_up(self, found: ResourceId) -> None:
        """Begin to work on a tuning job; one that cannot be read keeps no other from being worked on."""
        try:
            study = await asyncio.to_thread(self._work.take, found)
        except Exception:
            log.exception("a tuning job could not be taken up", extra={"id": found})
            return
        if study is not None:
            self._rings[found] = _Ring()
            self._drives[found] = asyncio.create_task(self._drive(study, self._rings[found]))

    async def _drive(self, study: Study, ring: "_Ring") -> None:
        """Work on one tuning job until it has ended, or is no longer held."""
        advice = _Advice(self._advisor, self._threads, ring)
        pause_s, is_held = 0.0, True
        while is_held and not self._is_closing:
            heard = await ring.wait(pause_s)
            advice.take_in(study)
            try:
                is_held = await asyncio.to_thread(self._work.round, study, heard)
            except Moved as error:
                log.warning("a tuning job is read again", extra={"id": study.id, "why": error.message})
                break
            except Unavailable as error:
                log.warning("work on a tuning job must wait", extra={"id": study.id, "why": error.message})
                pause_s = ring.keep(heard)
                continue
            except Exception:
                log.exception("work on a tuning job failed", extra={"id": study.id})
                pause_s = ring.keep(heard)
                continue
            self._follow(study, ring)
            if is_held:
                advice.see_to(study)
            pause_s = FOLLOW_S if study.is_pruned and study.rows else ROUND_S
        await self._let_go(study, is_held=is_held)

    def _follow(self, study: Study, ring: "_Ring") -> None:
        """Hear of every training job of a trial that goes on, and of no other."""
        running = {trial.job_id for trial in study.begun}
        for job_id in running - ring.followed:
            self._children[job_id] = ring
            ring.hear(job_id)  # it may have ended before it could be heard
        for job_id in ring.followed - running:
            self._children.pop(job_id, None)
        ring.followed = running

    async def _let_go(self, study: Study, *, is_held: bool) -> None:
        try:
            if is_held:
                await asyncio.to_thread(self._work.release, study)
        except TrainyardError:  # then it is taken up when the lease is over
            log.warning("a tuning job could not be let go", exc_info=True, extra={"id": study.id})
        for job_id in self._rings.pop(study.id).followed:
            self._children.pop(job_id, None)
        del self._drives[study.id]
        self._wakened.set()


class _Advice:
    """The question to the strategy that is under way for one tuning job, if any."""

    def __init__(self, advisor: Advisor, threads: ThreadPoolExecutor, ring: "_Ring") -> None:
        self._advisor, self._threads, self._ring = advisor, threads, ring
        self._asked: asyncio.Future[tuple[Prepared, float]] | None = None
        self._pauses_until = 0.0

    def see_to(self, study: Study) -> None:
        """Ask, if there is something to ask; the ring tells when the answer is there."""
        if self._asked is None and study.wants_advice() and time.monotonic() >= self._pauses_until:
            question, ended = study.question(), study.ended
            self._asked = asyncio.get_running_loop().run_in_executor(self._threads, self._ask, question, ended)
            self._asked.add_done_callback(lambda _: self._ring.wake())

    def take_in(self, study: Study) -> None:
        """Give the answer to the tuning job, if it is there."""
        if self._asked is None or not self._asked.done():
            return
        asked, self._asked = self._asked, None
        try:
            prepared, took_s = asked.result()
        except TrainyardError as error:
            log.warning("a strategy must be asked again", extra={"id": study.id, "why": error.message})
            self._pauses_until = time.monotonic() + AFTER_ERROR_S
            return
        study.prepared = prepared
        study.pace.answer_s.append(took_s)

    def _ask(self, question: Question, ended: int) -> tuple[Prepared, float]:
        begun = time.monotonic()
        suggestion = self._advisor.suggest(question)
        took_s = time.monotonic() - begun
        if suggestion is not None and suggestion.cpu_s is not None:
            # What counts is how long a free slot would wait, whose processor is free too. While trials have them all,
            # a question of low priority may take ten times as long.
            took_s = suggestion.cpu_s
        return Prepared(question.number, ended, suggestion), took_s


class _Ring:
    """Cuts short the pause between two rounds on a tuning job, and keeps what was heard meanwhile."""

    def __init__(self) -> None:
        self.followed: set[str] = set()
        self._heard: set[str] = set()
        self._event = asyncio.Event()

    def hear(self, changed: str) -> None:
        self._heard.add(changed)
        self._event.set()

    def wake(self) -> None:
        self._event.set()

    def keep(self, heard: Collection[str]) -> float:
        """Not to lose what was heard before a round that failed; returns how long to pause after it."""
        self._heard.update(heard)
        return AFTER_ERROR_S

    async def wait(self, seconds: float) -> Collection[str]:
        """What has changed since; returns at the first ring, or when the time is over."""
        if seconds:
            await _wait(self._event, seconds)
        heard, self._heard = self._heard, set()
        self._event.clear()
        return heard


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return

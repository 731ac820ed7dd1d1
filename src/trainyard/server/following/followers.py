"""Wakes those who follow a job when there is something to tell.

However many follow a job, one task watches it: it is loaded when the records say that it has changed, and the ends of
its logs are looked at 5 to 50 times a second. Followers at the same place share one read. Reads have threads of their
own, so that no number of followers keeps other calls from theirs.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from trainyard.foundation.errors import NotFound, TrainyardError, Unavailable
from trainyard.foundation.jobs import TrainingJob
from trainyard.server.following.place import Place
from trainyard.server.following.reading import Batch, Story, beat, place_before_last, read_on
from trainyard.server.jobs import job_of
from trainyard.server.records.contract import Records, Resource, ResourceId

BEAT_S = 15.0
QUICKEST_S, SLOWEST_S = 0.02, 0.2  # between two looks at the logs
RELOAD_S = 1.0  # after which a job is loaded again though nobody rang: another yard on the database may have moved it

_PATIENCE = 8  # the logs are looked at again after this part of the time for which nothing came
_THREADS = 2
_KEPT_READS = 8

T = TypeVar("T")

log = logging.getLogger(__name__)


class Followers:
    """All who follow jobs of a yard. Lives on one loop; only `hear` may be called from any thread."""

    def __init__(self, records: Records, jobs: Path) -> None:
        self._records, self._jobs = records, jobs
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="follow")
        self._subjects: dict[ResourceId, _Subject] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False
        records.listen(self.hear)

    async def follow(self, resource: Resource, place: Place, *, with_logs: bool) -> AsyncGenerator[bytes, None]:
        """Lines behind `place` as they come, until the job has ended, is deleted, or the yard closes."""
        subject, told_at = self._joined(resource), time.monotonic()
        try:
            while not self._is_closed:
                turn = subject.turn
                batch = await subject.read(place, with_logs=with_logs)
                place = batch.place
                if batch.lines:
                    yield batch.lines
                    told_at = time.monotonic()
                if batch.is_last or subject.is_gone:
                    return
                if not batch.lines and not await subject.has_moved(since=turn, until=told_at + BEAT_S):
                    yield beat(place)
                    told_at = time.monotonic()
        finally:
            self._leave(subject)

    async def place_before_last(self, resource: Resource, count: int) -> Place:
        """Where to begin so that of each instance only so many of the lines it has written so far are told."""
        story = Story(resource.id, job_of(resource), self._jobs)
        return await asyncio.get_running_loop().run_in_executor(self._threads, place_before_last, story, count)

    def hear(self, job_id: ResourceId) -> None:
        """Somebody changed a resource, which may be a job that is followed."""
        loop = self._loop
        if loop is not None and job_id in self._subjects and not loop.is_closed():
            loop.call_soon_threadsafe(self._ring, job_id)

    def close(self) -> None:
        """Let every follower end soon, as one who may come back."""
        self._is_closed = True
        for subject in self._subjects.values():
            subject.tick()

    def _joined(self, resource: Resource) -> "_Subject":
        self._loop = asyncio.get_running_loop()
        subject = self._subjects.get(resource.id)
        if subject is None:
            story = Story(resource.id, job_of(resource), self._jobs)
            subject = self._subjects[resource.id] = _Subject(story, self._records, self._threads)
        subject.followers += 1
        return subject

    def _leave(self, subject: "_Subject") -> None:
        subject.followers -= 1
        if not subject.followers:
            del self._subjects[subject.story.id]
            subject.close()

    def _ring(self, job_id: ResourceId) -> None:
        if job_id in self._subjects:
            self._subjects[job_id].ring()


class _Subject:
    """A job that somebody follows. `turn` counts how often there was something new."""

    def __init__(self, story: Story, records: Records, threads: ThreadPoolExecutor) -> None:
        self.story, self.turn, self.followers, self.is_gone = story, 0, 0, False
        self._records, self._threads = records, threads
        self._reads: dict[tuple[Place, bool], asyncio.Task[Batch]] = {}
        self._moved, self._rung = asyncio.Event(), asyncio.Event()
        self._rung.set()  # for what has changed since the job was loaded
        self._watching = asyncio.create_task(self._watch())

    async def read(self, place: Place, *, with_logs: bool) -> Batch:
        """What there is behind a place, read once in a turn for all who ask."""
        key = place, with_logs
        reading = self._reads.get(key)
        if reading is None:
            while len(self._reads) >= _KEPT_READS:
                del self._reads[next(iter(self._reads))]
            story = self.story
            reading = asyncio.create_task(self._in_thread(lambda: _read(story, place, with_logs=with_logs)))
            self._reads[key] = reading
        return await asyncio.shield(reading)

    async def has_moved(self, *, since: int, until: float) -> bool:
        """Whether something new came before this time.

        It may be none for who follows without logs, who could otherwise wait for ever.
        """
        rest_s = until - time.monotonic()
        return rest_s > 0 and (self.turn != since or await _is_set(self._moved, rest_s))

    def ring(self) -> None:
        self._rung.set()

    def tick(self) -> None:
        self.turn += 1
        self._reads.clear()
        self._moved.set()
        self._moved = asyncio.Event()

    def close(self) -> None:
        self._watching.cancel()

    async def _watch(self) -> None:
        ends, silent_s, loaded_at = None, 0.0, time.monotonic()
        while not self.is_gone:
            pause_s = min(SLOWEST_S, max(QUICKEST_S, silent_s / _PATIENCE))
            is_rung = await _is_set(self._rung, pause_s)
            self._rung.clear()
            before = self.turn
            if is_rung or time.monotonic() - loaded_at > RELOAD_S:
                await self._reload()
                loaded_at = time.monotonic()
            grown = await self._in_thread(lambda: _ends(self.story))
            if grown != ends:
                ends = grown
                self.tick()
            silent_s = silent_s + pause_s if self.turn == before else 0.0

    async def _reload(self) -> None:
        try:
            resource = await self._in_thread(lambda: self._records.load_by_id(self.story.id))
        except NotFound:
            self.is_gone = True
            self.tick()
        except TrainyardError as error:
            log.warning("a followed job cannot be read", extra={"id": self.story.id, "why": error.message})
        else:
            job, known = job_of(resource), self.story.job
            if _told(job) != _told(known):
                self.story = Story(self.story.id, job, self.story.jobs)
                self.tick()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _read(story: Story, place: Place, *, with_logs: bool) -> Batch:
    try:
        return read_on(story, place, with_logs=with_logs)
    except Unavailable:  # a segment was dropped while it was read; the next look finds what is left
        return Batch(b"", place)


def _told(job: TrainingJob) -> tuple[int, int, int]:
    """What of a job only ever grows, and is told."""
    return len(job.transitions), len(job.notes), len(job.attempts)


def _ends(story: Story) -> list[int | None]:
    """Where the logs of the last attempt end."""
    if not story.job.attempts:
        return []
    try:
        summaries = [reader.summary() for reader in story.logs_of(story.job.attempts[-1])]
    except Unavailable:
        return []
    return [summary.end if summary else None for summary in summaries]


async def _is_set(event: asyncio.Event, timeout_s: float) -> bool:
    """Whether the event came before the time was over."""
    try:
        await asyncio.wait_for(event.wait(), timeout_s)
    except TimeoutError:
        return False
    return True

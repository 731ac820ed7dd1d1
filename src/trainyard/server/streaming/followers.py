"""Wakes the clients that follow a job when there is something new.

One task watches a job, however many clients follow it. It loads the job when the records report a change, and polls the
ends of its logs 5 to 50 times a second. Followers at the same cursor share one read. Reads have their own threads, so
that no number of followers delays other calls. The points of metrics have no end that could be watched as cheaply, so
their followers look for new ones.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from trainyard.foundation.errors import NotFound, TrainyardError, Unavailable
from trainyard.foundation.jobs.instance_job import InstanceJob
from trainyard.server.jobs.instance_job_kinds import instance_job_of
from trainyard.server.records.contract import Records, Resource, ResourceId
from trainyard.server.streaming.batches import (
    Batch,
    FollowCursor,
    JobSnapshot,
    cursor_before_last,
    heartbeat_line,
    read_batch,
)
from trainyard.server.streaming.metric_points import MetricCursor, PointLine, beat_line, end_line, read_points

HEARTBEAT_S = 15.0
# The time between two polls of the logs.
MIN_POLL_S, MAX_POLL_S = 0.02, 0.2
# A job is loaded again after this time without a notification, because another yard may have changed it.
RELOAD_S = 1.0

# The logs are polled again after this fraction (one eighth) of the time since the last change.
_POLL_BACKOFF = 8
_THREADS = 2
# The time between two looks for new points, or longer if a look takes more than one part in two hundred of it.
_POINTS_POLL_S, _MAX_POINTS_POLL_S, _POINTS_POLL_SHARE = 0.1, 2.0, 200
# How long a thread reads points before it sends what it has.
_TAKE_S = 0.02
_CACHED_READS = 8

T = TypeVar("T")

log = logging.getLogger(__name__)


class Followers:
    """All clients that follow jobs of a yard. Lives on one loop; only `notify` may be called from any thread."""

    def __init__(self, records: Records, jobs: Path) -> None:
        self._records, self._jobs = records, jobs
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="follow")
        self._watches: dict[ResourceId, _JobWatch] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False
        records.listen(self.notify)

    async def follow(self, resource: Resource, cursor: FollowCursor, *, with_logs: bool) -> AsyncGenerator[bytes, None]:
        """Yield lines after `cursor` as they come, until the job ends or is deleted, or the yard closes."""
        watch, sent_at = self._join(resource, with_logs=with_logs), time.monotonic()
        try:
            while not self._is_closed:
                version = watch.version
                batch = await watch.read(cursor, with_logs=with_logs)
                cursor = batch.cursor
                if batch.lines:
                    yield batch.lines
                    sent_at = time.monotonic()
                if batch.is_last or watch.is_gone:
                    return
                if not batch.lines and not await watch.has_changed(since=version, until=sent_at + HEARTBEAT_S):
                    yield heartbeat_line(cursor)
                    sent_at = time.monotonic()
        finally:
            self._leave(watch, with_logs=with_logs)

    async def follow_metrics(
        self, resource: Resource, cursor: MetricCursor, *, max_points: int | None
    ) -> AsyncGenerator[bytes, None]:
        """Yield the points of metrics after `cursor` as they come, until the job ends or is deleted."""
        watch, sent_at = self._join(resource, with_logs=False), time.monotonic()
        try:
            while not self._is_closed and not watch.is_gone:
                snapshot, began_at = watch.snapshot, time.monotonic()
                lines = read_points(snapshot, cursor, max_points=max_points)
                while found := await self._in_thread(partial(_take_lines, lines)):
                    cursor, sent_at = found[-1].cursor, time.monotonic()
                    yield b"".join(each.line for each in found)
                if snapshot.job.is_final:
                    yield end_line(cursor, snapshot.job)
                    return
                now = time.monotonic()
                if now - sent_at > HEARTBEAT_S:
                    sent_at = now
                    yield beat_line(cursor)
                await asyncio.sleep(min(_MAX_POINTS_POLL_S, max(_POINTS_POLL_S, (now - began_at) * _POINTS_POLL_SHARE)))
        finally:
            self._leave(watch, with_logs=False)

    async def cursor_before_last(self, resource: Resource, count: int) -> FollowCursor:
        """Return the cursor before the last `count` lines that each instance has written so far."""
        snapshot = JobSnapshot(resource.id, instance_job_of(resource), self._jobs)
        return await self._in_thread(lambda: cursor_before_last(snapshot, count))

    def notify(self, job_id: ResourceId) -> None:
        """Handle a change of a resource, which may be a followed job."""
        loop = self._loop
        if loop is not None and job_id in self._watches and not loop.is_closed():
            loop.call_soon_threadsafe(self._wake, job_id)

    def close(self) -> None:
        """End every stream soon. Clients may reconnect with their cursor."""
        self._is_closed = True
        for watch in self._watches.values():
            watch.advance()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _join(self, resource: Resource, *, with_logs: bool) -> "_JobWatch":
        self._loop = asyncio.get_running_loop()
        watch = self._watches.get(resource.id)
        if watch is None:
            snapshot = JobSnapshot(resource.id, instance_job_of(resource), self._jobs)
            watch = self._watches[resource.id] = _JobWatch(snapshot, self._records, self._threads)
        watch.followers += 1
        if with_logs:
            watch.log_followers += 1
            watch.wake()
        return watch

    def _leave(self, watch: "_JobWatch", *, with_logs: bool) -> None:
        watch.followers -= 1
        watch.log_followers -= with_logs
        if not watch.followers:
            del self._watches[watch.snapshot.id]
            watch.close()

    def _wake(self, job_id: ResourceId) -> None:
        if job_id in self._watches:
            self._watches[job_id].wake()


class _JobWatch:
    """Watches one followed job. `version` counts its changes."""

    def __init__(self, snapshot: JobSnapshot, records: Records, threads: ThreadPoolExecutor) -> None:
        self.snapshot, self.version, self.is_gone = snapshot, 0, False
        # Nobody looks at the logs for followers of statuses and metrics.
        self.followers = self.log_followers = 0
        self._records, self._threads = records, threads
        self._reads: dict[tuple[FollowCursor, bool], asyncio.Task[Batch]] = {}
        self._change_event, self._wake_event = asyncio.Event(), asyncio.Event()
        # The job may have changed since it was loaded.
        self._wake_event.set()
        self._task = asyncio.create_task(self._watch())

    async def read(self, cursor: FollowCursor, *, with_logs: bool) -> Batch:
        """Return what follows a cursor. All callers with the same cursor share one read per version."""
        key = cursor, with_logs
        reading = self._reads.get(key)
        if reading is None:
            while len(self._reads) >= _CACHED_READS:
                del self._reads[next(iter(self._reads))]
            snapshot = self.snapshot
            reading = asyncio.create_task(self._in_thread(lambda: _read(snapshot, cursor, with_logs=with_logs)))
            self._reads[key] = reading
        return await asyncio.shield(reading)

    async def has_changed(self, *, since: int, until: float) -> bool:
        """Wait for a change until this time, and return whether one came.

        Without the limit, a follower without logs would never get a heartbeat while a job only writes logs.
        """
        rest_s = until - time.monotonic()
        return rest_s > 0 and (self.version != since or await _is_set(self._change_event, rest_s))

    def wake(self) -> None:
        self._wake_event.set()

    def advance(self) -> None:
        self.version += 1
        self._reads.clear()
        self._change_event.set()
        self._change_event = asyncio.Event()

    def close(self) -> None:
        self._task.cancel()

    async def _watch(self) -> None:
        ends, silent_s, loaded_at = None, 0.0, time.monotonic()
        while not self.is_gone:
            pause_s = min(MAX_POLL_S, max(MIN_POLL_S, silent_s / _POLL_BACKOFF)) if self.log_followers else RELOAD_S
            is_woken = await _is_set(self._wake_event, pause_s)
            self._wake_event.clear()
            before = self.version
            if is_woken or time.monotonic() - loaded_at > RELOAD_S:
                await self._reload()
                loaded_at = time.monotonic()
            if not self.log_followers:
                continue
            grown = await self._in_thread(lambda: _log_ends(self.snapshot))
            if grown != ends:
                ends = grown
                self.advance()
            silent_s = silent_s + pause_s if self.version == before else 0.0

    async def _reload(self) -> None:
        try:
            resource = await self._in_thread(lambda: self._records.load_by_id(self.snapshot.id))
        except NotFound:
            self.is_gone = True
            self.advance()
        except TrainyardError as error:
            log.warning("a followed job cannot be read", extra={"id": self.snapshot.id, "why": error.message})
        else:
            job, known = instance_job_of(resource), self.snapshot.job
            if _progress(job) != _progress(known):
                self.snapshot = JobSnapshot(self.snapshot.id, job, self.snapshot.jobs)
                self.advance()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _take_lines(lines: Iterator[PointLine]) -> list[PointLine]:
    """Take so many lines that other work in the thread need not wait for long; none at the end."""
    taken, until = list[PointLine](), time.monotonic() + _TAKE_S
    for line in lines:
        taken.append(line)
        if time.monotonic() > until:
            break
    return taken


def _read(snapshot: JobSnapshot, cursor: FollowCursor, *, with_logs: bool) -> Batch:
    try:
        return read_batch(snapshot, cursor, with_logs=with_logs)
    except Unavailable:
        # A log segment was dropped while it was read. The next poll finds the rest.
        return Batch(b"", cursor)


def _progress(job: InstanceJob) -> tuple[int, int, int]:
    """Return the counts of everything that is sent to followers and only grows."""
    return len(job.transitions), len(job.notes), len(job.attempts)


def _log_ends(snapshot: JobSnapshot) -> list[int | None]:
    """Return the ends of the logs of the last attempt."""
    if not snapshot.job.attempts:
        return []
    try:
        summaries = [reader.summary() for reader in snapshot.logs_of(snapshot.job.attempts[-1])]
    except Unavailable:
        return []
    return [summary.end if summary else None for summary in summaries]


async def _is_set(event: asyncio.Event, timeout_s: float) -> bool:
    """Wait for the event, and return whether it came before the timeout."""
    try:
        await asyncio.wait_for(event.wait(), timeout_s)
    except TimeoutError:
        return False
    return True

"""Batches of events of a job: statuses, notes and log lines as JSON lines, read from a cursor on.

The `ended` event is sent only when the logs have been read to their end after the job became final, so nothing can
follow it.
"""

import heapq
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Self

from trainyard.formats.logs import LogEvent, LogReader
from trainyard.foundation.clock import to_micros
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.jobs.attempts import Attempt
from trainyard.foundation.jobs.instance_job import InstanceJob
from trainyard.foundation.jobs.status import PRIMARY, Transition
from trainyard.link.folders import AttemptRef, InstanceRef
from trainyard.server.records.contract import ResourceId

MAX_LINES = 1000
# The limit of log text in one batch. A batch has at least one line, however long.
MAX_BYTES = 128 * 1024

# The end of a job's id is random, so this many characters tell a job from a deleted one with the same name.
_ID_LENGTH = 12
_CURSOR = re.compile(r"(?P<job>[0-9a-f]{12})(?P<numbers>(?:\.[0-9]{1,19}){3,})")


@dataclass(frozen=True, slots=True)
class FollowCursor:
    """How much of a job has been sent: the number of statuses and notes, and the logs of all earlier attempts.

    `offsets` has the position in the log of each instance of this attempt, in the order of the instances. As a string,
    the cursor lets another follower continue.
    """

    job: str
    steps: int = 0
    notes: int = 0
    attempt: int = 1
    offsets: tuple[int, ...] = ()

    @classmethod
    def start(cls, job_id: ResourceId) -> Self:
        """Return the cursor before the first event of a job."""
        return cls(job_id[-_ID_LENGTH:])

    @classmethod
    def parse(cls, cursor: str, job_id: ResourceId) -> Self:
        """Parse a cursor. InvalidRequest when it is malformed or belongs to another job."""
        found = _CURSOR.fullmatch(cursor)
        if found is None:
            raise InvalidRequest("The cursor is not one of FollowJob's; give the cursor of the last line, or none.")
        if found["job"] != job_id[-_ID_LENGTH:]:
            raise InvalidRequest(
                "The cursor belongs to another job, perhaps a deleted one with the same name; follow without it."
            )
        steps, notes, attempt, *offsets = map(int, found["numbers"][1:].split("."))
        return cls(found["job"], steps, notes, attempt, tuple(offsets))

    def __str__(self) -> str:
        return ".".join(map(str, (self.job, self.steps, self.notes, self.attempt, *self.offsets)))


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """A job at one moment, and the folder where its instances keep their logs."""

    id: ResourceId
    job: InstanceJob
    jobs: Path

    def logs_of(self, attempt: Attempt) -> list[LogReader]:
        ref = AttemptRef(self.id, attempt.number)
        return [LogReader(InstanceRef(ref, each.name).folder(self.jobs).logs) for each in attempt.instances]


@dataclass(frozen=True, slots=True)
class Batch:
    """Lines, the cursor after them, and whether they are the last lines of the job."""

    lines: bytes
    cursor: FollowCursor
    is_last: bool = False


def read_batch(snapshot: JobSnapshot, cursor: FollowCursor, *, with_logs: bool) -> Batch:
    """Return the next lines after a cursor. The batch is empty when there is nothing new."""
    builder = _BatchBuilder(snapshot.job, cursor)
    builder.add_first_status_and_notes()
    if with_logs and not builder.add_logs(snapshot):
        return builder.build()
    builder.add_statuses()
    if snapshot.job.is_final:
        builder.add_end()
    return builder.build(is_last=snapshot.job.is_final)


def cursor_before_last(snapshot: JobSnapshot, count: int) -> FollowCursor:
    """Return the cursor before the last lines of each instance in the last attempt, and before all statuses."""
    cursor = FollowCursor.start(snapshot.id)
    if not snapshot.job.attempts:
        return cursor
    last = snapshot.job.attempts[-1]
    offsets = tuple(_offset_of_last(reader, count) for reader in snapshot.logs_of(last))
    return replace(cursor, attempt=last.number, offsets=offsets)


def heartbeat_line(cursor: FollowCursor) -> bytes:
    """Return the line that shows each side that the other is still there."""
    return _line("beat", cursor)


class _BatchBuilder:
    """Collects lines, and advances the cursor with each."""

    def __init__(self, job: InstanceJob, cursor: FollowCursor) -> None:
        self._job, self._cursor = job, cursor
        self._lines: list[bytes] = []

    def build(self, *, is_last: bool = False) -> Batch:
        return Batch(b"".join(self._lines), self._cursor, is_last)

    def add_first_status_and_notes(self) -> None:
        """Add the first status of the job, and its notes, which have no time."""
        if not self._cursor.steps:
            self._add_status(self._job.transitions[0])
        for note in self._job.notes[self._cursor.notes :]:
            self._cursor = replace(self._cursor, notes=self._cursor.notes + 1)
            self._add("note", text=note)

    def add_statuses(self, until_ms: float = math.inf) -> None:
        """Add the statuses up to a time, except a final one, which `add_end` adds."""
        steps = self._job.transitions[:-1] if self._job.is_final else self._job.transitions
        for step in steps[self._cursor.steps :]:
            if _at_ms(step) > until_ms:
                return
            self._add_status(step)

    def add_logs(self, snapshot: JobSnapshot) -> bool:
        """Add log lines, and return whether the logs of all attempts have been added to their end."""
        for attempt in self._job.attempts:
            if attempt.number < self._cursor.attempt:
                continue
            # An attempt starts only after the logs of the one before it have ended.
            if attempt.number > self._cursor.attempt:
                self._cursor = replace(self._cursor, attempt=attempt.number, offsets=())
            if not self._add_log(snapshot, attempt):
                return False
        return True

    def add_end(self) -> None:
        job = self._job
        for step in job.transitions[self._cursor.steps :]:
            self._add_status(step)
        reason = {"reason": job.failure} if job.failure else {}
        self._add("ended", status=job.status, secondary=job.secondary, **reason)

    def _add_status(self, step: Transition) -> None:
        self._cursor = replace(self._cursor, steps=self._cursor.steps + 1)
        words = {"status": PRIMARY[step.status], "secondary": step.status, "message": step.message}
        self._add("status", **words, at_ms=_at_ms(step))

    def _add_log(self, snapshot: JobSnapshot, attempt: Attempt) -> bool:
        readers = snapshot.logs_of(attempt)
        offsets = [*self._cursor.offsets, *[0] * len(readers)][: len(readers)]
        flows = (_numbered_events(number, reader, offsets[number]) for number, reader in enumerate(readers))
        size = count = 0
        for number, event in heapq.merge(*flows, key=_time):
            size, count = size + len(event.message), count + 1
            if count > 1 and (count > MAX_LINES or size > MAX_BYTES):
                return False
            self.add_statuses(event.ms)
            # Not the offset of the next line, which is not known yet, but an offset shortly before it.
            offsets[number] = event.offset + max(1, len(event.message))
            self._cursor = replace(self._cursor, offsets=tuple(offsets))
            name = attempt.instances[number].name
            self._add("log", instance=name, attempt=attempt.number, at_ms=event.ms, text=event.text)
        return True

    def _add(self, kind: str, **values: Any) -> None:
        self._lines.append(_line(kind, self._cursor, **values))


def _at_ms(step: Transition) -> int:
    return to_micros(step.started_at) // 1000


def _offset_of_last(reader: LogReader, count: int) -> int:
    offset = reader.backward(max_events=1).after
    for event in islice(reader.scan(descending=True, offset=offset), count):
        offset = event.offset
    return offset


def _numbered_events(number: int, reader: LogReader, offset: int) -> Iterator[tuple[int, LogEvent]]:
    for event in reader.scan(offset=offset):
        yield number, event


def _time(numbered: tuple[int, LogEvent]) -> int:
    return numbered[1].peak_ms


def _line(kind: str, cursor: FollowCursor, **values: Any) -> bytes:
    # ASCII only, so that no reader takes a character inside a line for the end of the line.
    return json.dumps({"kind": kind, **values, "cursor": str(cursor)}, separators=(",", ":")).encode() + b"\n"

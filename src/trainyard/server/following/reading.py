"""What there is to tell of a job behind a place, as lines of JSON.

The end is told when the logs have been read to their end after the job was found to be final: nothing can follow it.
"""

import heapq
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from trainyard.formats.logs import LogEvent, LogReader
from trainyard.foundation.clock import to_micros
from trainyard.foundation.jobs import PRIMARY, Attempt, TrainingJob, Transition
from trainyard.link.folders import AttemptRef, InstanceRef
from trainyard.server.following.place import Place
from trainyard.server.records.contract import ResourceId

MAX_LINES = 1000
MAX_BYTES = 128 * 1024  # of log text in one batch; one line at least is taken, however long


@dataclass(frozen=True, slots=True)
class Story:
    """A job as it was at one moment, and where its instances keep their logs."""

    id: ResourceId
    job: TrainingJob
    jobs: Path

    def logs_of(self, attempt: Attempt) -> list[LogReader]:
        ref = AttemptRef(self.id, attempt.number)
        return [LogReader(InstanceRef(ref, each.name).folder(self.jobs).logs) for each in attempt.instances]


@dataclass(frozen=True, slots=True)
class Batch:
    """Lines, the place behind them, and whether they are the last that there will ever be."""

    lines: bytes
    place: Place
    is_last: bool = False


def read_on(story: Story, place: Place, *, with_logs: bool) -> Batch:
    """The next lines behind a place; empty when there is nothing new."""
    telling = _Telling(story.job, place)
    telling.tell_first()
    if with_logs and not telling.tell_logs(story):
        return telling.batch()
    telling.tell_steps()
    if story.job.is_final:
        telling.tell_end()
    return telling.batch(is_last=story.job.is_final)


def place_before_last(story: Story, count: int) -> Place:
    """Where the last lines of each instance begin, in the last attempt; statuses and notes begin with the first."""
    place = Place.before(story.id)
    if not story.job.attempts:
        return place
    last = story.job.attempts[-1]
    offsets = tuple(_offset_of_last(reader, count) for reader in story.logs_of(last))
    return replace(place, attempt=last.number, offsets=offsets)


def beat(place: Place) -> bytes:
    """The line by which both sides know that the other is there."""
    return _line("beat", place)


class _Telling:
    """Lines on their way, and the place behind the last of them."""

    def __init__(self, job: TrainingJob, place: Place) -> None:
        self._job, self._place = job, place
        self._lines: list[bytes] = []

    def batch(self, *, is_last: bool = False) -> Batch:
        return Batch(b"".join(self._lines), self._place, is_last)

    def tell_first(self) -> None:
        """The status that a job begins with, and notes, of which nobody knows the time."""
        if not self._place.steps:
            self._tell_step(self._job.transitions[0])
        for note in self._job.notes[self._place.notes :]:
            self._place = replace(self._place, notes=self._place.notes + 1)
            self._tell("note", text=note)

    def tell_steps(self, until_ms: float = math.inf) -> None:
        """The statuses up to a moment, less a final one, which is told with the end."""
        steps = self._job.transitions[:-1] if self._job.is_final else self._job.transitions
        for step in steps[self._place.steps :]:
            if _at_ms(step) > until_ms:
                return
            self._tell_step(step)

    def tell_logs(self, story: Story) -> bool:
        """Whether the logs of all attempts have been told to their end."""
        for attempt in self._job.attempts:
            if attempt.number < self._place.attempt:
                continue
            if attempt.number > self._place.attempt:  # it began after the logs of the one before had their end
                self._place = replace(self._place, attempt=attempt.number, offsets=())
            if not self._tell_log(story, attempt):
                return False
        return True

    def tell_end(self) -> None:
        job = self._job
        for step in job.transitions[self._place.steps :]:
            self._tell_step(step)
        reason = {"reason": job.failure} if job.failure else {}
        self._tell("ended", status=job.status, secondary=job.secondary, **reason)

    def _tell_step(self, step: Transition) -> None:
        self._place = replace(self._place, steps=self._place.steps + 1)
        words = {"status": PRIMARY[step.status], "secondary": step.status, "message": step.message}
        self._tell("status", **words, at_ms=_at_ms(step))

    def _tell_log(self, story: Story, attempt: Attempt) -> bool:
        readers = story.logs_of(attempt)
        offsets = [*self._place.offsets, *[0] * len(readers)][: len(readers)]
        flows = (_flow(number, reader, offsets[number]) for number, reader in enumerate(readers))
        size = count = 0
        for number, event in heapq.merge(*flows, key=_time):
            size, count = size + len(event.message), count + 1
            if count > 1 and (count > MAX_LINES or size > MAX_BYTES):
                return False
            self.tell_steps(event.ms)
            # Not the offset of the next line, which is not known yet, but one behind which that line begins.
            offsets[number] = event.offset + max(1, len(event.message))
            self._place = replace(self._place, offsets=tuple(offsets))
            name = attempt.instances[number].name
            self._tell("log", instance=name, attempt=attempt.number, at_ms=event.ms, text=event.text)
        return True

    def _tell(self, kind: str, **values: Any) -> None:
        self._lines.append(_line(kind, self._place, **values))


def _at_ms(step: Transition) -> int:
    return to_micros(step.started_at) // 1000


def _offset_of_last(reader: LogReader, count: int) -> int:
    offset = reader.backward(max_events=1).after
    for event in islice(reader.scan(descending=True, offset=offset), count):
        offset = event.offset
    return offset


def _flow(number: int, reader: LogReader, offset: int) -> Iterator[tuple[int, LogEvent]]:
    for event in reader.scan(offset=offset):
        yield number, event


def _time(found: tuple[int, LogEvent]) -> int:
    return found[1].peak_ms


def _line(kind: str, place: Place, **values: Any) -> bytes:
    # In ASCII, so that no character inside a line looks like the end of one to anybody.
    return json.dumps({"kind": kind, **values, "cursor": str(place)}, separators=(",", ":")).encode() + b"\n"

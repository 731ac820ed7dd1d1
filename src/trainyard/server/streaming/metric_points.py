"""Reads the points of a job's metrics from a cursor on, as JSON lines: what was recorded, then what comes."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

from trainyard.formats.downsampling import find_extremes
from trainyard.formats.metrics import PointsFile, series_file
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.jobs.attempts import Attempt
from trainyard.foundation.jobs.instance_job import InstanceJob
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.link.folders import AttemptRef, InstanceRef
from trainyard.server.records.contract import ResourceId
from trainyard.server.streaming.batches import JobSnapshot

_BATCH_POINTS = 4096
# The end of a job's id is random, so this many characters tell a job from a deleted one with the same name.
_ID_LENGTH = 12
_CURSOR = re.compile(r"(?P<job>[0-9a-f]{12})(?P<numbers>(?:\.[0-9]{1,19})+)")


@dataclass(frozen=True, slots=True)
class MetricCursor:
    """How many points of a job have been sent: all of earlier attempts, and `counts` of this one.

    The counts are those of each metric of the first instance, in the order of their definitions, then of the next.
    """

    job: str
    attempt: int = 0
    counts: tuple[int, ...] = ()

    @classmethod
    def start(cls, job_id: ResourceId) -> Self:
        """Return the cursor before the first point of a job."""
        return cls(job_id[-_ID_LENGTH:])

    @classmethod
    def parse(cls, cursor: str, job_id: ResourceId) -> Self:
        """Parse a cursor. InvalidRequest when it is malformed or belongs to another job."""
        found = _CURSOR.fullmatch(cursor)
        if found is None:
            raise InvalidRequest("The cursor is not one of FollowMetrics; give the cursor of the last line, or none.")
        if found["job"] != job_id[-_ID_LENGTH:]:
            raise InvalidRequest(
                "The cursor belongs to another job, perhaps a deleted one with the same name; follow without it."
            )
        attempt, *counts = map(int, found["numbers"][1:].split("."))
        return cls(found["job"], attempt, tuple(counts))

    def __str__(self) -> str:
        return ".".join(map(str, (self.job, self.attempt, *self.counts)))


@dataclass(frozen=True, slots=True)
class PointLine:
    """A line with points, and the cursor after it."""

    line: bytes
    cursor: MetricCursor


def metric_names(job: InstanceJob) -> list[str]:
    """Return the metrics that a job can have. Those of a processing job are not read from its log."""
    if not isinstance(job, TrainingJob):
        return []
    return list(dict.fromkeys(each.name for each in job.plan.metrics))


def read_points(snapshot: JobSnapshot, cursor: MetricCursor, *, max_points: int | None) -> Iterator[PointLine]:
    """Yield the points after a cursor. With `max_points`, extremes stand for the rest if a metric has more new ones."""
    names = metric_names(snapshot.job)
    waiting = [_InstancePoints.of(snapshot, attempt, cursor, names) for attempt in snapshot.job.attempts]
    parts = {
        name: _part(sum(series.new for each in waiting for series in each if series.metric == name), max_points)
        for name in names
    }
    for attempt, all_series in zip(snapshot.job.attempts, waiting, strict=True):
        if attempt.number > cursor.attempt:
            cursor = replace(cursor, attempt=attempt.number, counts=())
        if len(cursor.counts) < len(all_series):
            cursor = replace(cursor, counts=(*cursor.counts, *[0] * (len(all_series) - len(cursor.counts))))
        for place, series in enumerate(all_series):
            yield from _lines(series, cursor, place=place, part=parts[series.metric])
            if series.new:
                cursor = _advance(cursor, place, series.first + series.new)


def end_line(cursor: MetricCursor, job: InstanceJob) -> bytes:
    """Return the last line of a job that has ended."""
    return _encode({"kind": "ended", "status": job.status, "cursor": str(cursor)})


def beat_line(cursor: MetricCursor) -> bytes:
    """Return the line that shows each side that the other is still there."""
    return _encode({"kind": "beat", "cursor": str(cursor)})


@dataclass(frozen=True, slots=True)
class _InstancePoints:
    """The points that one instance recorded of a metric in one attempt: `new` ones from number `first` on."""

    metric: str
    instance: str
    attempt: int
    file: PointsFile
    first: int
    new: int

    @classmethod
    def of(
        cls, snapshot: JobSnapshot, attempt: Attempt, cursor: MetricCursor, names: list[str]
    ) -> list["_InstancePoints"]:
        """Return all series of an attempt; none for an attempt before the cursor."""
        if attempt.number < cursor.attempt:
            return []
        counts = iter(cursor.counts if attempt.number == cursor.attempt else ())
        found = []
        for instance in attempt.instances:
            folder = InstanceRef(AttemptRef(snapshot.id, attempt.number), instance.name).folder(snapshot.jobs)
            for name in names:
                file, first = PointsFile(series_file(folder.metrics, name)), next(counts, 0)
                found.append(cls(name, instance.name, attempt.number, file, first, max(0, file.count() - first)))
        return found


def _part(count: int, max_points: int | None) -> int:
    """Return how many points two extremes stand for."""
    return 1 if max_points is None else max(1, -(-count // (max_points // 2)))


def _lines(series: _InstancePoints, cursor: MetricCursor, *, place: int, part: int) -> Iterator[PointLine]:
    size = part * max(1, _BATCH_POINTS // part)
    first, stop = series.first, series.first + series.new
    while first < stop and (points := series.file.tail(first, limit=min(size, stop - first))).micros:
        values = [total / count for total, count in zip(points.sums, points.counts, strict=True)]
        chosen = list(find_extremes(values, part)) if part > 2 else list(range(len(values)))
        line: dict[str, Any] = {
            "kind": "points",
            "metric": series.metric,
            "instance": series.instance,
            "attempt": series.attempt,
            "numbers": [first + number for number in chosen],
            "at_us": [points.micros[number] for number in chosen],
            "values": [values[number] for number in chosen],
        }
        first += len(values)
        after = _advance(cursor, place, first)
        yield PointLine(_encode(line | {"cursor": str(after)}), after)


def _advance(cursor: MetricCursor, place: int, count: int) -> MetricCursor:
    return replace(cursor, counts=(*cursor.counts[:place], count, *cursor.counts[place + 1 :]))


def _encode(line: dict[str, Any]) -> bytes:
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"

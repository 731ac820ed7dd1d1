"""ReadMetric and FollowMetrics: the points of metrics, which CloudWatch's operations only return as statistics."""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from trainyard.formats.downsampling import find_extremes
from trainyard.formats.metrics import Points, PointsFile, series_file
from trainyard.foundation.clock import to_micros
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.link.folders import AttemptRef, InstanceRef
from trainyard.server.jobs.training import KIND, job_of
from trainyard.server.records.contract import Resource
from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.visibility import load_visible
from trainyard.server.streaming import MetricCursor

_BATCH_POINTS = 4096


async def read_metric(call: Call, shape: Shape) -> Shape:
    """Stream the points of a metric, attempt by attempt and instance by instance."""
    resource = await asyncio.to_thread(load_visible, call, KIND, shape["TrainingJobName"])
    start_us, end_us = (_micros(shape.get(name)) for name in ("StartTime", "EndTime"))
    series = [
        _StreamedSeries.between(start_us, end_us, *found)
        for found in _files(call, resource, job_of(resource), shape["MetricName"])
    ]
    return {"ContentType": "application/x-ndjson", "Points": _stream(_lines(series, shape.get("MaxPoints")))}


async def follow_metrics(call: Call, shape: Shape) -> Shape:
    """Stream the points of all metrics of a job, those recorded so far and then new ones, until the job ends."""
    resource = await asyncio.to_thread(load_visible, call, KIND, shape["TrainingJobName"])
    cursor = MetricCursor.start(resource.id)
    if "Cursor" in shape:
        cursor = MetricCursor.parse(shape["Cursor"], resource.id)
    lines = call.yard.followers.follow_metrics(resource, cursor, max_points=shape.get("MaxPoints"))
    return {"ContentType": "application/x-ndjson", "Points": lines}


OPERATIONS: Operations = {"ReadMetric": read_metric, "FollowMetrics": follow_metrics}


@dataclass(frozen=True, slots=True)
class _StreamedSeries:
    """The points that one instance recorded in one attempt, or those of them from number `first` to before `stop`."""

    instance: str
    attempt: int
    file: PointsFile
    first: int
    stop: int

    @classmethod
    def between(
        cls, start_us: int | None, end_us: int | None, instance: str, attempt: int, file: PointsFile
    ) -> "_StreamedSeries":
        found = file.numbers_between(start_us, end_us)
        return cls(instance, attempt, file, found.start, found.stop)


def _files(call: Call, resource: Resource, job: TrainingJob, metric: str) -> Iterator[tuple[str, int, PointsFile]]:
    """Yield the files of a metric, each after the instance and the attempt that it is of."""
    for attempt in job.attempts:
        for instance in attempt.instances:
            folder = InstanceRef(AttemptRef(resource.id, attempt.number), instance.name).folder(call.yard.compute.jobs)
            yield instance.name, attempt.number, PointsFile(series_file(folder.metrics, metric))


def _micros(at: datetime | None) -> int | None:
    return None if at is None else to_micros(at)


async def _stream(lines: Iterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Yield lines that are made in a thread, because making one reads a file."""
    while line := await asyncio.to_thread(next, lines, b""):
        yield line


def _lines(series: list[_StreamedSeries], max_points: int | None) -> Iterator[bytes]:
    part = 1
    if max_points is not None:
        # Two points stand for each part.
        part = max(1, -(-sum(each.stop - each.first for each in series) // (max_points // 2)))
    for each in series:
        first = each.first
        for points in _batches(each, part):
            values = [total / count for total, count in zip(points.sums, points.counts, strict=True)]
            chosen = list(find_extremes(values, part)) if part > 2 else list(range(len(values)))
            yield _line(each, first, points.micros, values, chosen)
            first += len(values)
    yield b"{}\n"


def _batches(series: _StreamedSeries, part: int) -> Iterator[Points]:
    """Yield the points in batches of whole parts."""
    size = part * max(1, _BATCH_POINTS // part)
    first = series.first
    while first < series.stop and (points := series.file.tail(first, limit=min(size, series.stop - first))).micros:
        yield points
        first += len(points.micros)


def _line(
    series: _StreamedSeries, first: int, micros: Sequence[int], values: Sequence[float], chosen: Sequence[int]
) -> bytes:
    line = {
        "instance": series.instance,
        "attempt": series.attempt,
        "numbers": [first + number for number in chosen],
        "at_us": [micros[number] for number in chosen],
        "values": [values[number] for number in chosen],
    }
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"

"""A few points of a metric that show the shape of its curve."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from trainyard.formats.metrics import PointsFile, series_file
from trainyard.foundation.jobs.attempts import Attempt
from trainyard.link.folders import AttemptRef, InstanceRef
from trainyard.server.records.contract import ResourceId

POINTS = 48
# A series with more points is sampled at evenly spaced places instead of being read whole.
_READ_WHOLE = 2048


def read_sparkline(jobs: Path, job: ResourceId, attempts: Sequence[Attempt], metric: str) -> list[float]:
    """Return at most POINTS values over all attempts, of the first instance that reported the metric in each."""
    files = list(_files(jobs, job, attempts, metric))
    total = sum(count for _, count in files)
    if not total:
        return []
    values: list[float] = []
    for file, count in files:
        share = max(1, round(POINTS * count / total))
        values += _sample(file, count, share)
    return values[-POINTS:] if len(values) > POINTS else values


def _files(jobs: Path, job: ResourceId, attempts: Sequence[Attempt], metric: str) -> Iterator[tuple[PointsFile, int]]:
    for attempt in attempts:
        for instance in attempt.instances:
            folder = InstanceRef(AttemptRef(job, attempt.number), instance.name).folder(jobs)
            file = PointsFile(series_file(folder.metrics, metric))
            if count := file.count():
                yield file, count
                break


def _sample(file: PointsFile, count: int, share: int) -> Iterator[float]:
    """Yield the means of `share` parts of a series; of a long one, single values from as many places."""
    if count <= _READ_WHOLE:
        points = file.tail(0, limit=count)
        sums, counts, count = points.sums, points.counts, len(points.sums)
        share = min(share, count)
        for part in range(share):
            first, end = part * count // share, (part + 1) * count // share
            yield sum(sums[first:end]) / (sum(counts[first:end]) or 1.0)
        return
    for part in range(share):
        points = file.tail(part * (count - 1) // max(1, share - 1), limit=1)
        yield from (total / (weight or 1.0) for total, weight in zip(points.sums, points.counts, strict=True))

"""The learning curves of running trials, read from the points that their agents write."""

from dataclasses import dataclass, field
from pathlib import Path

from trainyard.formats.metrics import PointsFile, series_file
from trainyard.link.folders import AttemptRef, InstanceFolder
from trainyard.server.records.contract import ResourceId

MAX_REPORTS = 20_000  # the most epochs that AWS gives a trial of Hyperband


@dataclass(slots=True)
class LiveCurve:
    """The objective values that one trial has reported so far, in all its attempts, one after the other.

    Of several instances, the one that reports first counts; the others report the same. A read continues where the last
    one ended, and costs a look at one file if nothing is new.
    """

    jobs: Path
    job_id: ResourceId
    metric: str
    values: list[float] = field(default_factory=list)
    attempt: int = 1
    source: PointsFile | None = None  # of the attempt
    read_points: int = 0  # of the source

    def read(self) -> bool:
        """Read what is new; return whether there was something."""
        known = len(self.values)
        self._read_attempt()
        while self._next_attempt().folder(self.jobs).exists():
            # The rest of the attempt that ended.
            self._read_attempt()
            self.attempt, self.source, self.read_points = self.attempt + 1, None, 0
            self._read_attempt()
        return len(self.values) > known

    def _next_attempt(self) -> AttemptRef:
        return AttemptRef(self.job_id, self.attempt + 1)

    def _read_attempt(self) -> None:
        if self.source is None:
            self.source = self._first_to_report()
        while self.source is not None and len(self.values) < MAX_REPORTS:
            points = self.source.tail(self.read_points, limit=MAX_REPORTS - len(self.values))
            if not points.minima:
                return
            self.read_points += len(points.minima)
            self.values += points.minima

    def _first_to_report(self) -> PointsFile | None:
        folders = AttemptRef(self.job_id, self.attempt).instances(self.jobs)
        files = [PointsFile(_points_in(folder, self.metric)) for folder in folders]
        started = [(points.micros[0], number) for number, file in enumerate(files) if (points := file.tail(0)).micros]
        return files[min(started)[1]] if started else None


def _points_in(folder: InstanceFolder, metric: str) -> Path:
    return series_file(folder.metrics, metric)

"""What trials report of their objective while they run, read from the points that their agents write."""

from dataclasses import dataclass, field
from pathlib import Path

from trainyard.formats.metrics import PointsFile, series_file
from trainyard.link.folders import AttemptRef, InstanceFolder
from trainyard.server.records.contract import ResourceId

MOST_REPORTS = 20_000  # that are looked at; AWS gives a trial of Hyperband no more epochs


@dataclass(slots=True)
class LiveCurve:
    """The reports of one trial so far: those of all its attempts, one behind the other.

    Of several instances the one that reports first counts; others that train with it tell the same. A look reads on
    where the last one ended, and costs a look at one file when nothing is new.
    """

    jobs: Path
    job_id: ResourceId
    metric: str
    values: list[float] = field(default_factory=list)
    attempt: int = 1
    source: PointsFile | None = None  # of the attempt
    taken: int = 0  # of its points

    def look(self) -> bool:
        """Whether there is something new."""
        known = len(self.values)
        self._read_on()
        while self._next_attempt().folder(self.jobs).exists():
            self._read_on()  # what came before the attempt ended
            self.attempt, self.source, self.taken = self.attempt + 1, None, 0
            self._read_on()
        return len(self.values) > known

    def _next_attempt(self) -> AttemptRef:
        return AttemptRef(self.job_id, self.attempt + 1)

    def _read_on(self) -> None:
        if self.source is None:
            self.source = self._first_to_report()
        while self.source is not None and len(self.values) < MOST_REPORTS:
            points = self.source.tail(self.taken, limit=MOST_REPORTS - len(self.values))
            if not points.minima:
                return
            self.taken += len(points.minima)
            self.values += points.minima

    def _first_to_report(self) -> PointsFile | None:
        folders = AttemptRef(self.job_id, self.attempt).instances(self.jobs)
        files = [PointsFile(_points_in(folder, self.metric)) for folder in folders]
        begun = [(points.micros[0], number) for number, file in enumerate(files) if (points := file.tail(0)).micros]
        return files[min(begun)[1]] if begun else None


def _points_in(folder: InstanceFolder, metric: str) -> Path:
    return series_file(folder.metrics, metric)

"""The values of metrics: kept as points, and told to the yard as summaries."""

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from trainyard.formats.metrics import Point, PointsFile, series_file
from trainyard.foundation.errors import Unavailable
from trainyard.instance.agent.reports import Reports, now_us

TELL_INTERVAL_S = 0.1
MOST_POINTS = 1_000_000  # of a series
MOST_POINTS_IN_ALL = 4_000_000  # of an instance: 224 MB

log = logging.getLogger(__name__)


class MetricSeries:
    """Every value becomes a point; of each metric the yard is told ten times a second at most.

    A disk that takes no more costs points, never the program. Beyond the limits values are counted, and the yard is
    told the last one, but they are not kept as points.
    """

    def __init__(
        self,
        folder: Path,
        *,
        reports: Reports,
        monotonic: Callable[[], float] = time.monotonic,
        most_points: int = MOST_POINTS,
        most_in_all: int = MOST_POINTS_IN_ALL,
    ) -> None:
        self._folder = folder
        self._reports = reports
        self._monotonic = monotonic
        self._most_points = most_points
        self._most_in_all = self._left = most_in_all
        self._series: dict[str, _Series] = {}

    def add(self, name: str, values: Sequence[float], at_us: int) -> None:
        """Take some values of a metric, in their order."""
        if name not in self._series:
            self._series[name] = _Series(name, PointsFile(series_file(self._folder, name)))
        series = self._series[name]
        room = min(self._left, self._most_points - series.kept)
        self._left -= series.add(values, at_us, room=room)

    def tell(self, *, everything: bool = False) -> None:
        """Report what is new and due, or all that is new."""
        now = self._monotonic()
        for series in self._series.values():
            if series.has_news and (everything or series.is_due(now)):
                series.tell(self._reports, now)

    def lapse(self, name: str) -> None:
        """Report that the last value of a metric was not finite.

        Also of a metric that never had a finite one, so that it is told from one that never came.
        """
        if name in self._series:
            self._series[name].tell(self._reports, self._monotonic(), has_lapsed=True)
        else:
            self._reports.metric(name, 0.0, at_us=now_us(), count=0, has_lapsed=True)

    def finish(self) -> None:
        """Nothing more will come: report all that was not told yet."""
        self.tell(everything=True)
        for series in self._series.values():
            if series.left_out:
                self._reports.note(
                    f"Metric {series.name} has {series.count} values, of which the first {series.kept} are kept as "
                    f"points: an instance keeps {self._most_points} of a metric, and {self._most_in_all} of all."
                )


class _Series:
    def __init__(self, name: str, points: PointsFile) -> None:
        self.name = name
        self.count = 0
        self.kept = 0
        self.left_out = 0
        self._points = points
        self._told = 0
        self._value, self._at_us = 0.0, 0
        self._due_at = 0.0

    @property
    def has_news(self) -> bool:
        return self.count > self._told

    def is_due(self, now: float) -> bool:
        return now >= self._due_at

    def add(self, values: Sequence[float], at_us: int, *, room: int) -> int:
        """Keep as many as there is room for as points; how many those are."""
        self.count += len(values)
        self._value, self._at_us = values[-1], at_us
        points = [Point.of(value, at_us) for value in values[:room]]
        self.left_out += len(values) - len(points)
        if not points:
            return 0
        self.kept += len(points)
        try:
            self._points.append(points, durable=False)
        except Unavailable as error:
            log.warning("points are lost", extra={"metric": self.name, "why": error.message})
        return len(points)

    def tell(self, reports: Reports, now: float, *, has_lapsed: bool = False) -> None:
        reports.metric(self.name, self._value, at_us=self._at_us, count=self.count, has_lapsed=has_lapsed)
        self._told = self.count
        self._due_at = now + TELL_INTERVAL_S

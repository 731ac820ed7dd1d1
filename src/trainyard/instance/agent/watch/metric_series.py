"""Stores the values of metrics as points, and reports their latest values to the yard."""

import logging
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from trainyard.formats.metrics import Point, PointsFile, series_file
from trainyard.foundation.errors import Unavailable
from trainyard.instance.agent.reports import Reports, now_us

REPORT_INTERVAL_S = 0.1
MAX_POINTS = 1_000_000
# Of all metrics of an instance: 224 MB.
MAX_TOTAL_POINTS = 4_000_000

log = logging.getLogger(__name__)


class MetricSeries:
    """Stores every value as a point, and reports each metric at most ten times a second.

    A full disk loses points but never disturbs the program. Beyond the limits values are counted, and the last one is
    reported, but no points are stored.
    """

    def __init__(
        self,
        folder: Path,
        *,
        reports: Reports,
        monotonic: Callable[[], float] = time.monotonic,
        max_points: int = MAX_POINTS,
        max_total_points: int = MAX_TOTAL_POINTS,
    ) -> None:
        self._folder = folder
        self._reports = reports
        self._monotonic = monotonic
        self._max_points = max_points
        self._max_total_points = self._left = max_total_points
        self._series: dict[str, _PointsWriter] = {}

    def add(self, name: str, values: Sequence[float], at_us: int) -> None:
        """Add values of a metric, in order, that came at the same time."""
        self.add_timed(name, values, [at_us] * len(values))

    def add_timed(self, name: str, values: Sequence[float], times_us: Sequence[int]) -> None:
        """Add values of a metric, in order, each with its time."""
        if name not in self._series:
            self._series[name] = _PointsWriter(name, PointsFile(series_file(self._folder, name)))
        series = self._series[name]
        room = min(self._left, self._max_points - series.stored)
        self._left -= series.add(values, times_us, room=room)

    def report(self, *, everything: bool = False) -> None:
        """Report the metrics that have new values and are due, or all with new values."""
        now = self._monotonic()
        for series in self._series.values():
            if series.has_news and (everything or series.is_due(now)):
                series.report(self._reports, now)

    def lapse(self, name: str) -> None:
        """Report that the last value of a metric was not finite.

        This includes metrics that never had a finite value, to distinguish them from those that never came.
        """
        if name in self._series:
            self._series[name].report(self._reports, self._monotonic(), has_lapsed=True)
        else:
            self._reports.report_metric(name, 0.0, at_us=now_us(), count=0, has_lapsed=True)

    def finish(self) -> None:
        """Report everything that is new; nothing more will come."""
        self.report(everything=True)
        for series in self._series.values():
            if series.dropped:
                self._reports.note(
                    f"Metric {series.name} has {series.count} values, of which the first {series.stored} are stored: "
                    f"an instance stores {self._max_points} points of a metric and {self._max_total_points} in total."
                )


class _PointsWriter:
    def __init__(self, name: str, points: PointsFile) -> None:
        self.name = name
        self.count = 0
        self.stored = 0
        self.dropped = 0
        self._points = points
        self._reported = 0
        self._value, self._at_us = 0.0, 0
        self._lowest, self._highest = math.inf, -math.inf
        self._due_at = 0.0

    @property
    def has_news(self) -> bool:
        return self.count > self._reported

    def is_due(self, now: float) -> bool:
        return now >= self._due_at

    def add(self, values: Sequence[float], times_us: Sequence[int], *, room: int) -> int:
        """Store as many values as there is room for; return how many."""
        self.count += len(values)
        self._value, self._at_us = values[-1], times_us[-1]
        self._lowest, self._highest = min(self._lowest, *values), max(self._highest, *values)
        points = [Point.of(value, at_us) for value, at_us in zip(values[:room], times_us[:room], strict=True)]
        self.dropped += len(values) - len(points)
        if not points:
            return 0
        self.stored += len(points)
        try:
            self._points.append(points, durable=False)
        except Unavailable as error:
            log.warning("points are lost", extra={"metric": self.name, "why": error.message})
        return len(points)

    def report(self, reports: Reports, now: float, *, has_lapsed: bool = False) -> None:
        reports.report_metric(
            self.name,
            self._value,
            at_us=self._at_us,
            count=self.count,
            extremes=(self._lowest, self._highest),
            has_lapsed=has_lapsed,
        )
        self._reported = self.count
        self._due_at = now + REPORT_INTERVAL_S

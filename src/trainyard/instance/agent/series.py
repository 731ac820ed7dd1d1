"""The values of metrics: kept as points, and told to the yard as summaries."""

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from trainyard.formats.extraction import MetricScanner, Value
from trainyard.formats.metrics import Point, PointsFile, series_file
from trainyard.foundation.errors import Unavailable
from trainyard.instance.agent.reports import Reports, now_us

TELL_INTERVAL_S = 0.1

log = logging.getLogger(__name__)


class MetricSeries:
    """Scans an output. Every value becomes a point; of each metric the yard is told ten times a second at most.

    A disk that takes no more costs points, never the program.
    """

    def __init__(
        self,
        scanner: MetricScanner,
        folder: Path,
        *,
        reports: Reports,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._scanner = scanner
        self._folder = folder
        self._reports = reports
        self._monotonic = monotonic
        self._series: dict[str, _Series] = {}

    def write(self, data: bytes, at_us: int) -> None:
        """Look at what the program wrote just now."""
        self._add(self._scanner.scan(data), at_us)
        self.tell()

    def tell(self, *, everything: bool = False) -> None:
        """Report what is new and due, or all that is new."""
        now = self._monotonic()
        for series in self._series.values():
            if series.has_news and (everything or series.is_due(now)):
                series.tell(self._reports, now)

    def finish(self) -> None:
        """Nothing more will come: report all that was not told yet."""
        self._add(self._scanner.finish(), now_us())
        self.tell(everything=True)
        self._tell_lapses()
        for sentence in self._scanner.misses():
            self._reports.note(sentence)

    def _tell_lapses(self) -> None:
        """Also of a metric that never had a finite value, so that it is told from one that never came."""
        for name in self._scanner.lapsed():
            if name in self._series:
                self._series[name].tell(self._reports, self._monotonic(), has_lapsed=True)
            else:
                self._reports.metric(name, 0.0, at_us=now_us(), count=0, has_lapsed=True)

    def _add(self, values: Sequence[Value], at_us: int) -> None:
        by_name: dict[str, list[float]] = {}
        for each in values:
            by_name.setdefault(each.metric, []).append(each.value)
        for name, numbers in by_name.items():
            if name not in self._series:
                self._series[name] = _Series(name, PointsFile(series_file(self._folder, name)))
            self._series[name].add(numbers, at_us)


class _Series:
    def __init__(self, name: str, points: PointsFile) -> None:
        self._name = name
        self._points = points
        self._count = self._told = 0
        self._value, self._at_us = 0.0, 0
        self._due_at = 0.0

    @property
    def has_news(self) -> bool:
        return self._count > self._told

    def is_due(self, now: float) -> bool:
        return now >= self._due_at

    def add(self, values: Sequence[float], at_us: int) -> None:
        self._count += len(values)
        self._value, self._at_us = values[-1], at_us
        try:
            self._points.append([Point.of(value, at_us) for value in values], durable=False)
        except Unavailable as error:
            log.warning("points are lost", extra={"metric": self._name, "why": error.message})

    def tell(self, reports: Reports, now: float, *, has_lapsed: bool = False) -> None:
        reports.metric(self._name, self._value, at_us=self._at_us, count=self._count, has_lapsed=has_lapsed)
        self._told = self._count
        self._due_at = now + TELL_INTERVAL_S

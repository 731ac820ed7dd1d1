"""Reduces hardware samples to a bounded number of points per series: the minimum, mean and maximum of equal periods.

Standard library only, so that every yard can show samples.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainyard.formats.profiles.contract import HardwareSeries
from trainyard.formats.profiles.hardware_segments import HardwareSegment, SampleColumns, hardware_segments

# Samples that are read at once.
_BATCH_SAMPLES = 4096


@dataclass(frozen=True, slots=True)
class SummaryPeriods:
    """Periods of equal length from `start_us` on; the last one ends at `end_us` or later."""

    start_us: int
    end_us: int
    length_us: int

    @classmethod
    def between(cls, start_us: int, end_us: int, *, count: int) -> "SummaryPeriods":
        """Divide a range of time into at most `count` periods."""
        return cls(start_us, end_us, max(1, -(-(end_us - start_us) // max(1, count))))

    def start_of(self, time_us: int) -> int:
        """Return when the period that contains a time begins."""
        return time_us - (time_us - self.start_us) % self.length_us


@dataclass(slots=True)
class SeriesSummary:
    """The periods of one series that have values, in order, as columns."""

    starts_us: list[int] = field(default_factory=list)
    minima: list[float] = field(default_factory=list)
    means: list[float] = field(default_factory=list)
    maxima: list[float] = field(default_factory=list)
    _counts: list[int] = field(default_factory=list)

    def add(self, start_us: int, values: Sequence[float]) -> None:
        """Add values of the period that begins at `start_us`, which is the last one or a later one."""
        total, count = math.fsum(values), len(values)
        if math.isnan(total):
            values = [value for value in values if not math.isnan(value)]
            total, count = math.fsum(values), len(values)
        if not count:
            return
        if not self.starts_us or self.starts_us[-1] != start_us:
            self.starts_us.append(start_us)
            self.minima.append(math.inf)
            self.means.append(0.0)
            self.maxima.append(-math.inf)
            self._counts.append(0)
        known = self._counts[-1]
        self.minima[-1] = min(self.minima[-1], min(values))
        self.maxima[-1] = max(self.maxima[-1], max(values))
        self.means[-1] = (self.means[-1] * known + total) / (known + count)
        self._counts[-1] = known + count


def time_range(folder: Path) -> tuple[int, int] | None:
    """Return the times of the first and the last sample; None if there is none."""
    with_samples = [segment for segment in hardware_segments(folder) if segment.count]
    if not with_samples:
        return None
    last = with_samples[-1]
    return with_samples[0].time_us(0), last.time_us(last.count - 1)


def latest_values(folder: Path, *, since_us: int) -> dict[HardwareSeries, float]:
    """Return the values of the last sample; empty if there is none from `since_us` or later."""
    for segment in reversed(hardware_segments(folder)):
        if not segment.count:
            continue
        if segment.time_us(segment.count - 1) < since_us:
            return {}
        columns = segment.columns(segment.count - 1, segment.count)
        return {series: values[0] for series, values in columns.values.items() if not math.isnan(values[0])}
    return {}


def summarize(
    folder: Path, periods: SummaryPeriods, *, metrics: frozenset[str] | None = None
) -> dict[HardwareSeries, SeriesSummary]:
    """Summarize the samples in a range of time, by series. `metrics` limits which."""
    found: dict[HardwareSeries, SeriesSummary] = {}
    for segment in hardware_segments(folder):
        for columns in _batches(segment, periods):
            _add(found, columns, periods, metrics)
    return dict(sorted(found.items()))


def _batches(segment: HardwareSegment, periods: SummaryPeriods) -> Iterator[SampleColumns]:
    if not segment.count:
        return
    first, stop = segment.number_at(periods.start_us), segment.number_at(periods.end_us)
    for number in range(first, stop, _BATCH_SAMPLES):
        yield segment.columns(number, min(number + _BATCH_SAMPLES, stop))


def _add(
    found: dict[HardwareSeries, SeriesSummary],
    columns: SampleColumns,
    periods: SummaryPeriods,
    metrics: frozenset[str] | None,
) -> None:
    times, first = columns.times_us, 0
    wanted = {each: values for each, values in columns.values.items() if metrics is None or each.metric in metrics}
    while first < len(times):
        start_us = periods.start_of(times[first])
        stop = bisect_left(times, start_us + periods.length_us, lo=first)
        for series, values in wanted.items():
            found.setdefault(series, SeriesSummary()).add(start_us, values[first:stop])
        first = stop

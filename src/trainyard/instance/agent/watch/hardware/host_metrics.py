"""The metrics of a host as CloudWatch has them for training jobs: one point a minute."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainyard.formats.metrics import Point, PointsFile, series_file
from trainyard.formats.profiles.contract import HardwareMetric, HardwareSeries
from trainyard.foundation.errors import Unavailable
from trainyard.instance.agent.reports import Reports

_PERIOD_US = 60_000_000
_M = HardwareMetric

# As on AWS, utilisation adds up over the cores of the job, and over its GPUs: four busy cores are 400 percent.
_METRICS: Mapping[str, HardwareMetric] = {
    "CPUUtilization": _M.JOB_CPU_PERCENT,
    "MemoryUtilization": _M.JOB_MEMORY_PERCENT,
    "DiskUtilization": _M.DISK_PERCENT,
    "GPUUtilization": _M.GPU_PERCENT,
    "GPUMemoryUtilization": _M.GPU_MEMORY_PERCENT,
}


@dataclass(slots=True)
class _Period:
    """The values of one metric in the current minute."""

    start_us: int
    total: float = 0.0
    minimum: float = math.inf
    maximum: float = -math.inf
    count: int = 0


class HostMetricPoints:
    """A sink that stores the points in `folder`, and reports which metrics there are. `cores` are those of the job."""

    def __init__(self, folder: Path, reports: Reports, *, cores: float) -> None:
        self._folder = folder
        self._reports = reports
        self._cores = cores
        self._columns: Mapping[str, Sequence[int]] = {}
        self._periods: dict[str, _Period] = {}
        self._reported: list[str] = []

    def begin(self, series: Sequence[HardwareSeries], _interval_us: int) -> None:
        columns = {
            name: [column for column, each in enumerate(series) if each.metric is metric]
            for name, metric in _METRICS.items()
        }
        self._columns = {name: found for name, found in columns.items() if found}

    def append(self, time_us: int, values: Sequence[float]) -> None:
        self._store(before_us=time_us // _PERIOD_US * _PERIOD_US)
        for name, columns in self._columns.items():
            value = math.fsum(values[column] for column in columns)
            if math.isnan(value):
                continue
            value *= self._cores if name == "CPUUtilization" else 1.0
            period = self._periods.setdefault(name, _Period(time_us))
            period.total += value
            period.minimum, period.maximum = min(period.minimum, value), max(period.maximum, value)
            period.count += 1

    def flush(self) -> None:
        """Nothing is due before the end of the minute."""

    def close(self) -> None:
        self._store()

    def _store(self, before_us: int | None = None) -> None:
        """Store the points of the minutes that are over, or all."""
        for name, period in list(self._periods.items()):
            if before_us is not None and period.start_us >= before_us:
                continue
            del self._periods[name]
            point = Point(period.start_us, period.total, period.minimum, period.maximum, period.count)
            try:
                PointsFile(series_file(self._folder, name)).append([point], durable=False)
            except Unavailable:
                # The disk is full: the point is lost, and the program must not notice.
                continue
            if name not in self._reported:
                self._reported.append(name)
                self._reports.report_hardware(self._reported)

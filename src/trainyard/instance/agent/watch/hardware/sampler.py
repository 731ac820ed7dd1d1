"""Reads all sources of an instance into one row, as often as each of them may cost."""

import time
from collections.abc import Callable, Sequence

from trainyard.formats.profiles.contract import HardwareSeries
from trainyard.instance.agent.watch.hardware.contract import HardwareSource

# The share of a core that one source may take. One that would take more is read less often, and its last values stand.
MAX_SHARE = 0.001
# The weight of the last read in the mean cost of a source.
_COST_WEIGHT = 0.2


class HardwareSampler:
    """Samples the sources. `series` are those of the last sample; a new list stands for new series."""

    def __init__(
        self,
        sources: Sequence[HardwareSource],
        *,
        max_share: float = MAX_SHARE,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._sources = [_ScheduledSource(source, max_share, cpu_clock) for source in sources]
        self.series: Sequence[HardwareSeries] = ()

    def sample(self, now_s: float) -> list[float]:
        """Return a value for each series; NaN where there is none yet."""
        row: list[float] = []
        has_new_series = False
        for source in self._sources:
            row += source.read(now_s)
            has_new_series |= source.has_new_series
        if has_new_series:
            self.series = [series for source in self._sources for series in source.series]
        return row

    def close(self) -> None:
        for source in self._sources:
            source.close()


class _ScheduledSource:
    """A source with what it costs, and when it may be read again."""

    def __init__(self, source: HardwareSource, max_share: float, cpu_clock: Callable[[], float]) -> None:
        self._source = source
        self._max_share = max_share
        self._cpu_clock = cpu_clock
        self._cost_s: float | None = None
        self._next_s = 0.0
        self._values: Sequence[float] = ()
        self.series: Sequence[HardwareSeries] = ()
        self.has_new_series = False
        self._has_been_read = False

    def read(self, now_s: float) -> Sequence[float]:
        self.has_new_series = False
        if now_s < self._next_s:
            return self._values
        begun_s = self._cpu_clock()
        self._values = self._source.read(now_s)
        cost_s = self._cpu_clock() - begun_s
        # The first read opens files, so it is no measure of the next ones.
        if self._has_been_read:
            known_s = cost_s if self._cost_s is None else self._cost_s
            self._cost_s = known_s + _COST_WEIGHT * (cost_s - known_s)
        self._has_been_read = True
        self._next_s = now_s + max(self._source.interval_s, (self._cost_s or 0.0) / self._max_share)
        if self._source.series is not self.series:
            self.series, self.has_new_series = self._source.series, True
        return self._values

    def close(self) -> None:
        self._source.close()

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
        self._sources = [_ScheduledSource(source, max_share) for source in sources]
        self._cpu_clock = cpu_clock
        self.series: Sequence[HardwareSeries] = ()

    def sample(self, now_s: float) -> list[float]:
        """Return a value for each series; NaN where there is none yet."""
        row: list[float] = []
        has_new_series = False
        begun_s = self._cpu_clock()
        for source in self._sources:
            if source.is_due(now_s):
                has_new_series |= source.read(now_s)
                ended_s = self._cpu_clock()
                source.count_cost(ended_s - begun_s, now_s)
                begun_s = ended_s
            row += source.values
        if has_new_series:
            self.series = [series for source in self._sources for series in source.series]
        return row

    def close(self) -> None:
        for source in self._sources:
            source.close()


class _ScheduledSource:
    """A source with its last values, what it costs, and when it may be read again."""

    def __init__(self, source: HardwareSource, max_share: float) -> None:
        self._source = source
        self._max_share = max_share
        self._cost_s: float | None = None
        self._next_s = 0.0
        self._has_been_read = False
        self.values: Sequence[float] = ()
        self.series: Sequence[HardwareSeries] = ()

    def is_due(self, now_s: float) -> bool:
        return now_s >= self._next_s

    def read(self, now_s: float) -> bool:
        """Read the source; return whether it has new series."""
        self.values = self._source.read(now_s)
        has_new_series = self._source.series is not self.series
        self.series = self._source.series
        return has_new_series

    def count_cost(self, cost_s: float, now_s: float) -> None:
        """Count what the read cost, and find out when there may be another one."""
        # The first read opens files, so it is no measure of the next ones.
        if self._has_been_read:
            known_s = cost_s if self._cost_s is None else self._cost_s
            self._cost_s = known_s + _COST_WEIGHT * (cost_s - known_s)
        self._has_been_read = True
        self._next_s = now_s + max(self._source.interval_s, (self._cost_s or 0.0) / self._max_share)

    def close(self) -> None:
        self._source.close()

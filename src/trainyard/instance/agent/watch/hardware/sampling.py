"""Samples the hardware of an instance on a thread of its own while its program runs."""

import logging
import threading
from collections.abc import Callable, Sequence

from trainyard.foundation.clock import boottime
from trainyard.instance.agent.reports import now_us
from trainyard.instance.agent.watch.hardware.contract import SampleSink
from trainyard.instance.agent.watch.hardware.sampler import HardwareSampler

SHORTEST_S, LONGEST_S = 0.1, 3600.0
# The second sample follows soon, whatever the interval: the first one has no rates yet.
_SECOND_S = 0.25
_FLUSH_S = 1.0
# A last sample this short after the one before would say nothing.
_SHORTEST_LAST_S = 0.05

log = logging.getLogger(__name__)


class SampleLoop:
    """Samples in an interval until it is told to end, and hands every sample to the sinks. Run by one thread.

    Times advance with the boot clock from when the loop began. `missed` counts the samples that were due while the
    machine did not let this thread run.
    """

    def __init__(
        self,
        sampler: HardwareSampler,
        sinks: Sequence[SampleSink],
        *,
        interval_s: float,
        on_interval: Callable[[float], None] = lambda _: None,
    ) -> None:
        self._sampler = sampler
        self._sinks = sinks
        self._interval_s = _within_limits(interval_s)
        self._on_interval = on_interval
        self._wake = threading.Event()
        self._is_over = False
        self._is_changed = False
        self._series: object = None
        self._last_s = 0.0
        self.taken = 0
        self.missed = 0

    def change_interval(self, interval_s: float) -> None:
        """Sample in another interval from now on. Any thread may call this."""
        self._interval_s = _within_limits(interval_s)
        self._is_changed = True
        self._wake.set()

    def end(self) -> None:
        """End soon, after a last sample. Any thread may call this."""
        self._is_over = True
        self._wake.set()

    def run(self) -> None:
        """Sample until `end`. The sampler and the sinks are closed afterwards."""
        try:
            self._run()
        finally:
            self._sampler.close()
            for sink in self._sinks:
                sink.close()

    def _run(self) -> None:
        begun_s, begun_us = boottime(), now_us()
        self._sampler.sample(begun_s)
        self._last_s = begun_s
        next_s = begun_s + min(_SECOND_S, self._interval_s)
        flush_s = 0.0
        while not self._is_over:
            if self._wake.wait(max(0.0, next_s - boottime())):
                self._wake.clear()
                if self._is_changed:
                    self._is_changed, self._series = False, None
                    self._on_interval(self._interval_s)
                    next_s = min(next_s, boottime() + self._interval_s)
                continue
            now_s = boottime()
            self._take(now_s, begun_us + round((now_s - begun_s) * 1e6))
            if now_s >= flush_s:
                self._flush()
                flush_s = now_s + _FLUSH_S
            next_s += self._interval_s
            if next_s <= now_s:
                missed = int((now_s - next_s) / self._interval_s) + 1
                self.missed += missed
                next_s += missed * self._interval_s
        now_s = boottime()
        if now_s - self._last_s >= _SHORTEST_LAST_S:
            self._take(now_s, begun_us + round((now_s - begun_s) * 1e6))

    def _take(self, now_s: float, time_us: int) -> None:
        row = self._sampler.sample(now_s)
        if self._sampler.series is not self._series:
            self._series = self._sampler.series
            for sink in self._sinks:
                sink.begin(self._sampler.series, round(self._interval_s * 1e6))
        for sink in self._sinks:
            sink.append(time_us, row)
        self._last_s = now_s
        self.taken += 1

    def _flush(self) -> None:
        for sink in self._sinks:
            sink.flush()


def _within_limits(interval_s: float) -> float:
    return min(max(interval_s, SHORTEST_S), LONGEST_S)

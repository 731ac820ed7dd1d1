"""The loop that takes samples: its interval, its changes, its end, and what it hands on."""

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from trainyard.formats.profiles.contract import HardwareMetric, HardwareSeries
from trainyard.instance.agent.watch.hardware.sampler import HardwareSampler
from trainyard.instance.agent.watch.hardware.sampling import SampleLoop
from trainyard.testing.eventually import eventually

CPU, GPU = HardwareSeries(HardwareMetric.CPU_PERCENT), HardwareSeries(HardwareMetric.GPU_PERCENT)


class SimpleSource:
    interval_s = 0.0

    def __init__(self) -> None:
        self.series: Sequence[HardwareSeries] = [CPU]
        self.pause_s = 0.0

    def read(self, _now_s: float) -> Sequence[float]:
        time.sleep(self.pause_s)
        return [1.0] * len(self.series)

    def close(self) -> None:
        pass


@dataclass
class RecordingSink:
    begun: list[tuple[Sequence[HardwareSeries], int]] = field(default_factory=list)
    times_us: list[int] = field(default_factory=list)
    flushed: int = 0
    is_closed: bool = False

    def begin(self, series: Sequence[HardwareSeries], interval_us: int) -> None:
        self.begun.append((series, interval_us))

    def append(self, time_us: int, values: Sequence[float]) -> None:
        assert len(values) == len(self.begun[-1][0])
        self.times_us.append(time_us)

    def flush(self) -> None:
        self.flushed += 1

    def close(self) -> None:
        self.is_closed = True


class RunningLoop:
    def __init__(self, interval_s: float) -> None:
        self.source, self.sink = SimpleSource(), RecordingSink()
        self.heard: list[float] = []
        self.loop = SampleLoop(
            HardwareSampler([self.source]), [self.sink], interval_s=interval_s, on_interval=self.heard.append
        )
        self.thread = threading.Thread(target=self.loop.run)
        self.thread.start()

    def end(self) -> None:
        self.loop.end()
        self.thread.join(10)
        assert not self.thread.is_alive()


@pytest.fixture
def slow() -> Iterator[RunningLoop]:
    """A loop whose own interval would bring nothing in the time of a test."""
    made = RunningLoop(600.0)
    yield made
    made.end()


@pytest.fixture
def fast() -> Iterator[RunningLoop]:
    made = RunningLoop(0.1)
    yield made
    made.end()


def test_samples_are_taken_in_the_interval_and_never_earlier(fast: RunningLoop) -> None:
    began = time.monotonic()
    eventually(lambda: len(fast.sink.times_us) >= 5)
    assert len(fast.sink.times_us) <= (time.monotonic() - began) / 0.1 + 2
    assert fast.sink.times_us == sorted(set(fast.sink.times_us))
    assert abs(fast.sink.times_us[-1] / 1e6 - time.time()) < 60
    assert fast.sink.begun == [([CPU], 100_000)]


def test_the_first_sample_comes_soon_and_the_last_one_at_the_end(slow: RunningLoop) -> None:
    eventually(lambda: len(slow.sink.times_us) == 1)
    # A last sample is taken if it says something new.
    eventually(lambda: time.time() * 1e6 - slow.sink.times_us[0] > 100_000)
    slow.end()
    assert len(slow.sink.times_us) == 2
    assert slow.sink.is_closed


def test_a_change_of_the_interval_takes_effect_at_once(slow: RunningLoop) -> None:
    eventually(lambda: len(slow.sink.times_us) == 1)
    slow.loop.change_interval(0.1)
    eventually(lambda: len(slow.sink.times_us) > 3)
    assert [interval_us for _, interval_us in slow.sink.begun] == [600_000_000, 100_000]
    assert slow.heard == [0.1]


def test_an_interval_cannot_be_shorter_than_what_sampling_may_cost(slow: RunningLoop) -> None:
    slow.loop.change_interval(0.000001)
    eventually(lambda: slow.heard == [0.1])


def test_a_change_of_the_series_is_announced(fast: RunningLoop) -> None:
    eventually(lambda: bool(fast.sink.times_us))
    fast.source.series = [CPU, GPU]
    eventually(lambda: fast.sink.begun[-1][0] == [CPU, GPU])


def test_samples_that_were_due_while_another_took_too_long_are_counted(fast: RunningLoop) -> None:
    eventually(lambda: bool(fast.sink.times_us))
    fast.source.pause_s = 0.35
    eventually(lambda: fast.loop.missed >= 2)
    assert fast.sink.times_us == sorted(set(fast.sink.times_us))


def test_an_error_of_a_source_ends_the_loop_and_closes_the_sinks(fast: RunningLoop) -> None:
    eventually(lambda: bool(fast.sink.times_us))
    errors: list[threading.ExceptHookArgs] = []
    threading.excepthook, before = errors.append, threading.excepthook
    try:
        fast.source.pause_s = -1.0
        eventually(lambda: fast.sink.is_closed)
        fast.thread.join(10)
    finally:
        threading.excepthook = before
    assert [error.exc_type for error in errors] == [ValueError]

"""Sources are read as often as they may cost, and their values make up one row."""

from collections.abc import Sequence

from trainyard.formats.profiles.contract import HardwareMetric, HardwareSeries
from trainyard.instance.agent.watch.hardware.sampler import HardwareSampler

CPU, GPU = HardwareSeries(HardwareMetric.CPU_PERCENT), HardwareSeries(HardwareMetric.GPU_PERCENT)


class CountingSource:
    """Returns how often it was read. Each read takes `cost_s` of the CPU clock."""

    def __init__(self, *series: HardwareSeries, cost_s: float = 0.0, interval_s: float = 0.0) -> None:
        self.series: Sequence[HardwareSeries] = series
        self.interval_s = interval_s
        self.cost_s = cost_s
        self.reads = 0
        self.used_s = 0.0
        self.is_closed = False

    def read(self, _now_s: float) -> Sequence[float]:
        self.reads += 1
        self.used_s += self.cost_s
        return [float(self.reads)] * len(self.series)

    def close(self) -> None:
        self.is_closed = True


def sample(
    sources: Sequence[CountingSource], times_s: Sequence[float], *, max_share: float = 0.001
) -> list[list[float]]:
    clock = lambda: sum(source.used_s for source in sources)  # noqa: E731 - a clock that tests advance
    sampler = HardwareSampler(sources, max_share=max_share, cpu_clock=clock)
    rows = [sampler.sample(now_s) for now_s in times_s]
    sampler.close()
    return rows


def test_a_row_has_the_values_of_all_sources_in_order() -> None:
    sources = [CountingSource(CPU), CountingSource(GPU, GPU)]
    assert sample(sources, [0.0, 1.0]) == [[1, 1, 1], [2, 2, 2]]
    assert all(source.is_closed for source in sources)


def test_a_source_is_read_no_more_often_than_it_needs() -> None:
    source = CountingSource(CPU, interval_s=0.5)
    assert sample([source], [0.0, 0.1, 0.4, 0.5, 0.9]) == [[1], [1], [1], [2], [2]]


def test_a_source_that_costs_much_is_read_less_often_and_the_others_are_not() -> None:
    cheap, dear = CountingSource(CPU, cost_s=0.00005), CountingSource(GPU, cost_s=0.001)
    sample([cheap, dear], [number / 10 for number in range(101)])
    assert cheap.reads == 101
    # A millisecond may be spent once a second, and the first read is no measure.
    assert 10 <= dear.reads <= 13


def test_series_are_announced_anew_only_when_they_change() -> None:
    source = CountingSource(CPU)
    sampler = HardwareSampler([source])
    sampler.sample(0.0)
    first = sampler.series
    sampler.sample(1.0)
    assert sampler.series is first
    source.series = [CPU, GPU]
    assert sampler.sample(2.0) == [3, 3]
    assert list(sampler.series) == [CPU, GPU]

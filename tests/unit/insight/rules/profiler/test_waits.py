from typing import Any

import pytest

from tests.profiles import cpu_hardware, gpu_hardware, job, rank, step_times
from tests.unit.insight.rules.profiler.test_cpu_bottleneck import waiting
from trainyard.insight.rules.profiler.training_samples import training_samples
from trainyard.insight.rules.profiler.waits import (
    WaitCause,
    busy_cpu,
    cause_of,
    idle_gpus,
    longest_wait,
    speedup,
    stalled_io,
)


def cause(share: float, *, threads: int = 1, device: str = "cpu", cores: int = 4, **hardware: Any) -> WaitCause:
    steps = step_times(200, shares=waiting(share))
    profile = job(
        200, cpu_hardware(200, cores=cores, **hardware), rank(steps, threads=threads, device=device), cores=cores
    )
    wait = longest_wait(profile, "algo-1")
    assert wait is not None
    return cause_of(training_samples(profile)[0], wait, io_threshold=50)


def test_the_rank_that_waits_most_is_found() -> None:
    ranks = [rank(step_times(50, shares=waiting(share)), number=number) for number, share in enumerate((0.1, 0.4))]
    found = longest_wait(job(50, None, *ranks), "algo-1")
    assert found is not None
    assert found.worker == "worker_1"
    assert found.share == pytest.approx(0.4)
    assert longest_wait(job(50, None, *ranks), "algo-2") is None


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        # One thread computes all the time: the data, too.
        ({"job": 25.0}, WaitCause.CPU),
        # It computes for the half of the time in which it does not wait.
        ({"job": 12.5}, WaitCause.IO),
        # Workers compute beside it.
        ({"job": 95.0}, WaitCause.CPU),
        # Four threads compute in one half of the time, one in the other, and none.
        ({"job": 60.0, "threads": 4}, WaitCause.CPU),
        ({"job": 40.0, "threads": 4}, WaitCause.IO),
        # The disk stalls whatever computes.
        ({"job": 95.0, "io_pressure": 80.0}, WaitCause.IO),
        ({"job": 95.0, "io_wait": 80.0}, WaitCause.IO),
    ],
)
def test_waits_are_for_the_cpu_if_the_job_computes_meanwhile(options: dict[str, Any], expected: WaitCause) -> None:
    assert cause(0.5, **options) is expected


def test_a_bound_of_the_speedup_stays_finite() -> None:
    assert speedup(0.5) == 2
    assert speedup(0.0) == speedup(-1.0) == 1
    assert speedup(1.0) == pytest.approx(100)


def test_gpus_that_the_program_does_not_use_are_not_idle() -> None:
    (samples,) = training_samples(job(100, gpu_hardware(100, gpu_busy=0.0), gpus=1))
    assert idle_gpus(samples, threshold=10) is None


def test_without_series_nothing_is_busy_or_stalled() -> None:
    (samples,) = training_samples(job(10, cpu_hardware(10)))
    bare = type(samples)("algo-1", 2, samples.times_us, samples.chosen, type(samples.samples)(samples.times_us, {}))
    assert not busy_cpu(bare, threshold=0).any()
    assert not stalled_io(bare, threshold=0).any()

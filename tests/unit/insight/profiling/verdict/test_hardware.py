"""Memory that grows, GPUs that idle, and limits that slow the hardware down, each with what only looks like it."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from tests.faulty_profiles import cpu_job, gpu_job
from trainyard.formats.profiles.contract import HardwareMetric, HardwareSeries
from trainyard.insight.profiling.contract import HardwareSamples, JobProfile, Numbers
from trainyard.insight.profiling.verdict.contract import Bottleneck, BottleneckKind
from trainyard.insight.profiling.verdict.detectors.hardware import (
    find_idle_gpu,
    find_memory_growth,
    find_throttling,
    measure_growth,
)
from trainyard.insight.profiling.verdict.steady_state import find_steady_state

M = HardwareMetric
MB = 1e6
SECONDS = np.arange(600)
RANDOM = np.random.default_rng(5)


def growth_of(values: Numbers) -> object:
    return measure_growth((SECONDS[: len(values)] * 1e6).astype(np.int64), values, 16e9)


GROWING = {
    "steadily": 2000 + SECONDS * 1.0,
    "with noise": 2000 + SECONDS * 1.0 + RANDOM.normal(0, 5, 600),
    "and what each step frees": 2000 + SECONDS * 1.0 + (SECONDS % 10) * 30,
    "read seldom": 2000 + SECONDS // 60 * 60.0,
    "after a quick beginning": 2000 + SECONDS * 1.0 + np.minimum(SECONDS, 60) * 20,
    "faster and faster": 2000 + SECONDS**2 / 200,
}
STEADY = {
    "constant": np.full(600, 2000.0),
    "noise": 2000 + RANDOM.normal(0, 100, 600),
    "a cache that fills": 2000 + 2000 * (1 - np.exp(-SECONDS / 150)),
    "a first epoch": 2000 + np.minimum(SECONDS, 300) * 5.0,
    "a step up": np.where(SECONDS < 300, 2000.0, 4000.0),
    "a step up in a slow drift": np.where(SECONDS < 400, 2000.0, 4000.0) + SECONDS * 0.1,
    "a slow drift": 2000 + SECONDS * 0.01,
    "epochs": 2000 + SECONDS % 100 * 10.0,
    "falling": 4000 - SECONDS * 1.0,
    "no values": np.full(600, np.nan),
    "few values": 2000 + SECONDS[:4] * 100.0,
}


@pytest.mark.parametrize("name", GROWING)
def test_memory_that_grows_is_seen(name: str) -> None:
    assert growth_of(GROWING[name] * MB) is not None


@pytest.mark.parametrize("name", STEADY)
def test_memory_that_settles_is_no_growth(name: str) -> None:
    assert growth_of(STEADY[name] * MB) is None


def test_growth_says_when_the_memory_is_full() -> None:
    state = find_steady_state(cpu_job(seconds=600, memory=10 + np.arange(600) / 20))
    assert state is not None
    found = find_memory_growth(state)
    assert found is not None
    assert found.max_speedup is None
    assert "full in 20" in found.evidence[1]


def test_growth_that_takes_days_to_the_limit_is_none() -> None:
    state = find_steady_state(cpu_job(seconds=3600, memory=10 + np.arange(3600) / 6000))
    assert state is not None
    assert find_memory_growth(state) is None


def test_a_gpu_in_use_is_not_idle() -> None:
    assert find_idle_gpu(gpu_job()) is None
    assert find_idle_gpu(gpu_job(gpu_busy=5.0)) is None


def test_one_idle_gpu_of_two_is_named_with_a_bound() -> None:
    profile = with_series(gpu_job(gpus=2), {HardwareSeries(M.GPU_PERCENT, "gpu1"): np.zeros(120)})
    found = find_idle_gpu(profile)
    assert found is not None
    assert found.title == "Idle GPU: 1 of 2 GPUs computes nothing."
    assert found.max_speedup == 2.0


def test_a_gpu_that_idles_while_the_program_starts_is_none() -> None:
    profile = gpu_job(gpu_busy=0.0, seconds=25)
    assert find_idle_gpu(replace(profile, ranks=())) is None
    large = gpu_job(gpu_busy=0.0, seconds=1000)
    assert find_idle_gpu(replace(large, ranks=(), ended_us=None)) is None
    assert find_idle_gpu(replace(large, ranks=())) is not None


def test_a_gpu_without_samples_is_idle_if_the_program_computes_on_the_cpu() -> None:
    profile = gpu_job()
    ranks = [replace(each, program=replace(each.program, device="cpu")) for each in profile.ranks]
    assert find_idle_gpu(replace(profile, ranks=ranks, hardware={})) is not None
    assert find_idle_gpu(replace(profile, hardware={})) is None


def throttling(profile: JobProfile) -> Bottleneck | None:
    state = find_steady_state(profile)
    assert state is not None
    return find_throttling(state)


def with_series(profile: JobProfile, series: Mapping[HardwareSeries, Numbers]) -> JobProfile:
    (host,) = profile.hardware
    samples = profile.hardware[host]
    return replace(profile, hardware={host: HardwareSamples(samples.times_us, {**samples.series, **series})})


def test_a_limit_of_cores_is_throttling() -> None:
    profile = with_series(cpu_job(), {HardwareSeries(M.JOB_THROTTLED_PERCENT): np.full(120, 60.0)})
    found = throttling(profile)
    assert found is not None
    assert found.kind is BottleneckKind.THROTTLING
    assert found.share == pytest.approx(0.6)


def test_a_limit_that_is_met_seldom_is_not() -> None:
    assert throttling(with_series(cpu_job(), {HardwareSeries(M.JOB_THROTTLED_PERCENT): np.full(120, 5.0)})) is None


def test_a_hot_gpu_that_lowers_its_clock_is_throttling() -> None:
    is_hot = np.arange(120) > 60
    profile = with_series(
        gpu_job(),
        {
            HardwareSeries(M.GPU_CLOCK_MHZ, "gpu0"): np.where(is_hot, 900.0, 1800.0),
            HardwareSeries(M.GPU_THROTTLE_REASONS, "gpu0"): np.where(is_hot, 0x20, 0.0),
        },
    )
    found = throttling(profile)
    assert found is not None
    assert found.max_speedup is not None
    assert 1.3 < found.max_speedup < 1.6


def test_a_power_cap_at_full_clock_is_none() -> None:
    profile = with_series(gpu_job(), {HardwareSeries(M.GPU_THROTTLE_REASONS, "gpu0"): np.full(120, 4.0)})
    assert throttling(profile) is None

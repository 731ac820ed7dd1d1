import numpy as np
import pytest
from numpy.typing import ArrayLike

from tests.profiles import gpu_hardware, job, rank, step_times
from tests.unit.insight.rules.profiler.checking import check, has_triggered
from trainyard.insight.profiling.contract import JobProfile

SECONDS = 300


def busy(percent: ArrayLike, *, starting_s: float = 20, is_running: bool = False, seconds: int = SECONDS) -> JobProfile:
    hardware = gpu_hardware(seconds, gpu_busy=percent, starting_s=starting_s)
    steps = step_times(seconds, begin_s=starting_s)
    return job(seconds, hardware, rank(steps, device="cuda"), cores=4, gpus=1, is_running=is_running)


@pytest.mark.parametrize(("percent", "expected"), [(5.0, True), (40.0, True), (65.0, True), (72.0, False)])
def test_a_gpu_that_is_mostly_idle_is_found(percent: float, expected: bool) -> None:
    assert has_triggered("LowGPUUtilization", busy(percent)) is expected


def test_a_finding_says_what_the_gpu_costs() -> None:
    found = check("LowGPUUtilization", busy(30.0))
    (finding,) = found.findings
    assert found.details["algo-1 gpu0"]["mean"] == pytest.approx(30, abs=1)
    assert found.details["algo-1 gpu0"]["max_speedup"] == pytest.approx(3.3, abs=0.2)
    assert finding.device == "gpu0"
    assert finding.threshold == 70
    assert "30 % on average; it costs 1.01 USD an hour." in finding.message


@pytest.mark.parametrize(("idle", "expected"), [(0.02, False), (0.04, False), (0.1, True), (0.4, True)])
def test_a_gpu_that_pauses_again_and_again_is_found(idle: float, expected: bool) -> None:
    percent = np.where((np.arange(SECONDS) * 7) % 100 < 100 * idle, 0.5, 97.0)
    assert has_triggered("LowGPUUtilization", busy(percent)) is expected


def test_the_start_of_the_program_does_not_count() -> None:
    assert not has_triggered("LowGPUUtilization", busy(95.0, starting_s=200))


def test_a_gpu_that_the_program_does_not_use_is_found_once_it_trains() -> None:
    (finding,) = check("LowGPUUtilization", busy(0.0)).findings
    assert "does not use gpu0 of algo-1" in finding.message
    starting = job(100, gpu_hardware(100, starting_s=1e9), cores=4, gpus=1, is_running=True)
    assert not check("LowGPUUtilization", starting).findings


def test_a_running_job_is_judged_after_a_minute() -> None:
    assert not has_triggered("LowGPUUtilization", busy(20.0, seconds=60, is_running=True))
    assert has_triggered("LowGPUUtilization", busy(20.0, seconds=120, is_running=True))
    assert has_triggered("LowGPUUtilization", busy(20.0, seconds=60))


def test_a_window_has_only_the_latest_samples() -> None:
    percent = np.where(np.arange(SECONDS) < 100, 98.0, 20.0)
    assert not has_triggered("LowGPUUtilization", busy(percent), threshold_p5=0)
    assert has_triggered("LowGPUUtilization", busy(percent), window=100)

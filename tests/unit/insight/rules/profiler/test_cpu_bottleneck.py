from typing import Any

import numpy as np
import pytest

from tests.profiles import COMPUTING, cpu_hardware, gpu_hardware, job, rank, step_times
from tests.unit.insight.rules.profiler.checking import check, has_triggered
from trainyard.formats.profiles.contract import StepPhase
from trainyard.insight.profiling.contract import JobProfile


def waiting(share: float) -> dict[StepPhase, float]:
    """The phases of steps that wait for data for this share of their time."""
    rest = sum(COMPUTING.values()) - COMPUTING[StepPhase.DATA_WAIT]
    return {**COMPUTING, StepPhase.DATA_WAIT: rest * share / (1 - share)}


def idle_gpu(share: float, *, cores: int = 4, **cpu: Any) -> JobProfile:
    """A job whose GPU is idle in a share of the samples, in turns with others in which it is busy."""
    seconds = 400
    busy = np.where((np.arange(seconds) * 7) % 100 < 100 * share, 3.0, 96.0)
    hardware = gpu_hardware(seconds, gpu_busy=busy, cores=cores, **cpu)
    return job(seconds, hardware, cores=cores, gpus=1)


@pytest.mark.parametrize(("share", "expected"), [(0.05, False), (0.15, False), (0.22, True), (0.7, True)])
def test_a_gpu_that_is_idle_while_all_cores_are_busy_waits_for_them(share: float, expected: bool) -> None:
    assert has_triggered("CPUBottleneck", idle_gpu(share, busy=98.0)) is expected


@pytest.mark.parametrize(("share", "expected"), [(0.45, False), (0.6, True)])
def test_awss_threshold_is_half_of_the_training(share: float, expected: bool) -> None:
    assert has_triggered("CPUBottleneck", idle_gpu(share, busy=98.0), defaults="aws", patience=100) is expected


def test_one_hot_thread_of_the_job_on_a_large_host_counts_if_the_gpu_waits() -> None:
    found = check("CPUBottleneck", idle_gpu(0.6, cores=64, busy=1.0, hot_cores=1))
    (finding,) = found.findings
    assert finding.value == pytest.approx(60, abs=3)
    assert found.details["algo-1"]["gpu_waits_percent"] == finding.value
    assert found.violations == pytest.approx(0.6 * found.datapoints, abs=5)
    assert "up to 2.5 times" in finding.message


@pytest.mark.parametrize(("busy", "expected"), [(90.0, False), (82.0, False), (75.0, True), (45.0, True)])
def test_a_gpu_that_waits_in_each_step_is_found_though_it_is_idle_in_no_sample(busy: float, expected: bool) -> None:
    def profile(**options: Any) -> JobProfile:
        hardware = gpu_hardware(300, cores=16, gpu_busy=busy, busy=1.0, hot_cores=1, **options)
        return job(300, hardware, rank(step_times(300, begin_s=20), device="cuda"), cores=16, gpus=1)

    assert has_triggered("CPUBottleneck", profile()) is expected
    assert not has_triggered("CPUBottleneck", profile(job=2.0))


def test_what_ranks_exchange_is_not_the_cpus_fault() -> None:
    shares = {**COMPUTING, StepPhase.COMMUNICATION: 1.0}
    hardware = gpu_hardware(300, cores=16, gpu_busy=55.0, busy=1.0, hot_cores=1)
    profile = job(300, hardware, rank(step_times(300, begin_s=20, shares=shares), device="cuda"), cores=16, gpus=1)
    assert not has_triggered("CPUBottleneck", profile)


def test_a_hot_core_of_another_program_does_not_count() -> None:
    assert not has_triggered("CPUBottleneck", idle_gpu(0.6, cores=64, busy=1.0, hot_cores=1, job=0.3))


def test_an_idle_gpu_with_an_idle_cpu_does_not_count() -> None:
    assert not has_triggered("CPUBottleneck", idle_gpu(0.6, busy=5.0))


def test_a_gpu_that_waits_for_a_disk_is_left_to_the_rule_on_io() -> None:
    profile = idle_gpu(0.6, busy=98.0, io_pressure=90.0)
    assert not has_triggered("CPUBottleneck", profile)
    assert has_triggered("IOBottleneck", profile)


@pytest.mark.parametrize(("share", "expected"), [(0.1, False), (0.18, False), (0.22, True), (0.6, True)])
def test_steps_that_wait_for_data_that_workers_compute_are_found_though_no_sample_shows_an_idle_gpu(
    share: float, expected: bool
) -> None:
    steps = step_times(400, begin_s=20, step_s=0.1, shares=waiting(share))
    hardware = gpu_hardware(400, gpu_busy=100 * (1 - share), busy=97.0)
    profile = job(400, hardware, rank(steps, device="cuda"), cores=4, gpus=1)
    assert has_triggered("CPUBottleneck", profile) is expected
    assert not has_triggered("IOBottleneck", profile)


def test_a_job_without_a_gpu_gets_a_verdict_too() -> None:
    steps = step_times(200, step_s=0.1, shares=waiting(0.5))
    found = check("CPUBottleneck", job(200, cpu_hardware(200, busy=95.0), rank(steps)))
    (finding,) = found.findings
    assert (finding.host, finding.worker) == ("algo-1", "worker_0")
    assert finding.value == pytest.approx(50, abs=1)
    assert "up to 2.0 times as fast" in finding.message
    details = found.details["algo-1"]
    assert details["data_wait_for_cpu_percent"] == pytest.approx(50, abs=1)
    assert details["gpu_waits_percent"] == 0
    assert details["cores_used"] == pytest.approx(1.85, abs=0.05)
    assert details["max_speedup"] == pytest.approx(2, abs=0.05)


def test_a_short_job_that_has_ended_gets_a_verdict() -> None:
    steps = step_times(20, begin_s=2, step_s=0.1, shares=waiting(0.6))
    profile = job(20, cpu_hardware(20, busy=95.0), rank(steps))
    assert has_triggered("CPUBottleneck", profile)


def test_a_running_job_is_judged_after_a_minute_of_training() -> None:
    def running(seconds: float) -> JobProfile:
        steps = step_times(seconds, begin_s=2, step_s=0.1, shares=waiting(0.6))
        return job(seconds, cpu_hardware(seconds, busy=95.0), rank(steps), is_running=True)

    early = check("CPUBottleneck", running(40))
    assert not early.findings
    assert "after 60 s" in early.undecided
    assert has_triggered("CPUBottleneck", running(80))


def test_a_patience_in_datapoints_is_honoured_and_awss_own_cannot_be_told_from_none() -> None:
    steps = step_times(200, step_s=0.1, shares=waiting(0.5))
    profile = job(200, cpu_hardware(200, busy=95.0), rank(steps))
    assert "judges from 301 on" in check("CPUBottleneck", profile, patience=300).undecided
    assert has_triggered("CPUBottleneck", profile, patience=100)
    assert has_triggered("CPUBottleneck", profile, patience=1000)
    assert not has_triggered("CPUBottleneck", profile, patience=1000, defaults="aws")

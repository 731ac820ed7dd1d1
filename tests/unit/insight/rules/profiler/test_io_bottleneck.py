import numpy as np
import pytest

from tests.profiles import cpu_hardware, gpu_hardware, job, rank, step_times
from tests.unit.insight.rules.profiler.checking import check, has_triggered
from tests.unit.insight.rules.profiler.test_cpu_bottleneck import idle_gpu, waiting
from trainyard.insight.profiling.contract import JobProfile


def reading(share: float, *, seconds: float = 300, **hardware: float) -> JobProfile:
    """A job on a CPU whose steps wait for data for a share of their time, while the job uses little of the CPU."""
    steps = step_times(seconds, step_s=0.1, shares=waiting(share))
    used = 100 * (1 - share) / 2
    return job(seconds, cpu_hardware(seconds, **{"busy": used, **hardware}), rank(steps, threads=1))


@pytest.mark.parametrize(("share", "expected"), [(0.1, False), (0.18, False), (0.25, True), (0.8, True)])
def test_steps_that_wait_while_a_disk_stalls_programs_are_found(share: float, expected: bool) -> None:
    profile = reading(share, io_pressure=80.0)
    assert has_triggered("IOBottleneck", profile) is expected
    assert not has_triggered("CPUBottleneck", profile)


def test_steps_that_wait_though_the_job_computes_little_wait_for_reads_of_some_kind() -> None:
    found = check("IOBottleneck", reading(0.6, received_mb_s=40.0))
    (finding,) = found.findings
    assert finding.value == pytest.approx(60, abs=1)
    assert found.details["algo-1"]["received_bytes_s"] == pytest.approx(40e6)
    assert found.details["algo-1"]["data_wait_for_io_percent"] == finding.value
    assert "receives 40.0 MB/s" in finding.message
    assert "up to 2.5 times as fast" in finding.message


def test_steps_that_wait_for_computation_are_left_to_the_rule_on_the_cpu() -> None:
    assert not has_triggered("IOBottleneck", reading(0.6, busy=95.0))


@pytest.mark.parametrize(("share", "expected"), [(0.15, False), (0.25, True), (0.7, True)])
def test_a_gpu_that_is_idle_while_cores_wait_for_a_disk_is_found(share: float, expected: bool) -> None:
    assert has_triggered("IOBottleneck", idle_gpu(share, busy=20.0, io_wait=70.0)) is expected


def test_a_core_that_waits_for_a_disk_does_not_matter_if_the_gpu_is_busy() -> None:
    hardware = gpu_hardware(300, cores=64, io_wait=70.0, io_pressure=60.0)
    assert not has_triggered("IOBottleneck", job(300, hardware, cores=64, gpus=1))


def test_a_job_without_steps_or_gpus_that_only_waits_is_found() -> None:
    assert has_triggered("IOBottleneck", job(300, cpu_hardware(300, busy=8.0, io_pressure=90.0)))
    assert not has_triggered("IOBottleneck", job(300, cpu_hardware(300, busy=90.0, io_pressure=90.0)))


def test_a_stall_in_part_of_the_training_counts_for_that_part() -> None:
    pressure = np.where(np.arange(300) < 40, 90.0, 1.0)
    profile = job(300, cpu_hardware(300, busy=8.0, io_pressure=pressure))
    found = check("IOBottleneck", profile)
    assert not found.findings
    assert found.violations == pytest.approx(40, abs=2)

import numpy as np
import pytest
from numpy.typing import ArrayLike

from tests.profiles import cpu_hardware, gpu_hardware, job, rank, step_times
from tests.unit.insight.rules.profiler.checking import check, has_triggered
from trainyard.insight.profiling.contract import JobProfile, Numbers

SECONDS = 1800


def ramp(points: float, *, start: float = 30.0, seconds: int = SECONDS) -> Numbers:
    values: Numbers = start + points * np.arange(seconds) / seconds
    return values


def on_gpu(memory: ArrayLike, *, seconds: int = SECONDS, is_running: bool = False) -> JobProfile:
    hardware = gpu_hardware(seconds, gpu_memory=memory)
    steps = step_times(seconds, begin_s=20, step_s=0.5)
    return job(seconds, hardware, rank(steps, device="cuda"), cores=4, gpus=1, is_running=is_running)


@pytest.mark.parametrize(("points", "expected"), [(0.5, False), (4.5, False), (7.0, True), (20.0, True), (60.0, True)])
def test_a_slow_leak_over_the_whole_training_is_found(points: float, expected: bool) -> None:
    assert has_triggered("GPUMemoryIncrease", on_gpu(ramp(points))) is expected


def test_a_finding_says_how_much_a_step_keeps_and_when_memory_is_full() -> None:
    (finding,) = check("GPUMemoryIncrease", on_gpu(ramp(20.0))).findings
    assert finding.device == "gpu0"
    assert finding.value == pytest.approx(18, abs=0.5)
    # 20 points of 24 GiB in 3600 steps of half a second.
    assert "about 1.43 MB in each step" in finding.message
    assert "full in 75 minutes" in finding.message


def test_a_leak_in_stairs_is_found() -> None:
    assert has_triggered("GPUMemoryIncrease", on_gpu(30.0 + 2.0 * (np.arange(SECONDS) // 120)))


def test_a_leak_under_large_regular_swings_is_found() -> None:
    swings = 8.0 * (np.arange(SECONDS) % 60 > 50)
    assert has_triggered("GPUMemoryIncrease", on_gpu(ramp(15.0) + swings))


@pytest.mark.parametrize(
    "memory",
    [
        pytest.param(np.minimum(ramp(200.0, start=5.0), 60.0), id="fills in the first quarter"),
        pytest.param(70 - 40 * np.exp(-np.arange(SECONDS) / 200), id="settles slowly"),
        pytest.param(np.where(np.arange(SECONDS) < 900, 40.0, 60.0), id="one jump"),
        pytest.param(40 + 10.0 * (np.arange(SECONDS) % 300 > 270), id="evaluations"),
        pytest.param(40 + 10 * np.sin(np.arange(SECONDS) / 300), id="waves"),
        pytest.param(ramp(-20.0, start=70.0), id="falls"),
        pytest.param(np.where(np.arange(SECONDS) < 1700, 40.0, 55.0), id="jumps at the end"),
    ],
)
def test_memory_that_does_not_grow_for_good_is_no_leak(memory: Numbers) -> None:
    assert not has_triggered("GPUMemoryIncrease", on_gpu(memory))


def test_random_walks_are_not_taken_for_leaks_often() -> None:
    random = np.random.default_rng(5)
    walks = [50 + np.cumsum(random.normal(0, 0.1, SECONDS)) for _ in range(40)]
    found = sum(has_triggered("GPUMemoryIncrease", on_gpu(np.clip(walk, 0, 100))) for walk in walks)
    assert found <= 4


def test_the_processes_of_a_job_without_gpus_are_watched() -> None:
    steps = step_times(SECONDS, step_s=0.1)
    profile = job(SECONDS, cpu_hardware(SECONDS, memory=ramp(25.0)), rank(steps))
    (finding,) = check("GPUMemoryIncrease", profile).findings
    assert "The job's memory on algo-1 keeps growing" in finding.message
    assert finding.device == ""


def test_a_short_leak_of_a_job_that_failed_is_found() -> None:
    assert has_triggered("GPUMemoryIncrease", on_gpu(ramp(65.0, seconds=45), seconds=45))


def test_a_running_job_is_judged_after_two_minutes() -> None:
    running = check("GPUMemoryIncrease", on_gpu(ramp(30.0, seconds=100), seconds=100, is_running=True))
    assert not running.findings
    assert running.undecided
    assert has_triggered("GPUMemoryIncrease", on_gpu(ramp(30.0, seconds=160), seconds=160, is_running=True))


@pytest.mark.parametrize(("seconds", "points", "expected"), [(400, 25.0, False), (400, 75.0, True), (900, 25.0, True)])
def test_processes_may_fill_memory_with_data_at_first_unless_it_runs_out(
    seconds: int, points: float, expected: bool
) -> None:
    steps = step_times(seconds, step_s=0.1)
    profile = job(seconds, cpu_hardware(seconds, memory=ramp(points, start=15.0, seconds=seconds)), rank(steps))
    assert has_triggered("GPUMemoryIncrease", profile) is expected

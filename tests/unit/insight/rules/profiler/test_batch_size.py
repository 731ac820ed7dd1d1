import pytest

from tests.profiles import COMPUTING, cpu_hardware, gpu_hardware, job, rank, step_times
from tests.unit.insight.rules.profiler.checking import check, has_triggered
from trainyard.formats.profiles.contract import StepPhase
from trainyard.insight.profiling.contract import JobProfile


def on_gpu(*, busy: float = 40.0, memory: float = 20.0, cpu: float = 30.0, data_wait: float = 0.02) -> JobProfile:
    shares = {**COMPUTING, StepPhase.DATA_WAIT: data_wait / (1 - data_wait)}
    hardware = gpu_hardware(300, gpu_busy=busy, gpu_memory=memory, busy=cpu)
    steps = step_times(300, begin_s=20, step_s=0.02, shares=shares)
    return job(300, hardware, rank(steps, device="cuda"), cores=4, gpus=1)


def on_cpu(*, busy: float = 45.0, step_s: float = 0.004, threads: int = 2) -> JobProfile:
    return job(300, cpu_hardware(300, busy=busy), rank(step_times(300, step_s=step_s), threads=threads))


def test_a_gpu_that_batches_do_not_fill_is_found_with_what_a_full_one_may_gain() -> None:
    (finding,) = check("BatchSize", on_gpu()).findings
    assert (finding.host, finding.device) == ("algo-1", "gpu0")
    assert finding.value == pytest.approx(42.5, abs=2)
    assert "up to 2." in finding.message


@pytest.mark.parametrize(("busy", "expected"), [(60.0, True), (64.0, True), (71.0, False), (95.0, False)])
def test_the_gpu_must_be_under_its_threshold(busy: float, expected: bool) -> None:
    assert has_triggered("BatchSize", on_gpu(busy=busy)) is expected


@pytest.mark.parametrize(("memory", "expected"), [(68.0, True), (72.0, False)])
def test_the_memory_must_be_under_its_threshold(memory: float, expected: bool) -> None:
    assert has_triggered("BatchSize", on_gpu(memory=memory)) is expected


@pytest.mark.parametrize(("cpu", "expected"), [(64.0, True), (75.0, False)])
def test_the_processor_must_be_under_its_threshold(cpu: float, expected: bool) -> None:
    assert has_triggered("BatchSize", on_gpu(cpu=cpu)) is expected


def test_a_gpu_that_waits_for_data_would_not_gain_by_larger_batches() -> None:
    found = check("BatchSize", on_gpu(data_wait=0.6))
    assert not found.findings
    assert "data_wait takes" in found.details["algo-1 gpu0"]["other_cause"]


def test_short_steps_that_leave_the_cores_of_a_cpu_idle_are_found() -> None:
    (finding,) = check("BatchSize", on_cpu()).findings
    assert "larger batches" in finding.message


def test_tiny_steps_are_found_on_a_single_thread_too() -> None:
    assert has_triggered("BatchSize", on_cpu(step_s=0.0005, threads=1))


@pytest.mark.parametrize("options", [{"step_s": 0.2}, {"threads": 1}, {"busy": 90.0}])
def test_a_cpu_is_not_judged_by_its_use_alone(options: dict[str, float]) -> None:
    found = check("BatchSize", on_cpu(**options))  # type: ignore[arg-type]
    assert not found.findings
    assert not found.undecided


def test_a_window_has_only_the_latest_samples() -> None:
    assert has_triggered("BatchSize", on_gpu(), window=100)
    busy = [40.0] * 200 + [97.0] * 100
    profile = job(300, gpu_hardware(300, gpu_busy=busy, gpu_memory=20.0), cores=4, gpus=1)
    assert not has_triggered("BatchSize", profile, window=90)

import numpy as np
import pytest

from tests.profiles import COMPUTING, HEALTHY, cpu_hardware, gpu_hardware, job, rank, step_times
from tests.unit.insight.rules.profiler.checking import check, has_triggered
from trainyard.formats.profiles.contract import HardwareMetric, HardwareSeries, StepPhase
from trainyard.insight.profiling.contract import HardwareSamples, JobProfile

SECONDS = 400


def with_gpus(*busy: float, hosts: int = 1) -> JobProfile:
    """A job with GPUs that are busy for these percentages, divided over hosts."""
    each = len(busy) // hosts
    machines: dict[str, HardwareSamples] = {}
    for number in range(hosts):
        hardware = gpu_hardware(SECONDS, gpus=each)
        series = dict(hardware.series)
        for gpu, percent in enumerate(busy[number * each : (number + 1) * each]):
            noise = np.random.default_rng((number, gpu)).normal(0, 2, SECONDS)
            series[HardwareSeries(HardwareMetric.GPU_PERCENT, f"gpu{gpu}")] = np.clip(percent + noise, 0, 100)
        machines[f"algo-{number + 1}"] = HardwareSamples(hardware.times_us, series)
    return job(SECONDS, machines, cores=4, gpus=each)


def with_ranks(*, slow_s: float, phase: StepPhase, ranks: int = 3, device: str = "cpu") -> JobProfile:
    """A job whose last rank takes longer in a phase of each step; the others wait for it in their backward pass."""
    members = []
    for number in range(ranks):
        added = {phase if number == ranks - 1 else StepPhase.BACKWARD: slow_s}
        steps = step_times(SECONDS, step_s=0.2, shares=COMPUTING, added_s=added, seed=number)
        members.append(rank(steps, number=number, host=f"algo-{number + 1}", device=device))
    hosts = {f"algo-{number + 1}": cpu_hardware(SECONDS) for number in range(ranks)}
    return job(SECONDS, hosts, *members)


@pytest.mark.parametrize(("other", "expected"), [(96.0, False), (88.0, False), (80.0, True), (30.0, True)])
def test_a_gpu_that_is_far_less_busy_than_another_is_found(other: float, expected: bool) -> None:
    assert has_triggered("LoadBalancing", with_gpus(96.0, other)) is expected


def test_gpus_of_different_instances_are_told_apart() -> None:
    found = check("LoadBalancing", with_gpus(95.0, 95.0, 95.0, 40.0, hosts=2))
    (finding,) = found.findings
    assert (finding.host, finding.device) == ("algo-2", "gpu1")
    assert "algo-2 gpu1" in found.details["distance_to_busiest"]


def test_awss_defaults_find_gpus_apart_that_differ_by_a_few_percent() -> None:
    profile = with_gpus(99.0, 92.0)
    assert has_triggered("LoadBalancing", profile, defaults="aws", patience=0)
    assert not has_triggered("LoadBalancing", profile)


@pytest.mark.parametrize(("slow_s", "expected"), [(0.01, False), (0.018, False), (0.03, True), (0.2, True)])
@pytest.mark.parametrize("phase", [StepPhase.DATA_WAIT, StepPhase.FORWARD, StepPhase.OTHER])
def test_a_rank_that_the_others_wait_for_is_found_with_its_phase(
    slow_s: float, expected: bool, phase: StepPhase
) -> None:
    findings = check("LoadBalancing", with_ranks(slow_s=slow_s, phase=phase)).findings
    assert bool(findings) is expected
    for finding in findings:
        assert (finding.worker, finding.host) == ("worker_2", "algo-3")
        assert phase.name.lower().replace("_", " ") in finding.message


def test_of_two_ranks_the_slow_one_is_found() -> None:
    (finding,) = check("LoadBalancing", with_ranks(slow_s=0.2, phase=StepPhase.DATA_WAIT, ranks=2)).findings
    assert finding.worker == "worker_1"
    assert finding.value == pytest.approx(50, abs=3)


def test_a_rank_on_a_gpu_is_compared_by_what_cannot_be_a_wait_for_the_device() -> None:
    assert has_triggered("LoadBalancing", with_ranks(slow_s=0.2, phase=StepPhase.DATA_WAIT, device="cuda"))
    assert not has_triggered("LoadBalancing", with_ranks(slow_s=0.2, phase=StepPhase.OTHER, device="cuda"))


def test_trainings_that_do_not_step_together_are_not_compared() -> None:
    steps = [step_times(SECONDS, step_s=0.2, shares={StepPhase.DATA_WAIT: share, **COMPUTING}) for share in (0.0, 3.0)]
    one_after_another = [rank(each, number=0) for each in steps]
    apart = [rank(step_times(SECONDS, step_s=length), number=number) for number, length in enumerate((0.1, 0.3))]
    for ranks in (one_after_another, apart):
        assert not has_triggered("LoadBalancing", job(SECONDS, cpu_hardware(SECONDS), *ranks))


def test_a_single_gpu_or_rank_has_nothing_to_balance() -> None:
    assert "only one" in check("LoadBalancing", HEALTHY["short_on_cpu"]()).undecided

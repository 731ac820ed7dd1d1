"""Python code, waits for the GPU and copies to it, and what only looks like them."""

from collections.abc import Callable

import pytest

from tests.faulty_profiles import cpu_job, gpu_job, hot_line
from tests.profiles import HEALTHY, loader
from trainyard.formats.profiles.contract import StepPhase
from trainyard.insight.profiling.contract import JobProfile, Synchronization
from trainyard.insight.profiling.verdict.contract import Bottleneck
from trainyard.insight.profiling.verdict.detectors.program import find_copies, find_python, find_synchronization
from trainyard.insight.profiling.verdict.steady_state import SteadyState, find_steady_state

P = StepPhase
ITEM = (Synchronization("item", 40.0, 0.09),)


def detect(find: Callable[[SteadyState], Bottleneck | None], profile: JobProfile) -> Bottleneck | None:
    state = find_steady_state(profile)
    assert state is not None
    return find(state)


def test_lines_are_evidence() -> None:
    facts = {"hot_lines": (hot_line(P.OTHER, 60), hot_line(P.OTHER, 1)), "stack_samples": 120}
    found = detect(find_python, cpu_job(P.OTHER, 0.5, facts=facts, job=60))
    assert found is not None
    assert found.max_speedup == pytest.approx(2.0, rel=0.02)
    lines = [each for each in found.evidence if "train.py" in each]
    assert lines == ["50 % of the stack samples are at train.py:20, in entropy: math.log(value)"]


def test_a_little_time_outside_the_model_is_none() -> None:
    assert detect(find_python, cpu_job(P.OTHER, 0.08)) is None
    # Without lines, it may be the loss.
    assert detect(find_python, cpu_job(P.OTHER, 0.18)) is None


def test_a_large_operation_in_the_forward_is_no_python() -> None:
    facts = {"hot_lines": (hot_line(P.FORWARD, 70, "inputs @ self.weight"),), "stack_samples": 100}
    assert detect(find_python, cpu_job(P.FORWARD, 0.7, facts=facts, busy=98, job=97)) is None


def test_calls_of_libraries_in_the_forward_are_no_python() -> None:
    called = "Conv2d._conv_forward (torch/nn/modules/conv.py:549)"
    facts = {"hot_lines": (hot_line(P.FORWARD, 70, called),), "stack_samples": 100}
    assert detect(find_python, cpu_job(P.FORWARD, 0.7, facts=facts, job=50)) is None


def test_copies_to_the_gpu_are_no_python() -> None:
    facts = {"hot_lines": (hot_line(P.HOST_TO_DEVICE, 70, "inputs.to(device)"),), "stack_samples": 100}
    profile = gpu_job(P.HOST_TO_DEVICE, 0.8, gpu_busy=18, loaders=[loader(3)], busy=20, job=20, facts=facts)
    assert detect(find_copies, profile) is not None
    assert detect(find_python, profile) is None


def test_frameworks_without_phases_have_no_time_outside_the_model() -> None:
    assert detect(find_python, HEALTHY["boosting"]()) is None


def test_waits_for_a_busy_gpu_cost_nothing() -> None:
    assert detect(find_synchronization, gpu_job(P.OTHER, 0.5, gpu_busy=97, facts={"synchronizations": ITEM})) is None


def test_item_on_a_cpu_waits_for_nothing() -> None:
    assert detect(find_synchronization, cpu_job(P.OTHER, 0.5, facts={"synchronizations": ITEM})) is None


def test_calls_that_wait_for_the_gpu_are_named() -> None:
    line = hot_line(P.OTHER, 30, "loss.item()")
    facts = {"synchronizations": ITEM, "hot_lines": (line,), "stack_samples": 60}
    found = detect(find_synchronization, gpu_job(P.OTHER, 0.5, gpu_busy=55, facts=facts))
    assert found is not None
    assert ".item() (40 calls per step)" in found.evidence[0]
    assert "loss.item()" in found.evidence[1]
    assert found.share == pytest.approx(0.45, abs=0.02)


def test_waiting_in_a_copy_for_a_busy_gpu_is_no_copy() -> None:
    assert detect(find_copies, gpu_job(P.HOST_TO_DEVICE, 0.6, gpu_busy=97)) is None


def test_a_loader_that_does_not_pin_is_named() -> None:
    found = detect(find_copies, gpu_job(P.HOST_TO_DEVICE, 0.4, gpu_busy=58, loaders=[loader(2)]))
    assert found is not None
    assert "The data loader does not pin its memory." in found.evidence

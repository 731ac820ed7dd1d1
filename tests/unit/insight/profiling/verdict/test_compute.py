"""Batches and kernels that are too small, float32 where bfloat16 would do, and models that just compute."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from tests.faulty_profiles import cpu_job, gpu_job
from tests.recorded_traces import kernel, launch, step, trace_of
from trainyard.formats.profiles.contract import StepPhase
from trainyard.insight.profiling.contract import JobProfile
from trainyard.insight.profiling.traces.trace_profile import TraceProfile, profile_trace
from trainyard.insight.profiling.verdict.contract import Bottleneck
from trainyard.insight.profiling.verdict.detectors.compute import (
    find_compute,
    find_precision,
    find_small_batch,
    find_small_kernels,
)
from trainyard.insight.profiling.verdict.steady_state import SteadyState, find_steady_state

P = StepPhase


def detect(
    find: Callable[[SteadyState], Bottleneck | None], profile: JobProfile, *traces: TraceProfile
) -> Bottleneck | None:
    state = find_steady_state(profile, traces)
    assert state is not None
    return find(state)


def small(samples: float, parameters: int, *, step_s: float = 0.001, optimizer: float = 0.25, **facts: Any) -> bool:
    known = {"samples_per_step": samples, "parameters": parameters, **facts}
    profile = cpu_job(P.OPTIMIZER, optimizer, step_s=step_s, facts=known, seconds=20)
    return detect(find_small_batch, profile) is not None


def test_a_batch_is_small_if_the_model_needs_far_less_time_than_the_step() -> None:
    assert small(2, 20_000)
    assert small(1, 5_000, has_convolutions=True)


@pytest.mark.parametrize(
    "facts",
    [
        {"samples": 512, "parameters": 20_000},
        {"samples": 2, "parameters": 5_000_000},
        # A step this long is not spent on calling operations.
        {"samples": 2, "parameters": 20_000, "step_s": 0.1},
        # Convolutions use each parameter many times.
        {"samples": 64, "parameters": 5_000, "has_convolutions": True},
        # Whatever the forward does, it depends on the batch.
        {"samples": 4, "parameters": 20_000, "optimizer": 0.02},
    ],
)
def test_a_batch_that_fills_the_cores_is_not_small(facts: dict[str, Any]) -> None:
    assert not small(**facts)


def test_unknown_batches_are_not_judged() -> None:
    assert detect(find_small_batch, cpu_job(step_s=0.001, facts={"samples_per_step": None}, seconds=20)) is None
    facts = {"samples_per_step": 2.0, "parameters": None}
    assert detect(find_small_batch, cpu_job(step_s=0.001, facts=facts, seconds=20)) is None


def test_a_small_batch_on_a_gpu_leaves_memory_free() -> None:
    facts = {"samples_per_step": 2.0}
    assert detect(find_small_batch, gpu_job(gpu_busy=30, gpu_memory=10, facts=facts)) is not None
    assert detect(find_small_batch, gpu_job(gpu_busy=30, gpu_memory=90, facts=facts)) is None
    assert detect(find_small_batch, gpu_job(gpu_busy=95, gpu_memory=10, facts=facts)) is None


def test_a_gpu_that_idles_for_another_cause_has_no_small_kernels() -> None:
    assert detect(find_small_kernels, gpu_job(P.DATA_WAIT, 0.6, gpu_busy=38)) is None
    assert detect(find_small_kernels, gpu_job(gpu_busy=38)) is not None
    assert detect(find_small_kernels, cpu_job()) is None


def traced(*, kernels: int, kernel_us: float, step_us: float, name: str = "elementwise") -> TraceProfile:
    """Return a trace of two steps, in which as many kernels follow each other without a gap."""
    events = []
    for number in range(2):
        start_us = number * step_us
        events.append(step(number, start_us, step_us))
        for each in range(kernels):
            correlation = number * kernels + each + 1
            events.append(launch(start_us + each, 0.5, correlation))
            events.append(kernel(name, start_us + each * kernel_us, kernel_us, correlation))
    return profile_trace(trace_of(events))


def test_a_trace_shows_what_samples_of_the_driver_miss() -> None:
    # Each step of 20 ms has 1000 kernels of 5 µs. It takes 40 ms while it is traced.
    trace = traced(kernels=1000, kernel_us=5, step_us=40_000)
    found = detect(find_small_kernels, gpu_job(step_s=0.02, gpu_busy=95), trace)
    assert found is not None
    assert "The GPU computes 25 % of the time." in found.evidence
    assert "The 2,000 kernels in the traces take 5 µs each, on average." in found.evidence


def test_long_kernels_are_not_small() -> None:
    trace = traced(kernels=10, kernel_us=500, step_us=40_000)
    assert detect(find_small_kernels, gpu_job(step_s=0.02, gpu_busy=30), trace) is None


def test_tensor_cores_that_compute_in_float32_gain_less() -> None:
    single = gpu_job(step_s=0.02, facts={"precision": "float32"})
    plain = detect(find_precision, single, traced(kernels=18, kernel_us=1000, step_us=20_000))
    tensor = detect(
        find_precision, single, traced(kernels=18, kernel_us=1000, step_us=20_000, name="sm80_xmma_gemm_tf32")
    )
    assert plain is not None
    assert tensor is not None
    assert plain.max_speedup is not None
    assert tensor.max_speedup == pytest.approx(1 / (1 - 0.9 / 2), rel=0.05)
    assert plain.max_speedup > 5


def test_precision_is_named_on_busy_gpus_only() -> None:
    single = {"precision": "float32"}
    assert detect(find_precision, gpu_job(facts=single)) is not None
    assert detect(find_precision, gpu_job()) is None
    assert detect(find_precision, gpu_job(facts=single, gpu_busy=30)) is None
    assert detect(find_precision, cpu_job(facts=single)) is None


def test_old_gpus_have_no_quicker_precision() -> None:
    profile = gpu_job(facts={"precision": "float32"})
    facts = replace(profile.instances["algo-1"], gpus=("Tesla P100-PCIE-16GB",))
    assert detect(find_precision, replace(profile, instances={"algo-1": facts})) is None


def test_computing_says_what_the_step_is_made_of() -> None:
    found = detect(partial(find_compute, is_alone=True), cpu_job())
    assert found is not None
    assert "Forward takes 32 % of it, backward 53 %, the optimizer 9 %." in found.evidence
    assert found.title.endswith("nothing outside it holds the job up.")
    assert found.max_speedup is None

"""The figures of a trace of an H200, beside those of HolisticTraceAnalysis.

The trace has three steps of a GPT-2 of one layer in bfloat16, recorded with torch 2.11.
"""

from pathlib import Path

import numpy as np
import pytest

from trainyard.formats.profiles.traces.contract import EventKind, Trace
from trainyard.formats.profiles.traces.reader import read_trace
from trainyard.insight.profiling.traces.intervals import union_of
from trainyard.insight.profiling.traces.roles import TimeRole, split_roles
from trainyard.insight.profiling.traces.trace_profile import profile_trace
from trainyard.insight.profiling.traces.windows import StepWindows

TRACE = Path(__file__).with_name("gpt2_h200.pt.trace.json.gz")
# What `get_gpu_kernel_breakdown` of HTA 0.5.0 says, which leaves the last step out.
HTA_COMPUTATION_US = 1295
# What its `get_temporal_breakdown` says if all times are multiplied by 1000: it rounds them to microseconds, and stops
# with an AssertionError where that makes these short kernels take less than no time. It looks at the GPU from its first
# work on, and leaves out the last step but for the copy that begins it.
HTA_SPAN_NS = 12_334_330
HTA_COMPUTE_NS, HTA_NON_COMPUTE_NS, HTA_IDLE_NS = 1_546_202, 13_378, 10_774_750


@pytest.fixture(scope="module")
def trace() -> Trace:
    with TRACE.open("rb") as file:
        return read_trace(file)


def test_kernels_take_as_long_as_holistic_trace_analysis_says(trace: Trace) -> None:
    events = trace.events
    kernels = events.of_kind(EventKind.KERNEL) & (events.starts_ns < trace.steps.starts_ns[-1])
    starts_ns, ends_ns = events.starts_ns[kernels], events.ends_ns[kernels]
    # HTA rounds starts up and ends down to microseconds, which takes one from each of these short kernels.
    rounded_us = ends_ns // 1000 - -(-starts_ns // 1000)
    assert int(np.maximum(rounded_us, 0).sum()) == pytest.approx(HTA_COMPUTATION_US, rel=0.02)
    exact_us = union_of(starts_ns, ends_ns).length / 1000
    assert HTA_COMPUTATION_US < exact_us < HTA_COMPUTATION_US + kernels.sum()


def test_the_gpu_computes_copies_and_idles_as_long_as_holistic_trace_analysis_says(trace: Trace) -> None:
    events = trace.events
    first_ns = int(events.starts_ns[events.of_kind(EventKind.MEMCPY)].min())
    span = StepWindows(np.array([0]), np.array([first_ns]), np.array([first_ns + HTA_SPAN_NS]))
    (times_ns,) = split_roles(trace, span).times_ns
    copied_ns = times_ns[TimeRole.MEMCPY] + times_ns[TimeRole.MEMSET]
    assert times_ns[TimeRole.KERNEL] == pytest.approx(HTA_COMPUTE_NS, rel=0.02)
    assert copied_ns == pytest.approx(HTA_NON_COMPUTE_NS, rel=0.02)
    assert times_ns.sum() - times_ns[TimeRole.KERNEL] - copied_ns == pytest.approx(HTA_IDLE_NS, rel=0.02)


def test_the_roles_of_a_step_add_up_to_its_time(trace: Trace) -> None:
    profile = profile_trace(trace)
    roles = profile.roles
    assert len(profile.windows) == 3
    assert roles.times_ns.sum() == sum(profile.windows.ends_ns - profile.windows.starts_ns)
    # So small a model leaves the GPU idle nearly all of the time.
    assert roles.shares[TimeRole.KERNEL] == pytest.approx(0.126, abs=0.001)
    assert roles.shares[TimeRole.CPU_EXEC] + roles.shares[TimeRole.RUNTIME] > 0.5


def test_the_gpu_and_its_tensor_cores_are_known(trace: Trace) -> None:
    (gpu,) = profile_trace(trace).gpus
    assert gpu.name == "NVIDIA H200"
    assert gpu.utilization == pytest.approx(0.126, abs=0.001)
    assert gpu.sm_efficiency is not None
    assert 0 < gpu.sm_efficiency < gpu.utilization
    assert 0.1 < gpu.tensor_core_share < 0.2
    on_tensor_cores = [kernel.name for kernel in profile_trace(trace).kernels if kernel.uses_tensor_cores]
    assert any("nvjet_sm90" in name for name in on_tensor_cores)
    assert any("flash_fprop" in name for name in on_tensor_cores)

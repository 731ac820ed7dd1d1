"""GPUs: utilisation, efficiency of their multiprocessors, occupancy, tensor cores."""

import pytest

from tests.recorded_traces import kernel, launch, step, trace_of
from trainyard.insight.profiling.traces.trace_profile import profile_trace


def test_figures_are_those_of_torch_tb_profiler() -> None:
    half = {"blocks per SM": 0.5, "est. achieved occupancy %": 20}
    full = {"blocks per SM": 3.0, "est. achieved occupancy %": 60}
    events = [
        step(1, 0, 100),
        launch(1, 1, 1),
        launch(3, 1, 2),
        launch(5, 1, 3),
        launch(7, 1, 4),
        kernel("a", 10, 20, 1, **half),  # 10 to 30
        kernel("b", 20, 20, 2, **half),  # 20 to 40: both together have one block each from 20 to 30
        kernel("sm80_xmma_gemm_f16f16", 50, 10, 3, **full),
        # Another device, without figures.
        kernel("nvjet_tst_128x64", 60, 40, 4, device=1, stream=9),
    ]
    first, second = profile_trace(trace_of(events, deviceProperties=[{"id": 0, "name": "NVIDIA H200"}])).gpus
    assert (first.device, first.name, second.device, second.name) == (0, "NVIDIA H200", 1, "")
    assert first.utilization == pytest.approx(0.40)
    # 10 us at 0.5, 10 us at 0.5 + 0.5, 10 us at 0.5, 10 us at 1.
    assert first.sm_efficiency == pytest.approx((5 + 10 + 5 + 10) / 100)
    assert first.occupancy == pytest.approx((20 * 0.2 + 20 * 0.2 + 10 * 0.6) / 50)
    assert first.tensor_core_share == pytest.approx(10 / 50)
    assert second.utilization == pytest.approx(0.40)
    assert second.sm_efficiency is None
    assert second.occupancy is None
    assert second.tensor_core_share == 1


def test_what_ran_before_the_first_step_does_not_count() -> None:
    events = [
        launch(0, 1, 1),
        kernel("early", 2, 10, 1, **{"blocks per SM": 9.0, "est. achieved occupancy %": 100}),
        step(1, 20, 20),
        launch(21, 1, 2),
        kernel("own", 25, 5, 2, **{"blocks per SM": 9.0, "est. achieved occupancy %": 50}),
    ]
    (gpu,) = profile_trace(trace_of(events)).gpus
    assert gpu.utilization == pytest.approx(0.25)
    assert gpu.sm_efficiency == pytest.approx(0.25)
    assert gpu.occupancy == pytest.approx(0.5)


def test_figures_that_cannot_be_are_ignored() -> None:
    events = [step(1, 0, 10), kernel("a", 2, 5, 1, **{"blocks per SM": -3.0, "est. achieved occupancy %": -1})]
    (gpu,) = profile_trace(trace_of(events)).gpus
    assert (gpu.sm_efficiency, gpu.occupancy) == (None, None)


def test_a_program_without_a_gpu_has_none() -> None:
    profile = profile_trace(trace_of([step(1, 0, 10)]))
    assert list(profile.gpus) == []
    assert not profile.has_device

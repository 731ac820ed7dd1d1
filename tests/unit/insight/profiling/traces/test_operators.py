"""Operators and kernels: their calls, times with and without what they call, and tensor cores."""

from pathlib import Path

import pytest

from tests.recorded_traces import Event, OwnFigures, complete, kernel, launch, record_training, step, trace_of
from trainyard.formats.profiles.traces.reader import read_trace
from trainyard.insight.profiling.traces.operators import OperatorCost
from trainyard.insight.profiling.traces.trace_profile import TraceProfile, profile_trace


def operator(name: str, start: float, duration: float, number: int = 0, shape: object = None) -> Event:
    arguments = {"External id": number} | ({"Input Dims": shape} if shape is not None else {})
    return complete("cpu_op", name, start, duration, args=arguments)


def profiled(events: list[Event]) -> TraceProfile:
    return profile_trace(trace_of(events))


def by_name(profile: TraceProfile) -> dict[str, OperatorCost]:
    return {each.name: each for each in profile.operators}


def test_time_of_its_own_is_without_operators_and_calls_below() -> None:
    events = [
        operator("aten::linear", 0, 100, 1),
        operator("aten::t", 10, 20, 2),
        operator("aten::addmm", 40, 50, 3),
        launch(60, 15, 7, operator=3),
        kernel("sm90_xmma_gemm_bf16", 80, 30, 7, **{"External id": 3}),
        complete("gpu_memcpy", "Memcpy DtoD", 110, 5, 7, args={"device": 0, "External id": 1}),
    ]
    found = by_name(profiled(events))
    linear, addmm = found["aten::linear"], found["aten::addmm"]
    assert (linear.host_total_s, linear.host_self_s) == pytest.approx((100e-6, 30e-6))
    assert (addmm.host_total_s, addmm.host_self_s) == pytest.approx((50e-6, 35e-6))
    assert (linear.device_total_s, linear.device_self_s) == pytest.approx((35e-6, 5e-6))
    assert (addmm.device_total_s, addmm.device_self_s) == pytest.approx((30e-6, 30e-6))
    assert addmm.tensor_core_self_share == 1
    assert linear.tensor_core_total_share == pytest.approx(30 / 35)
    assert linear.tensor_core_self_share == 0
    assert [found[name].can_use_tensor_cores for name in ("aten::linear", "aten::t", "aten::addmm")] == [1, 0, 1]


def test_a_caller_of_an_eligible_operator_is_eligible() -> None:
    found = by_name(profiled([operator("MyFunction", 0, 10), operator("aten::bmm", 2, 3), operator("other", 6, 1)]))
    assert found["MyFunction"].can_use_tensor_cores
    assert not found["other"].can_use_tensor_cores


def test_without_an_id_the_operator_around_the_call_has_launched_it() -> None:
    events = [operator("outer", 0, 50), operator("inner", 10, 10), launch(12, 2, 9), kernel("k", 30, 7, 9)]
    found = by_name(profiled(events))
    assert found["inner"].device_self_s == pytest.approx(7e-6)
    assert found["outer"].device_self_s == 0
    assert found["outer"].device_total_s == pytest.approx(7e-6)


def test_an_operator_that_only_calls_itself_counts_once() -> None:
    events = [
        operator("aten::to", 0, 30),
        operator("aten::to", 5, 20),
        operator("aten::copy_", 10, 10),
        operator("aten::to", 40, 4),
        # With another child beside it, it is a call of its own.
        operator("aten::cat", 50, 20),
        operator("aten::cat", 52, 3),
        operator("aten::copy_", 60, 3),
    ]
    found = by_name(profiled(events))
    assert found["aten::to"].calls == 2
    assert found["aten::to"].host_total_s == pytest.approx(34e-6)
    assert found["aten::to"].host_self_s == pytest.approx(24e-6)
    assert found["aten::cat"].calls == 2
    assert found["aten::cat"].host_self_s == pytest.approx(17e-6)


def test_operators_of_threads_do_not_lie_in_each_other() -> None:
    events = [operator("a", 0, 100), complete("cpu_op", "b", 10, 20, 2)]
    assert by_name(profiled(events))["a"].host_self_s == pytest.approx(100e-6)


def test_operators_are_grouped_by_shape() -> None:
    small, large = [[2, 2], [2, 2]], [[8, 8], [8, 8]]
    events = [operator("aten::mm", 0, 10, 1, small), operator("aten::mm", 20, 30, 2, large)]
    profile = profiled([*events, operator("aten::mm", 60, 5, 3, small)])
    assert [(each.shape, each.calls) for each in profile.operators_by_shape] == [
        ("[[8, 8], [8, 8]]", 1),
        ("[[2, 2], [2, 2]]", 2),
    ]
    assert by_name(profile)["aten::mm"].calls == 3


def test_annotations_are_no_operators() -> None:
    events = [step(1, 0, 50), complete("cpu_op", "Optimizer.step#SGD.step", 1, 2), operator("aten::mm", 5, 5)]
    assert [each.name for each in profiled(events).operators] == ["aten::mm"]


@pytest.mark.parametrize("is_scheduled", [True, False])
def test_the_table_is_that_of_torch_itself(tmp_path: Path, is_scheduled: bool) -> None:
    path = tmp_path / "training.json"
    expected = record_training(path, steps=3, is_scheduled=is_scheduled)
    with path.open("rb") as file:
        profile = profile_trace(read_trace(file))
    found = {
        each.name: OwnFigures(each.calls, each.host_total_s * 1e6, each.host_self_s * 1e6) for each in profile.operators
    }
    # torch's table has annotations as well.
    assert set(found) <= set(expected)
    annotations = {name for name in expected if not name.startswith("aten::")}
    assert {name for name in expected if name.startswith("aten::")} <= set(found) | annotations
    for name, own in found.items():
        theirs = expected[name]
        assert own.calls == theirs.calls, name
        assert own.total_us == pytest.approx(theirs.total_us, abs=0.002 * own.calls), name
        if name.startswith("aten::"):
            assert own.self_us == pytest.approx(theirs.self_us, abs=0.01 * own.calls), name


def test_kernels_are_weighted_by_their_time() -> None:
    first = {"blocks per SM": 2.0, "est. achieved occupancy %": 40, "grid": [8, 1, 1], "block": [128, 1, 1]}
    second = {"blocks per SM": 1.0, "est. achieved occupancy %": 10, "grid": [4, 1, 1], "block": [128, 1, 1]}
    events = [
        operator("aten::mm", 0, 20, 4),
        kernel("ampere_s16816gemm_fp16", 30, 30, 1, **first, **{"External id": 4, "registers per thread": 32}),
        kernel("ampere_s16816gemm_fp16", 70, 10, 2, **second, **{"shared memory": 1024}),
        kernel("elementwise", 90, 5, 3),
    ]
    profile = profiled(events)
    gemm, other = profile.kernels
    assert (gemm.calls, gemm.uses_tensor_cores, other.uses_tensor_cores) == (2, True, False)
    assert (gemm.total_s, gemm.mean_s) == pytest.approx((40e-6, 20e-6))
    assert (gemm.max_s, gemm.min_s) == pytest.approx((30e-6, 10e-6))
    assert gemm.blocks_per_sm == pytest.approx(1.75)
    assert gemm.occupancy_percent == pytest.approx(32.5)
    assert other.blocks_per_sm == 0
    one, two, three = profile.kernels_by_launch
    assert (one.operator, one.grid, one.block, one.registers) == ("aten::mm", "[8, 1, 1]", "[128, 1, 1]", 32)
    assert one.can_use_tensor_cores
    assert (two.operator, two.grid, two.shared_memory_bytes) == ("", "[4, 1, 1]", 1024)
    assert three.name == "elementwise"


def test_kernels_without_a_host_are_listed() -> None:
    profile = profiled([kernel("k", 0, 5, 1)])
    assert [each.name for each in profile.kernels_by_launch] == ["k"]
    assert list(profile.operators) == []

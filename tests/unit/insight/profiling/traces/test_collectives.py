"""Collectives: their sizes and times, what computing hides of them, and who waits for whom."""

from collections.abc import Mapping

import numpy as np
import pytest

from tests.recorded_traces import complete, kernel, record_ranks, step, trace_of
from trainyard.formats.profiles.traces.reader import read_trace
from trainyard.insight.profiling.traces.collectives import CollectiveCalls, input_bytes, split_waits
from trainyard.insight.profiling.traces.roles import TimeRole
from trainyard.insight.profiling.traces.trace_profile import TraceProfile, profile_trace


def test_kernels_of_collectives_are_measured_beside_those_that_compute() -> None:
    reduce = {"Collective name": "allreduce", "In msg nelems": 1000, "dtype": "BFloat16", "Group size": 8}
    events = [
        step(1, 0, 100),
        complete("cuda_runtime", "cudaLaunchKernel", 1, 1, args={"correlation": 1}),
        kernel("gemm", 10, 30, 1),  # 10 to 40
        kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 30, 30, 2, **reduce),  # 30 to 60
        kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 70, 10, 3, **reduce),
        # Only enqueues.
        complete("user_annotation", "nccl:all_reduce", 5, 3),
    ]
    profile = profile_trace(trace_of(events))
    (cost,) = profile.collectives
    assert (cost.name, cost.calls, cost.total_bytes) == ("allreduce", 2, 4000)
    assert (cost.total_s, cost.mean_s, cost.max_s) == pytest.approx((40e-6, 20e-6, 30e-6))
    assert cost.bytes_per_s == pytest.approx(4000 / 40e-6)
    overlap = profile.overlap
    assert (overlap.computation_ns / 1000).tolist() == [30]
    assert (overlap.communication_ns / 1000).tolist() == [40]
    assert (overlap.overlap_ns / 1000).tolist() == [10]
    assert (overlap.exposed_ns / 1000).tolist() == [30]
    assert (overlap.other_ns / 1000).tolist() == [40]
    assert overlap.exposed_share == pytest.approx(0.3)
    assert profile.roles.times_ns[0, TimeRole.COMMUNICATION] == 30_000


def test_a_kernel_without_a_size_has_that_of_its_operator() -> None:
    shapes = {"External id": 8, "Input Dims": [[4, 25], []], "Input type": ["float", "Scalar"]}
    events = [
        complete("cpu_op", "record_param_comms", 0, 5, args=shapes),
        kernel("ncclKernel_Broadcast", 10, 4, 1, **{"External id": 8}),
    ]
    (cost,) = profile_trace(trace_of(events)).collectives
    assert (cost.name, cost.total_bytes) == ("ncclKernel_Broadcast", 400)


@pytest.mark.parametrize(
    ("shapes", "types", "size"),
    [
        ("[[10, 2], [], [3]]", '["float", "Scalar", "long int"]', 104),
        ("[[7]]", '["c10::Float8_e4m3fn"]', 7),
        ("[[[5]], []]", '["TensorList", ""]', 0),
        ("", "", 0),
        ("nonsense", "[]", 0),
        ('{"a": 1}', '["float"]', 0),
    ],
)
def test_the_size_of_inputs_is_that_of_their_tensors(shapes: str, types: str, size: int) -> None:
    assert input_bytes(shapes, types) == size


def calls(**durations: list[int]) -> CollectiveCalls:
    names = [name for name, times in durations.items() for _ in times]
    times = np.array([each for own in durations.values() for each in own], np.int64)
    return CollectiveCalls(names, np.zeros(len(names), np.int64), times, np.zeros(len(names), np.int64))


def test_the_shortest_call_of_all_ranks_is_the_transfer() -> None:
    ranks = {0: calls(reduce=[50, 10], gather=[7]), 1: calls(reduce=[20, 30], gather=[9, 9])}
    waits = split_waits(ranks)
    (first,), (second,) = waits[0], waits[1]
    assert (first.name, first.calls) == ("reduce", 2)
    assert (first.transfer_s, first.wait_s) == pytest.approx((30e-9, 30e-9))
    assert (second.transfer_s, second.wait_s) == pytest.approx((30e-9, 20e-9))
    assert split_waits({}) == {}
    assert split_waits({0: calls()}) == {0: []}


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Mapping[int, TraceProfile]:
    found = {}
    for rank, path in enumerate(record_ranks(tmp_path_factory.mktemp("ranks"))):
        with path.open("rb") as file:
            trace = read_trace(file)
        assert trace.distributed is not None
        assert (trace.distributed.backend, trace.distributed.rank, trace.distributed.world_size) == ("gloo", rank, 2)
        found[rank] = profile_trace(trace)
    return found


def test_collectives_of_a_real_training_have_their_sizes(ranks: Mapping[int, TraceProfile]) -> None:
    for profile in ranks.values():
        by_name = {each.name: each for each in profile.collectives}
        reduced = by_name["gloo:all_reduce"]
        # In each of two steps the gradients of 650 parameters, and a tensor of 1000.
        assert reduced.calls == 4
        assert reduced.total_bytes == 2 * (650 + 1000) * 4
        assert reduced.max_s <= reduced.total_s


def test_steps_of_a_real_training_communicate(ranks: Mapping[int, TraceProfile]) -> None:
    for profile in ranks.values():
        assert len(profile.windows) == 2
        assert (profile.roles.times_ns[:, TimeRole.COMMUNICATION] > 0).all()
        assert (profile.overlap.exposed_ns > 0).all()
        assert profile.roles.times_ns.sum(axis=1).tolist() == profile.windows.durations_ns.tolist()


def test_waits_of_a_real_training_are_divided(ranks: Mapping[int, TraceProfile]) -> None:
    waits = split_waits({rank: profile.collective_calls for rank, profile in ranks.items()})
    both = [next(each for each in waits[rank] if each.name == "gloo:all_reduce") for rank in ranks]
    assert both[0].transfer_s == both[1].transfer_s > 0
    for rank, own in zip(ranks, both, strict=True):
        (total,) = (each.total_s for each in ranks[rank].collectives if each.name == "gloo:all_reduce")
        assert own.transfer_s + own.wait_s == pytest.approx(total)

"""Operations and bytes of operators, and where they lie under the roof of a device."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.profiler import profile
from torch.utils.flop_counter import FlopCounterMode

from tests.recorded_traces import CPU, complete, kernel, trace_of
from trainyard.formats.profiles.traces.reader import read_trace
from trainyard.insight.profiling.traces.flops import operator_work
from trainyard.insight.profiling.traces.roofline import DeviceRoof, RoofSide, find_roof
from trainyard.insight.profiling.traces.trace_profile import profile_trace

ROOF = DeviceRoof(half_flops=100e12, tensor_flops=50e12, single_flops=10e12, bytes_per_s=1e12)


def linear() -> torch.Tensor:
    return nn.Linear(32, 16)(torch.randn(8, 32, requires_grad=True)).sum()


def batched() -> torch.Tensor:
    return torch.bmm(torch.randn(4, 8, 16, requires_grad=True), torch.randn(4, 16, 2)).sum()


def convolution() -> torch.Tensor:
    return nn.Conv2d(4, 8, 3, stride=2, padding=1)(torch.randn(2, 4, 15, 11, requires_grad=True)).sum()


def dilated() -> torch.Tensor:
    return nn.Conv1d(4, 6, 3, dilation=2, bias=False)(torch.randn(2, 4, 20, requires_grad=True)).sum()


def transposed() -> torch.Tensor:
    return nn.ConvTranspose2d(4, 6, 3, stride=2)(torch.randn(2, 4, 5, 5, requires_grad=True)).sum()


def attention() -> torch.Tensor:
    query, key, value = (torch.randn(2, 4, length, 16, requires_grad=True) for length in (8, 12, 12))
    return nn.functional.scaled_dot_product_attention(query, key, value).sum()


def network() -> torch.Tensor:
    layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 6 * 6, 10), nn.Linear(10, 2))
    return layers(torch.randn(5, 3, 8, 8)).sum()


def grouped() -> torch.Tensor:
    return nn.Conv2d(4, 8, 3, stride=2, padding=1, groups=2)(torch.randn(2, 4, 15, 11, requires_grad=True)).sum()


def counted(program: Callable[[], torch.Tensor], folder: Path) -> float:
    """Return the operations of a program and its backward, as read from a trace of it."""
    path = folder / "trace.json"
    with profile(activities=CPU, record_shapes=True) as recorder:
        program().backward()
    recorder.export_chrome_trace(str(path))
    with path.open("rb") as file:
        points = profile_trace(read_trace(file)).roofline
    assert all(each.seconds > 0 and each.moved_bytes > 0 for each in points)
    assert all(each.side is None for each in points)
    return sum(each.flops for each in points)


@pytest.mark.parametrize(
    "program", [linear, batched, convolution, dilated, transposed, network], ids=lambda each: each.__name__
)
def test_operations_are_those_that_torch_counts(program: Callable[[], torch.Tensor], tmp_path: Path) -> None:
    with FlopCounterMode(display=False) as counter:
        program().backward()
    assert counted(program, tmp_path) == counter.get_total_flops() > 0


def test_operations_that_torch_does_not_count_are_those_of_arithmetic(tmp_path: Path) -> None:
    # torch counts no attention on a CPU. Products of 8 queries and 12 keys, of 16 each: two forward, five backward.
    assert counted(attention, tmp_path) == 2 * (2 * 4) * 8 * 12 * (2 * 16 + 5 * 16)
    # torch counts the gradients of grouped weights once for each group. Each output meets half of the channels.
    assert counted(grouped, tmp_path) == 3 * 2 * (2 * 8 * 8 * 6) * (2 * 3 * 3)


def test_bytes_are_inputs_read_and_outputs_written_once() -> None:
    work = operator_work("aten::mm", "[[4, 8], [8, 2]]", '["c10::BFloat16", "c10::BFloat16"]')
    assert work is not None
    assert (work.flops, work.moved_bytes) == (2 * 4 * 8 * 2, 2 * (32 + 16 + 8))


@pytest.mark.parametrize(
    ("name", "shapes", "types"),
    [
        ("aten::relu", "[[4, 8]]", '["float"]'),
        ("aten::mm", "", ""),
        ("aten::mm", "[[4, 8], [9, 2]]", '["float", "float"]'),
        ("aten::mm", "[[4, 8], [8, 2]]", "[]"),
        ("aten::mm", "[[0, 8], [8, 2]]", '["float", "float"]'),
        ("aten::mm", "nonsense", "[]"),
        ("aten::mm", '{"a": 1}', '["float"]'),
        ("aten::conv2d", "[[1, 3, 8, 8], [4, 3, 3, 3]]", '["float", "float"]'),
    ],
)
def test_what_is_not_known_has_no_work(name: str, shapes: str, types: str) -> None:
    assert operator_work(name, shapes, types) is None


def test_operators_lie_on_their_side_of_the_ridge() -> None:
    half, single = ["c10::BFloat16"] * 2, ["float"] * 2
    wide, thin = [[1000, 1000], [1000, 1000]], [[1000, 1000], [1000, 1]]
    events = [
        complete("cpu_op", "aten::linear", 0, 9, args={"Input Dims": wide, "Input type": half}),
        complete("cpu_op", "aten::mm", 1, 5, args={"External id": 1, "Input Dims": wide, "Input type": half}),
        complete("cpu_op", "aten::mm", 10, 5, args={"External id": 2, "Input Dims": thin, "Input type": half}),
        complete("cpu_op", "aten::mm", 20, 5, args={"External id": 3, "Input Dims": wide, "Input type": single}),
        kernel("nvjet_tst", 30, 40, 1, **{"External id": 1}),
        kernel("gemv", 80, 4, 2, **{"External id": 2}),
        kernel("sgemm", 90, 400, 3, **{"External id": 3}),
    ]
    points = profile_trace(trace_of(events), roof=ROOF).roofline
    by_time = {round(each.seconds * 1e6): each for each in points}
    assert set(by_time) == {40, 4, 400}
    # 2e9 operations at 100e12 take 20 us.
    assert by_time[40].side is RoofSide.COMPUTE
    assert by_time[40].reached_share == pytest.approx(0.5)
    # 2,004,000 bytes at 1e12 take 2.004 us.
    assert by_time[4].side is RoofSide.MEMORY
    assert by_time[4].reached_share == pytest.approx(2.004 / 4)
    # Without tensor cores, 2e9 operations at 10e12 take 200 us.
    assert by_time[400].reached_share == pytest.approx(0.5)
    assert by_time[40].intensity == pytest.approx(2e9 / 6e6)
    assert by_time[40].flops_per_s == pytest.approx(50e12)


@pytest.mark.parametrize(
    ("gpu", "flops"),
    [("NVIDIA H200", 989e12), ("NVIDIA A100-SXM4-80GB", 312e12), ("Tesla T4", 65e12), ("NVIDIA L40S", 362e12)],
)
def test_the_roof_of_a_gpu_is_found_by_its_name(gpu: str, flops: float) -> None:
    roof = find_roof(gpu)
    assert roof is not None
    assert roof.half_flops == flops


def test_an_unknown_gpu_has_no_roof() -> None:
    assert find_roof("Some Accelerator") is None

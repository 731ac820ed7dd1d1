"""The statistics of tensors equal numpy's in 64 bits, on every device."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.checkpoint import checkpoint

from trainyard.formats.tensors.contract import ABSENT, Kind, Measure, Probe, Statistic, TensorInfo, TensorTable
from trainyard.formats.tensors.statistics import histograms, probes
from trainyard.instance.hook.statistics import cuda
from trainyard.instance.hook.statistics.contract import StepStatistics
from trainyard.instance.hook.statistics.elements import obstacle
from trainyard.instance.hook.statistics.step_reducer import make_reducer

NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA GPU")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=NEEDS_GPU), pytest.param("cuda, plain", marks=NEEDS_GPU)])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A device, and on a GPU either of the two reductions."""
    name, _, way = str(request.param).partition(", ")
    if way:
        monkeypatch.setattr(cuda, "choose_reduction", lambda device: cuda.PlainReduction())
    torch.manual_seed(3)
    return name


def table_of(tensors: Sequence[torch.Tensor | None], measures: Sequence[Measure] = ()) -> TensorTable:
    shapes = [() if tensor is None else tuple(tensor.shape) for tensor in tensors]
    infos = (TensorInfo(f"t{place}", Kind.WEIGHT, shape, "") for place, shape in enumerate(shapes))
    return TensorTable(tuple(infos), tuple(measures))


def reduce(
    *tensors: torch.Tensor | None, measures: Sequence[Measure] = (), has_histograms: bool = False
) -> StepStatistics:
    reducer = make_reducer()
    reducer.prepare(table_of(tensors, measures))
    reducer.reduce(range(len(tensors)), tensors, has_histograms=has_histograms)
    pending = reducer.finish()
    assert pending is not None
    return pending.result()


def expected(tensor: torch.Tensor) -> NDArray[np.float64]:
    values = tensor.detach().double().cpu().numpy()
    with np.errstate(all="ignore"):
        scale = np.abs(values).max() if np.isfinite(values).all() else 1.0  # whose square 64 bits hold
        std = (values / (scale or 1.0)).std() * scale
        return np.array(
            [
                values.mean(),
                std,
                np.abs(values).mean(),
                values.min(),
                values.max(),
                np.count_nonzero(values == 0),
                np.count_nonzero(np.isnan(values)),
                np.count_nonzero(np.isinf(values)),
            ]
        )


def assert_right(row: NDArray[np.float32], tensor: torch.Tensor) -> None:
    wanted = expected(tensor)
    exact = [Statistic.MIN, Statistic.MAX, Statistic.ZEROS, Statistic.NANS, Statistic.INFS]
    np.testing.assert_array_equal(row[exact], wanted[exact].astype(np.float32))
    np.testing.assert_allclose(
        row[[Statistic.STD, Statistic.MEAN_ABS]], wanted[[Statistic.STD, Statistic.MEAN_ABS]], rtol=1e-4
    )
    # A mean near zero is a difference of large sums, right to a few digits of what was summed.
    slack = 1e-5 * wanted[Statistic.MEAN_ABS] if np.isfinite(wanted[Statistic.MEAN_ABS]) else 0.0
    np.testing.assert_allclose(row[Statistic.MEAN], wanted[Statistic.MEAN], rtol=1e-5, atol=slack)


SIZES = (1, 2, 127, 8192, 8193, 131_072, 300_001)
MAKERS: dict[str, Callable[[int], torch.Tensor]] = {
    "noise": torch.randn,
    "tiny gradients": lambda size: torch.randn(size) * 1e-25,
    "numbers too small for an exponent": lambda size: torch.randn(size) * 1e-38,
    "squares beyond the range": lambda size: torch.randn(size) * 1e30,
    "sums beyond the range": lambda size: torch.full((size,), 3e38) - torch.rand(size) * 1e38,
    "a mean far from zero": lambda size: torch.randn(size) + 1e5,
    "a mean near one": lambda size: 1 + 0.001 * torch.randn(size),
    "one outlier": lambda size: torch.cat([torch.randn(size - 1) * 1e-6, torch.tensor([1e3])]),
    "constant": lambda size: torch.full((size,), 0.1),
    "zeros": torch.zeros,
    "mostly zeros": lambda size: torch.relu(torch.randn(size) - 2),
    "negative zeros": lambda size: -torch.relu(torch.randn(size)),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_every_statistic_is_that_of_numpy_in_64_bits(device: str, kind: str) -> None:
    tensors = [MAKERS[kind](size).to(device) for size in SIZES]
    for row, tensor in zip(reduce(*tensors).statistics, tensors, strict=True):
        assert_right(row, tensor)


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2]
)
def test_every_floating_type_has_statistics(device: str, dtype: torch.dtype) -> None:
    tensors = [(torch.randn(size) * 3).to(dtype).to(device) for size in SIZES]
    for row, tensor in zip(reduce(*tensors).statistics, tensors, strict=True):
        assert_right(row, tensor)


def test_integers_and_booleans_have_statistics(device: str) -> None:
    tensors = [torch.arange(-5, 2000), torch.arange(200, dtype=torch.uint8), torch.rand(999) > 0.5]
    on_device = [tensor.to(device) for tensor in tensors]
    for row, tensor in zip(reduce(*on_device).statistics, tensors, strict=True):
        assert_right(row, tensor)


@pytest.mark.parametrize("size", [3, 9000, 150_000])
@pytest.mark.parametrize(
    "strange", [[torch.nan], [torch.inf], [-torch.inf], [torch.inf, -torch.inf], [torch.nan, torch.inf]]
)
def test_a_single_nan_or_infinity_is_counted_and_shows_in_the_mean(
    device: str, size: int, strange: list[float]
) -> None:
    tensor = torch.randn(size)
    tensor[-len(strange) :] = torch.tensor(strange)
    (row,) = reduce(tensor.to(device)).statistics
    assert_right(row, tensor)


def test_tensors_of_any_layout_count_each_element_once(device: str) -> None:
    square = torch.randn(60, 70, device=device)
    images = torch.randn(4, 3, 50, 60, device=device).to(memory_format=torch.channels_last)
    tensors = [square.t(), square[::2, 1:], square[0, 0], images, torch.randn(3, 1, device=device).expand(3, 5000)]
    for row, tensor in zip(reduce(*tensors).statistics, tensors, strict=True):
        assert_right(row, tensor)


def test_the_zeros_of_a_sparse_gradient_count(device: str) -> None:
    embedding = torch.nn.Embedding(1000, 16, sparse=True, device=device)
    embedding(torch.tensor([1, 5, 5, 7], device=device)).square().sum().backward()
    gradient = embedding.weight.grad
    assert gradient is not None
    reduced = reduce(gradient, has_histograms=True)
    assert_right(reduced.statistics[0], gradient.to_dense())
    assert reduced.histograms is not None
    np.testing.assert_array_equal(reduced.histograms[0], histograms.count(gradient.to_dense().cpu().numpy()))


def test_a_sharded_tensor_is_reduced_in_its_local_part() -> None:
    distributed.init_process_group("fake", store=FakeStore(), rank=1, world_size=2)
    try:
        mesh = init_device_mesh("cpu", (2,))
        whole = torch.arange(20_000.0).reshape(20, 1000)
        part = whole[10:].clone()
        (row,) = reduce(DTensor.from_local(part, mesh, [Shard(0)])).statistics
        assert_right(row, part)
    finally:
        distributed.destroy_process_group()


def test_tensors_without_statistics_are_absent_for_a_stated_reason(device: str) -> None:
    complex_numbers = torch.randn(4, dtype=torch.complex64, device=device)
    nowhere = torch.empty(4, device="meta")
    reduced = reduce(None, complex_numbers, nowhere, torch.ones(2, device=device))
    assert reduced.statistics[:, Statistic.NANS].tolist() == [ABSENT, ABSENT, ABSENT, 0]
    assert "complex" in obstacle(complex_numbers)
    assert obstacle(nowhere)


def test_an_empty_tensor_has_no_mean_and_counts_nothing(device: str) -> None:
    (row,) = reduce(torch.empty(0, 5, device=device)).statistics
    assert np.isnan(row[: Statistic.ZEROS]).all()
    assert row[Statistic.ZEROS :].tolist() == [0, 0, 0]


def test_a_tensor_of_one_element_has_its_exact_value(device: str) -> None:
    loss = torch.tensor(0.1 + 1e-12, dtype=torch.float64, device=device)
    reduced = reduce(torch.zeros(2, device=device), loss, None)
    np.testing.assert_array_equal(reduced.scalars, [0.1 + 1e-12, np.nan])


def test_a_tensor_may_change_right_after_reduce_returns(device: str) -> None:
    weight = torch.randn(50_000, device=device)
    before = weight.clone()
    reducer = make_reducer()
    reducer.prepare(table_of([weight, weight]))
    reducer.reduce([0], [weight])
    weight.fill_(7)
    reducer.reduce([1], [weight])
    pending = reducer.finish()
    assert pending is not None
    reduced = pending.result()
    assert_right(reduced.statistics[0], before)
    assert reduced.statistics[1, Statistic.MAX] == 7


def test_each_step_stands_for_itself(device: str) -> None:
    reducer = make_reducer()
    first, second = torch.randn(9000, device=device), torch.randn(9000, device=device)
    reducer.prepare(table_of([first, second]))
    reducer.reduce([0, 1], [first, second])
    both = reducer.finish()
    reducer.reduce([0, 1], [second, None])
    one = reducer.finish()
    nothing = reducer.finish()
    assert both is not None
    assert one is not None
    assert nothing is not None
    assert_right(both.result().statistics[1], second)
    assert_right(one.result().statistics[0], second)
    assert (nothing.result().statistics[:, Statistic.NANS] == ABSENT).all()


def test_a_size_may_change_from_step_to_step(device: str) -> None:
    reducer = make_reducer()
    reducer.prepare(table_of([torch.zeros(4), torch.zeros(4)]))
    for size in (20_000, 100, 40_000, 20_000):
        tensors = [torch.randn(size, device=device), torch.randn(size + 1, device=device)]
        reducer.reduce((0, 1), tensors)
        pending = reducer.finish()
        assert pending is not None
        for row, tensor in zip(pending.result().statistics, tensors, strict=True):
            assert_right(row, tensor)


def test_a_histogram_is_computed_on_request(device: str) -> None:
    values = torch.randn(100_000) * torch.exp2(torch.randint(-140, 100, (100_000,)).float())
    values[:5] = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan])
    tensors = [values.to(device), torch.randn(5000, device=device), torch.randn(5000, device=device).bfloat16()]
    reduced = reduce(*tensors, has_histograms=True)
    assert reduced.histogram_places == (0, 1, 2)
    assert reduced.histograms is not None
    for counts, tensor in zip(reduced.histograms, tensors, strict=True):
        np.testing.assert_array_equal(counts, histograms.count(tensor.float().cpu().numpy()))
    assert reduce(*tensors).histograms is None


def test_measures_are_taken_with_the_tensors_they_are_of(device: str) -> None:
    weight, embedding = torch.randn(3, 4000, device=device), torch.randn(10, 4, device=device)
    update, zero_rows = Probe(probes.UPDATE_RATIO, (1e-9,)), Probe(probes.ZERO_ROWS)
    reducer = make_reducer()
    reducer.prepare(table_of([weight, embedding], [Measure(0, update), Measure(1, zero_rows)]))
    embedding[:4] = 0
    seen = []
    for _ in range(2):
        reducer.reduce((0, 1), (weight, embedding))
        pending = reducer.finish()
        assert pending is not None
        seen.append(pending.result().measures)
        weight *= 1.01
    np.testing.assert_allclose(seen, [[np.nan, 0.4], [0.01, 0.4]], rtol=1e-3)


def test_nothing_is_recorded_for_the_backward_pass(device: str) -> None:
    weight = torch.randn(9000, device=device, requires_grad=True)
    loss = (weight * 2).sum()
    reduce(weight, loss)
    loss.backward()
    assert weight.grad is not None
    assert (weight.grad == 2).all()


def test_statistics_can_be_taken_inside_inference_mode_and_checkpointing(device: str) -> None:
    reducer = make_reducer()
    weight = torch.randn(10, 20_000, device=device, requires_grad=True)
    reducer.prepare(table_of([weight]))

    def forward(values: torch.Tensor) -> torch.Tensor:
        reducer.reduce((0,), (values,))
        return values.sum()

    with torch.inference_mode():
        forward(weight)
    checkpoint(forward, weight, use_reentrant=False).backward()
    pending = reducer.finish()
    assert pending is not None
    assert_right(pending.result().statistics[0], weight)


@NEEDS_GPU
def test_on_a_gpu_the_same_tensors_give_the_same_bits() -> None:
    tensors = [torch.randn(size, device="cuda") for size in SIZES]
    first, second = reduce(*tensors), reduce(*tensors)
    np.testing.assert_array_equal(first.statistics, second.statistics)


@NEEDS_GPU
def test_the_kernels_are_used_on_a_gpu() -> None:
    chosen = cuda.choose_reduction(torch.device("cuda", 0))
    assert type(chosen).__name__ == "FusedReduction"


@NEEDS_GPU
def test_steps_are_dropped_while_nobody_reads() -> None:
    reducer = make_reducer()
    tensor = torch.randn(100, device="cuda")
    reducer.prepare(table_of([tensor]))
    pendings = []
    for _ in range(20):
        reducer.reduce((0,), (tensor,))
        pendings.append(reducer.finish())
    kept = [pending for pending in pendings if pending is not None]
    assert 4 <= len(kept) < 20
    for pending in kept:
        assert_right(pending.result().statistics[0], tensor)
    reducer.reduce((0,), (tensor,))
    assert reducer.finish() is not None


@NEEDS_GPU
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature")  # it sees what is used here
def test_nothing_on_a_gpu_is_waited_for() -> None:
    tensors = [torch.randn(5000, device="cuda"), torch.randn(300, 300, device="cuda").bfloat16()]
    words = [Probe(probes.UPDATE_RATIO, (1e-9,)), Probe(probes.QUANTILE_RANGE, (0.05, 0.95)), Probe(probes.CHECKSUM)]
    reducer = make_reducer()
    reducer.prepare(table_of(tensors, [Measure(place, word) for place in range(2) for word in words]))
    reducer.reduce((0, 1), tensors, has_histograms=True)
    reducer.finish()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(3):
            fresh = [tensor.clone() for tensor in tensors]
            reducer.reduce((0, 1), fresh, has_histograms=True)
            reducer.finish()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@NEEDS_GPU
def test_a_graph_that_is_being_captured_is_left_alone() -> None:
    reducer = make_reducer()
    tensor = torch.randn(1000, device="cuda")
    reducer.prepare(table_of([tensor]))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        doubled = tensor * 2
        reducer.reduce((0,), (doubled,))
    graph.replay()
    assert torch.equal(doubled, tensor * 2)
    reducer.reduce((0,), (doubled,))
    pending = reducer.finish()
    assert pending is not None
    assert_right(pending.result().statistics[0], doubled)


@NEEDS_GPU
def test_tensors_of_a_processor_and_a_gpu_are_in_one_step() -> None:
    tensors = [torch.randn(100), torch.randn(9000, device="cuda"), torch.tensor(3.0)]
    for row, tensor in zip(reduce(*tensors).statistics, tensors, strict=True):
        assert_right(row, tensor)

"""Probes of a tensor during training and of its saved values give the same number."""

import math

import numpy as np
import pytest
import torch

from trainyard.formats.tensors.contract import Measure, Probe
from trainyard.formats.tensors.statistics import probes
from trainyard.insight.rules.probes import probe_values
from trainyard.instance.hook.statistics.probes import ProbeRunner

NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=NEEDS_GPU)]

ATTENTION = torch.softmax(3 * torch.randn(4, 8, 20, generator=torch.Generator().manual_seed(1)), dim=-1)
ACTIVATION = torch.relu(torch.randn(32, 40, 6, generator=torch.Generator().manual_seed(2)) - 1.5)
WEIGHT = torch.randn(300, 200, generator=torch.Generator().manual_seed(3))
CASES = {
    "idle units": (Probe(probes.IDLE_UNITS, (0.0, math.inf, 0.05)), ACTIVATION),
    "idle units of a vector": (Probe(probes.IDLE_UNITS, (0.0, 1.0, 0.5)), torch.rand(17)),
    "quantiles": (Probe(probes.QUANTILE_RANGE, (0.05, 0.95)), WEIGHT),
    "quantiles of half precision": (Probe(probes.QUANTILE_RANGE, (0.0, 1.0)), WEIGHT.bfloat16()),
    "quantiles with a NaN": (Probe(probes.QUANTILE_RANGE, (0.1, 0.9)), torch.tensor([1.0, math.nan, 2.0])),
    "zero rows": (Probe(probes.ZERO_ROWS), ACTIVATION[:, :, 0]),
    "entropy": (Probe(probes.ROW_ENTROPY), ATTENTION),
    "entropy of certainty": (Probe(probes.ROW_ENTROPY), torch.eye(5)),
    "a channel": (Probe(probes.CHANNEL_MEAN, (1, 2)), torch.randn(8, 3, 10, 10) + torch.arange(3).view(3, 1, 1)),
    "a channel that is not there": (Probe(probes.CHANNEL_MEAN, (1, 3)), torch.randn(8, 3, 10, 10)),
    "a value": (Probe(probes.VALUE_SHARE, (3,)), torch.arange(1000) % 7),
    "checksum": (Probe(probes.CHECKSUM), WEIGHT),
    "checksum of half precision": (Probe(probes.CHECKSUM), WEIGHT.half()),
    "checksum of 64 bits": (Probe(probes.CHECKSUM), WEIGHT.double() / 3),
    "checksum of integers": (Probe(probes.CHECKSUM), torch.arange(-50, 5000)),
}


def measured(probe: Probe, *steps: torch.Tensor) -> float:
    """Return the probe of a table's only tensor at the last step."""
    probing = ProbeRunner([Measure(0, probe)])
    taken = [list(probing.measure((0,), (tensor,))) for tensor in steps][-1]
    assert len(taken) <= 1
    return float(taken[0].values[0]) if taken else math.nan


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", CASES)
def test_torch_and_numpy_agree(case: str, device: str) -> None:
    probe, tensor = CASES[case]
    saved = (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy()
    assert measured(probe, tensor.to(device)) == pytest.approx(probe_values(probe, saved), rel=1e-5, nan_ok=True)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "probe", [Probe(probes.UPDATE_RATIO, (1e-9,)), Probe(probes.UPDATE_NORM_RATIO), Probe(probes.COSINE)]
)
def test_torch_and_numpy_agree_on_updates(probe: Probe, device: str) -> None:
    later = WEIGHT + 1e-3 * torch.randn(WEIGHT.shape, generator=torch.Generator().manual_seed(4))
    wanted = probe_values(probe, later.numpy(), WEIGHT.numpy())
    assert measured(probe, WEIGHT.to(device), later.to(device)) == pytest.approx(wanted, rel=1e-4)
    assert math.isnan(measured(probe, WEIGHT.to(device)))
    assert math.isnan(probe_values(probe, WEIGHT.numpy()))


def test_an_update_is_that_of_the_last_step_alone() -> None:
    steps = [WEIGHT, WEIGHT * 2, WEIGHT * 2, WEIGHT * 3]
    probe = Probe(probes.UPDATE_RATIO, (0.0,))
    assert measured(probe, *steps[:3]) == 0
    assert measured(probe, *steps) == pytest.approx(0.5)


@pytest.mark.parametrize("device", DEVICES)
def test_measures_of_many_weights_do_not_mix(device: str) -> None:
    weights = [torch.full((size,), 2.0, device=device) for size in (1, 5000, 7, 100_000)]
    weights[2][0] = math.nan
    words = [Probe(probes.UPDATE_RATIO, (0.0,)), Probe(probes.CHECKSUM)]
    probing = ProbeRunner([Measure(place, word) for word in words for place in range(4)])
    values = np.full(8, np.nan)
    for factor in (1.0, 1.5):
        for taken in probing.measure(range(4), [weight * factor for weight in weights]):
            values[list(taken.measures)] = taken.values.cpu().numpy()
    np.testing.assert_allclose(values[:4], [0.5, 0.5, np.nan, 0.5])
    alone = [probe_values(words[1], (weight * 1.5).cpu().numpy()) for weight in weights]
    np.testing.assert_array_equal(values[4:], alone)


def test_one_changed_bit_changes_the_checksum() -> None:
    probe = Probe(probes.CHECKSUM)
    changed = WEIGHT.clone()
    changed.view(torch.int32)[0, 0] ^= 1
    assert measured(probe, changed) != measured(probe, WEIGHT)
    swapped = WEIGHT[:2, :20].flip(0)
    assert measured(probe, swapped) != measured(probe, WEIGHT[:2, :20])


def test_the_rows_that_a_sparse_gradient_does_not_name_are_zero() -> None:
    embedding = torch.nn.Embedding(10, 2, sparse=True)
    used = embedding(torch.tensor([1, 1, 4]))
    (used[:2].sum() + 0 * used[2].sum()).backward()
    gradient = embedding.weight.grad
    assert gradient is not None
    assert measured(Probe(probes.ZERO_ROWS), gradient) == pytest.approx(0.9)


def test_a_unit_that_is_active_just_often_enough_is_not_idle() -> None:
    batch = torch.zeros(100, 2)
    batch[:7, 0] = 1
    batch[:6, 1] = 1
    probe = Probe(probes.IDLE_UNITS, (0.0, math.inf, 0.07))
    assert measured(probe, batch) == 0.5
    assert probe_values(probe, batch.numpy()) == 0.5

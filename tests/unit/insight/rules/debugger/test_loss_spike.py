import numpy as np
import pytest

from tests.unit.insight.rules.steps import found_by, losses
from trainyard.formats.tensors.contract import Mode

RANDOM = np.random.default_rng(0)
USUAL = [float(np.exp(each)) for each in RANDOM.normal(0, 0.2, 60)]


def test_a_jump_is_found_at_its_step() -> None:
    (finding,) = found_by("LossSpike", losses([*USUAL, 30.0, 1.0, 1.1]))
    assert (finding.step, finding.threshold) == (60, 10)
    assert finding.value == pytest.approx(17, abs=3)
    assert finding.evidence[0].values[-1] == 30.0


def test_noise_is_not_found() -> None:
    assert found_by("LossSpike", losses([*USUAL, 1.9])) == []


def test_a_loss_that_varies_by_factors_may_do_so_again() -> None:
    varying = [float(np.exp(each)) for each in RANDOM.normal(-3, 1, 60)]
    assert found_by("LossSpike", losses([*varying, 1.0])) == []


def test_a_jump_from_a_steady_loss_must_be_to_twice_of_it() -> None:
    steady = [1.0 + 1e-4 * (step % 3) for step in range(40)]
    assert found_by("LossSpike", losses([*steady, 1.9])) == []
    assert found_by("LossSpike", losses([*steady, 2.1])) != []


def test_the_beginning_is_not_judged() -> None:
    assert found_by("LossSpike", losses([1.0] * 19 + [1000.0])) == []


def test_losses_below_zero_are_judged_as_they_are() -> None:
    below = [float(each) for each in RANDOM.normal(-5, 0.1, 40)]
    assert [finding.step for finding in found_by("LossSpike", losses([*below, 3.0]))] == [40]


def test_evaluations_are_not_judged() -> None:
    assert found_by("LossSpike", losses([*USUAL, 30.0], mode=Mode.EVAL)) == []

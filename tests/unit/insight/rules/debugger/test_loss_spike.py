import numpy as np
import pytest

from tests.unit.insight.rules.steps import Run, found_by, losses
from trainyard.formats.tensors.contract import Mode

LOSS = "CrossEntropyLoss_output_0"
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


def test_a_jump_is_told_in_robust_deviations_of_the_logarithms() -> None:
    (finding,) = found_by("LossSpike", losses([*USUAL, 30.0]))
    before = np.log(USUAL[-50:])
    deviation = 1.4826 * np.median(np.abs(before - np.median(before)))
    assert finding.value == pytest.approx((np.log(30.0) - np.median(before)) / deviation)
    assert "from about" in finding.message
    assert f"{finding.value:.0f} deviations above the last 49 steps; the limit is 10" in finding.message
    assert list(finding.evidence[0].steps) == list(range(11, 61))


def test_losses_below_zero_have_the_deviations_of_themselves() -> None:
    below = [float(each) for each in np.random.default_rng(1).normal(-5, 0.1, 40)]
    (finding,) = found_by("LossSpike", losses([*below, 3.0]))
    deviation = 1.4826 * np.median(np.abs(np.array(below) - np.median(below)))
    assert finding.value == pytest.approx((3.0 - np.median(below)) / deviation)


@pytest.mark.parametrize(("loss", "is_found"), [(3.0, True), (2.999, False)])
def test_so_many_times_the_usual_is_a_jump(loss: float, is_found: bool) -> None:
    steady = [1.0] * 10 + [1.0 + 1e-9] + [1.0] * 10
    assert bool(found_by("LossSpike", losses([*steady, loss]), ratio="3")) is is_found


def test_so_many_deviations_are_a_jump() -> None:
    run = [*USUAL, 30.0]
    (finding,) = found_by("LossSpike", losses(run))
    assert finding.value is not None
    assert len(found_by("LossSpike", losses(run), threshold=repr(finding.value))) == 1
    assert found_by("LossSpike", losses(run), threshold=repr(finding.value * 1.0001)) == []


def test_twenty_losses_are_enough_to_know_what_is_usual_and_a_window_holds_the_last() -> None:
    assert [finding.step for finding in found_by("LossSpike", losses([1.0] * 20 + [1000.0]))] == [20]
    risen = [1.0] * 60 + [100.0 + 0.01 * (step % 5) for step in range(40)]
    assert [finding.step for finding in found_by("LossSpike", losses(risen), window="20")] == list(range(60, 70))


def test_each_worker_and_each_loss_has_a_usual_of_its_own() -> None:
    runs = Run("worker_0"), Run("worker_1")
    steps = [run.step({LOSS: loss, "MSELoss_output_0": 50.0}) for run, loss in zip(runs, (1.0, 100.0), strict=True)]
    steps += [
        run.step({LOSS: loss, "MSELoss_output_0": 50.0})
        for _ in range(30)
        for run, loss in zip(runs, (1.0, 100.0), strict=True)
    ]
    assert found_by("LossSpike", steps) == []


def test_what_is_not_finite_is_neither_judged_nor_usual() -> None:
    assert found_by("LossSpike", losses([1.0] * 25 + [np.nan, np.inf])) == []
    assert [finding.step for finding in found_by("LossSpike", losses([*[1.0, np.nan] * 20, 9.0]))] == [40]

import numpy as np
import pytest

from tests.unit.insight.rules.steps import Run, found_by, losses
from trainyard.formats.tensors.contract import Mode
from trainyard.foundation.errors import InvalidRequest
from trainyard.insight.rules.catalog import make_rule

LOSS = "CrossEntropyLoss_output_0"


def test_a_loss_that_stays_is_found_ten_steps_later() -> None:
    (finding,) = found_by("LossNotDecreasing", losses([2.0 - 0.1 * step for step in range(11)] + [1.0] * 12))
    assert (finding.tensor, finding.step, finding.value, finding.threshold) == (LOSS, 20, 0, -0.1)
    assert "from 1 at step 10 to 1 at step 20" in finding.message


def test_a_loss_that_falls_is_not_found() -> None:
    assert found_by("LossNotDecreasing", losses([2.0 * 0.99**step for step in range(100)])) == []


def test_a_small_rise_is_allowed_and_a_large_one_is_found() -> None:
    assert found_by("LossNotDecreasing", losses([1.0] + [1.04] * 10)) == []
    (finding,) = found_by("LossNotDecreasing", losses([1.0] + [1.2] * 10))
    assert finding.value == pytest.approx(20)
    assert finding.threshold == 5


def test_between_two_looks_lie_at_least_so_many_steps() -> None:
    # Saved at every third step, a loss is compared with the one twelve steps before: the next that is ten back or more.
    run = Run()
    every_third = [run.step({LOSS: 1.0} if step % 3 == 0 else {"scalar/x": 0.0}) for step in range(40)]
    assert [finding.step for finding in found_by("LossNotDecreasing", every_third)] == [12, 24, 36]


def test_only_the_mode_that_is_asked_for_is_judged() -> None:
    run = Run()
    steps = [
        run.step({LOSS: 1.0}, mode=Mode.EVAL) if step % 2 else run.step({LOSS: 1 / (step + 1)}) for step in range(40)
    ]
    assert found_by("LossNotDecreasing", steps, mode="TRAIN") == []
    assert found_by("LossNotDecreasing", steps, mode="EVAL") != []


def test_noise_on_a_loss_that_falls_is_not_found_with_the_advised_defaults() -> None:
    noise = np.random.default_rng(0).normal(0, 0.3, 400)
    steps = losses([float(1.0 + 1.0 / (1 + step / 50) + noise[step]) for step in range(400)])
    assert found_by("LossNotDecreasing", steps) != []
    assert found_by("LossNotDecreasing", steps, defaults="advised") == []


def test_noise_on_a_loss_that_stays_is_found_with_the_advised_defaults() -> None:
    noise = np.random.default_rng(0).normal(0, 0.02, 400)
    found = found_by("LossNotDecreasing", losses([float(2.3 + each) for each in noise]), defaults="advised")
    assert found[0].step == 198  # the first 50 losses against the 50 that begin 100 steps after them


def test_a_loss_that_is_nan_is_left_to_other_rules() -> None:
    assert found_by("LossNotDecreasing", losses([1.0] + [np.nan] * 20)) == []


def test_no_loss_at_all_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="LossNotDecreasing has no loss to look at"):
        make_rule("LossNotDecreasing", {"use_losses_collection": "False"})


def test_tensors_of_other_collections_may_be_looked_at_as_well() -> None:
    run = Run()
    steps = [run.step({"Net_fc.bias": 1.0, LOSS: 1 / (step + 1)}) for step in range(30)]
    assert found_by("LossNotDecreasing", steps) == []
    (finding, *_) = found_by("LossNotDecreasing", steps, collection_names="biases")
    assert finding.tensor == "Net_fc.bias"

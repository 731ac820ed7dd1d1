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
    with pytest.raises(InvalidRequest, match="LossNotDecreasing has no loss to check"):
        make_rule("LossNotDecreasing", {"use_losses_collection": "False"})


def test_tensors_of_other_collections_may_be_looked_at_as_well() -> None:
    run = Run()
    steps = [run.step({"Net_fc.bias": 1.0, LOSS: 1 / (step + 1)}) for step in range(30)]
    assert found_by("LossNotDecreasing", steps) == []
    (finding, *_) = found_by("LossNotDecreasing", steps, collection_names="biases")
    assert finding.tensor == "Net_fc.bias"


@pytest.mark.parametrize(
    ("last", "is_found"),
    [(64.0, True), (63.5, True), (63.0, False), (62.5, False), (67.1, False), (67.3, True)],
)
def test_a_loss_must_fall_by_so_much_or_may_rise_by_so_much(last: float, is_found: bool) -> None:
    # 1 of 64 is 1.5625 %.
    steps = losses([64.0] * 10 + [last])
    assert bool(found_by("LossNotDecreasing", steps, diff_percent="1.5625")) is is_found


def test_a_rise_to_the_limit_is_allowed() -> None:
    assert found_by("LossNotDecreasing", losses([64.0] * 10 + [65.0]), increase_threshold_percent="1.5625") == []


def test_a_loss_below_zero_falls_when_it_gets_further_from_zero() -> None:
    assert found_by("LossNotDecreasing", losses([-1.0 - step / 10 for step in range(40)])) == []
    (finding,) = found_by("LossNotDecreasing", losses([-1.0] * 10 + [-0.5]))
    assert finding.value == pytest.approx(50)
    assert len(found_by("LossNotDecreasing", losses([0.0] * 11))) == 1


def test_means_of_a_window_are_compared_with_the_look_before_or_with_the_first() -> None:
    values = [4.0] * 3 + [2.0] * 3 + [1.0] * 3 + [1.0, 1.1, 1.2]
    with_before = found_by("LossNotDecreasing", losses(values), window="3", num_steps="1")
    assert [finding.step for finding in with_before] == [11]
    assert with_before[0].value == pytest.approx(10)
    assert "went from 1 at step 8 to 1.1 at step 11, by +10 %; it may rise by 5 % at most" in with_before[0].message
    with_first = found_by("LossNotDecreasing", losses(values), window="3", num_steps="1", since_start="True")
    assert with_first == []
    rising = found_by("LossNotDecreasing", losses([*values, *[9.0] * 3]), window="3", num_steps="1", since_start="True")
    assert [finding.step for finding in rising] == [13, 14]
    assert "went from 4 at step 2 to" in rising[0].message
    assert list(rising[0].evidence[0].steps) == list(range(2, 14))


def test_each_worker_is_compared_with_itself() -> None:
    runs = Run("worker_0"), Run("worker_1")
    steps = [
        run.step({LOSS: base * 0.9**step}) for step in range(30) for run, base in zip(runs, (1.0, 9.0), strict=True)
    ]
    assert found_by("LossNotDecreasing", steps) == []


def test_steps_of_one_mode_are_counted_apart_from_the_others() -> None:
    run = Run()
    modes = [Mode.TRAIN, Mode.TRAIN, Mode.EVAL] * 12
    steps = [run.step({LOSS: 1.0}, mode=mode) for mode in modes]
    (finding, *_) = found_by("LossNotDecreasing", steps, mode="EVAL")
    assert "at step 0 to 1 at step 10" in finding.message
    assert finding.step == 32


def test_a_tensor_is_looked_at_instead_of_the_losses() -> None:
    run = Run()
    steps = [run.step({"Net_fc.bias": 1.0, LOSS: 1.0}) for _ in range(12)]
    found = found_by("LossNotDecreasing", steps, tensor_regex="bias", use_losses_collection="False")
    assert [finding.tensor for finding in found] == ["Net_fc.bias"]

from collections.abc import Sequence

import numpy as np
import pytest

from tests.unit.insight.rules.steps import Run, found_by
from trainyard.formats.tensors.contract import Mode, Step

WEIGHT = "Net_fc1.weight"
FROZEN = "Net_body.weight"
LOSS = "CrossEntropyLoss_output_0"
BASE = np.array([[0.5, -0.25], [0.125, 1.0]])


def weights(factors: Sequence[float | None], mode: Mode = Mode.TRAIN) -> list[Step]:
    run = Run()
    return [run.step({WEIGHT: None if factor is None else BASE * factor}, mode=mode) for factor in factors]


def test_a_weight_that_stays_for_three_steps_is_found_at_the_third() -> None:
    (finding,) = found_by("UnchangedTensor", weights([1.0, 1.1, 1.1, 1.1]), collection_names="weights")
    assert (finding.tensor, finding.step, finding.value, finding.threshold) == (WEIGHT, 3, 3, 3)


def test_a_weight_that_changes_is_not_found() -> None:
    assert found_by("UnchangedTensor", weights([1.0, 1.1, 1.1, 1.0, 1.0, 1.1]), collection_names="weights") == []


def test_the_steps_need_not_be_neighbours() -> None:
    found = found_by("UnchangedTensor", weights([1.0, None, 1.0, None, 1.0]), collection_names="weights")
    assert [finding.step for finding in found] == [4]


@pytest.mark.parametrize(("rtol", "found"), [("1e-3", 1), ("1e-5", 0)])
def test_a_difference_within_the_tolerance_is_none(rtol: str, found: int) -> None:
    steps = weights([1.0, 1.0004, 1.0008])
    assert len(found_by("UnchangedTensor", steps, collection_names="weights", rtol=rtol)) == found


def test_slow_changes_that_add_up_are_not_found() -> None:
    steps = weights([1.0 + 8e-6 * step for step in range(12)])
    assert found_by("UnchangedTensor", steps, collection_names="weights", num_steps="4") == []


def test_a_sign_that_flips_is_a_change() -> None:
    run = Run()
    steps = [run.step({WEIGHT: sign * np.array([[0.5, -0.5, 0.1]])}) for sign in (1, -1, 1, -1)]
    assert found_by("UnchangedTensor", steps, collection_names="weights") == []


def test_weights_stay_in_an_evaluation_but_losses_do_not() -> None:
    assert found_by("UnchangedTensor", weights([1.0] * 5, mode=Mode.EVAL), collection_names="weights") == []
    run = Run()
    steps = [run.step({LOSS: 0.5}, mode=Mode.EVAL) for _ in range(3)]
    assert [finding.tensor for finding in found_by("UnchangedTensor", steps, collection_names="losses")] == [LOSS]


def test_nan_is_the_same_as_nan_only_where_that_is_said() -> None:
    steps = weights([np.nan] * 4)
    assert found_by("UnchangedTensor", steps, collection_names="weights") == []
    assert found_by("UnchangedTensor", steps, collection_names="weights", equal_nan="True") != []


def test_frozen_weights_can_be_left_out_unless_they_are_named() -> None:
    run = Run()
    steps = [run.step({FROZEN: BASE, WEIGHT: BASE * step, f"gradient/{WEIGHT}": BASE * step}) for step in range(1, 12)]
    assert {finding.tensor for finding in found_by("UnchangedTensor", steps, collection_names="weights")} == {FROZEN}
    assert found_by("UnchangedTensor", steps, collection_names="weights", defaults="advised") == []
    assert found_by("UnchangedTensor", steps, tensor_regex="body", defaults="advised") != []


def test_biases_stay_in_an_evaluation_as_weights_do() -> None:
    run = Run()
    steps = [run.step({"Net_fc1.bias": BASE}, mode=Mode.EVAL) for _ in range(5)]
    assert found_by("UnchangedTensor", steps, collection_names="biases") == []


# With the mean, the spread and the least of 0, 1, 2, 3, but another greatest.
LOWER = [0, 1.6 - 0.52**0.5, 1.6 + 0.52**0.5, 2.8]


@pytest.mark.parametrize(
    "other", [[0, 0, 3, 3], [-1, 2, 2, 3], [0.5, 0.5, 2, 3], [0, 1, 1, 4], [0, 1.5, 1.5, 3], LOWER]
)
def test_a_change_of_any_statistic_is_a_change(other: list[float]) -> None:
    run = Run()
    steps = [run.step({WEIGHT: np.array(values, float)}) for values in ([0, 1, 2, 3], other) * 3]
    assert found_by("UnchangedTensor", steps, collection_names="weights") == []

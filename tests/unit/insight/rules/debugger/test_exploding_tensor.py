import numpy as np
import pytest

from tests.unit.insight.rules.steps import Run, found_by
from trainyard.formats.tensors.contract import Mode
from trainyard.insight.rules.contract import Severity

WEIGHT = "Net_fc1.weight"
GRADIENT = "gradient/Net_fc1.weight"
MASKED = "attention.softmax_input_0"


def test_a_tensor_with_nan_or_infinity_is_found_at_that_step() -> None:
    run = Run()
    steps = [
        run.step({WEIGHT: np.ones((2, 2)), GRADIENT: np.ones((2, 2))}),
        run.step({WEIGHT: np.ones((2, 2)), GRADIENT: np.array([[1, np.inf], [np.nan, 0]])}),
    ]
    (finding,) = found_by("ExplodingTensor", steps)
    assert (finding.tensor, finding.step, finding.value, finding.threshold) == (GRADIENT, 1, 2, 0)
    assert finding.severity is Severity.CRITICAL
    assert list(finding.evidence[0].values) == [1.0]


def test_infinity_is_not_found_where_only_nan_is_asked_for() -> None:
    run = Run()
    steps = [run.step({GRADIENT: np.array([[np.inf, 0]])}), run.step({GRADIENT: np.array([[np.nan, 0]])})]
    assert [finding.step for finding in found_by("ExplodingTensor", steps, only_nan="True")] == [1]


def test_masked_scores_are_not_looked_at_unless_they_are_asked_for() -> None:
    steps = [Run().step({MASKED: np.array([[1.0, -np.inf]])})]
    assert found_by("ExplodingTensor", steps) == []
    assert [finding.tensor for finding in found_by("ExplodingTensor", steps, tensor_regex="softmax")] == [MASKED]


def test_all_modes_are_judged() -> None:
    steps = [Run().step({"CrossEntropyLoss_output_0": np.nan}, mode=Mode.EVAL)]
    assert [finding.mode for finding in found_by("ExplodingTensor", steps)] == [Mode.EVAL]


def test_finite_tensors_and_those_not_looked_at_are_no_finding() -> None:
    assert found_by("ExplodingTensor", [Run().step({WEIGHT: np.full((2, 2), 1e30), GRADIENT: None})]) == []


@pytest.mark.parametrize(
    "name", ["gradient/Net_fc1.weight", "Net_fc1.weight", "Net_fc1.bias", "CrossEntropyLoss_output_0"]
)
def test_gradients_weights_biases_and_losses_are_looked_at_unless_others_are_named(name: str) -> None:
    assert [each.tensor for each in found_by("ExplodingTensor", [Run().step({name: [np.nan, 1.0]})])] == [name]
    assert found_by("ExplodingTensor", [Run().step({"relu_output_0": [np.nan, 1.0]})]) == []

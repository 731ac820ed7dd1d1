import numpy as np
import pytest

from tests.unit.insight.rules.steps import Run, found_by
from trainyard.foundation.errors import InvalidRequest
from trainyard.insight.rules.catalog import make_rule

GRADIENT = "gradient/Net_fc1.weight"
MOSTLY = np.array([[0.0, 0.0], [0.0, 1.0]])


def test_a_tensor_of_zeros_is_found_at_that_step() -> None:
    run = Run()
    steps = [run.step({GRADIENT: MOSTLY}), run.step({GRADIENT: np.zeros((2, 2))})]
    (finding,) = found_by("AllZero", steps, collection_names="gradients")
    assert (finding.tensor, finding.step, finding.value, finding.threshold) == (GRADIENT, 1, 100, 100)
    assert list(finding.evidence[0].values) == [75, 100]


def test_a_tensor_with_one_other_element_is_not_found() -> None:
    assert found_by("AllZero", [Run().step({GRADIENT: MOSTLY})], collection_names="gradients") == []


def test_the_threshold_is_a_percentage_that_is_reached() -> None:
    assert found_by("AllZero", [Run().step({GRADIENT: MOSTLY})], tensor_regex="gradient", threshold="75") != []


def test_patience_asks_for_steps_on_end() -> None:
    run = Run()
    steps = [run.step({GRADIENT: value}) for value in (np.zeros((2, 2)), MOSTLY, np.zeros((2, 2)), np.zeros((2, 2)))]
    found = found_by("AllZero", steps, collection_names="gradients", patience="2")
    assert [finding.step for finding in found] == [3]


def test_an_empty_tensor_is_no_finding() -> None:
    run = Run()
    step = run.step({GRADIENT: np.ones((2, 2)), "mask": np.ones(1)})
    assert found_by("AllZero", [step], collection_names="all") == []


def test_the_tensors_have_to_be_named() -> None:
    with pytest.raises(
        InvalidRequest, match=r'AllZero does not know which tensors to inspect; set .*"collection_names"'
    ):
        make_rule("AllZero", {})

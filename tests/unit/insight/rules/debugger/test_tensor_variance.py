import numpy as np
import pytest

from tests.unit.insight.rules.steps import Run, found_by
from trainyard.foundation.errors import InvalidRequest
from trainyard.insight.rules.catalog import make_rule

WEIGHT = "Net_fc1.weight"
SPREAD = np.array([[-10.0, 10.0]])  # a variance of 100


def test_a_variance_over_the_maximum_is_found() -> None:
    run = Run()
    steps = [run.step({WEIGHT: SPREAD / 10}), run.step({WEIGHT: SPREAD})]
    (finding,) = found_by("TensorVariance", steps, collection_names="weights", max_threshold="99")
    assert (finding.tensor, finding.step, finding.threshold) == (WEIGHT, 1, 99)
    assert finding.value == pytest.approx(100)
    assert "a variance of 100, over 99" in finding.message


def test_a_variance_under_the_minimum_is_found() -> None:
    (finding,) = found_by(
        "TensorVariance", [Run().step({WEIGHT: np.full((3, 3), 0.01)})], tensor_regex="weight", min_threshold="1e-8"
    )
    assert "under 1e-08" in finding.message


def test_a_variance_between_the_two_is_not_found() -> None:
    found = found_by(
        "TensorVariance", [Run().step({WEIGHT: SPREAD})], tensor_regex="fc", min_threshold="1", max_threshold="100"
    )
    assert found == []


def test_a_single_number_has_no_variance() -> None:
    steps = [Run().step({"CrossEntropyLoss_output_0": 0.5})]
    assert found_by("TensorVariance", steps, collection_names="losses", min_threshold="1e-8") == []


def test_a_limit_has_to_be_given() -> None:
    with pytest.raises(InvalidRequest, match='TensorVariance has no limit; give "max_threshold"'):
        make_rule("TensorVariance", {"collection_names": "weights"})


def test_the_tensor_that_is_furthest_beyond_a_limit_comes_first() -> None:
    step = Run().step({f"Net_fc{number}.weight": SPREAD * number for number in (2, 1, 3)})
    over = found_by("TensorVariance", [step], tensor_regex="fc", max_threshold="50")
    assert [each.tensor for each in over] == ["Net_fc3.weight", "Net_fc2.weight", "Net_fc1.weight"]
    under = found_by("TensorVariance", [step], tensor_regex="fc", min_threshold="5000")
    assert [each.tensor for each in under] == ["Net_fc1.weight", "Net_fc2.weight", "Net_fc3.weight"]

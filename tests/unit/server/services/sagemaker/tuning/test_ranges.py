from typing import Any

import pytest

from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.jobs.tuning import HyperparameterRange, RangeKind
from trainyard.server.services.sagemaker.tuning.ranges import ranges_of


def integer(low: str, high: str, **changed: Any) -> dict[str, Any]:
    return {"IntegerParameterRanges": [{"Name": "n", "MinValue": low, "MaxValue": high, **changed}]}


def continuous(low: str, high: str, **changed: Any) -> dict[str, Any]:
    return {"ContinuousParameterRanges": [{"Name": "x", "MinValue": low, "MaxValue": high, **changed}]}


def words(*values: str, name: str = "w") -> dict[str, Any]:
    return {"CategoricalParameterRanges": [{"Name": name, "Values": list(values)}]}


def test_ranges_are_read_in_the_order_of_their_kinds() -> None:
    given = {**words("a", "b"), **continuous("-1e-3", "1E2"), **integer("-5", "+5")}
    assert ranges_of(given) == (
        HyperparameterRange("n", RangeKind.INTEGER, low=-5, high=5),
        HyperparameterRange("x", RangeKind.CONTINUOUS, low=-0.001, high=100),
        HyperparameterRange("w", RangeKind.CATEGORICAL, values=("a", "b")),
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (integer("1.5", "3"), 'The MinValue of the integer range "n" is "1.5"; it must be a whole number'),
        (integer("1", "3_0"), 'is "3_0"; it must be a whole number'),
        (integer("1", ""), 'The MaxValue of the integer range "n" is ""'),
        (integer("0", "99999999999999999999"), "it must be from -9007199254740992 to 9007199254740992"),
        (integer("5", "4"), "has the MinValue 5, which is more than its MaxValue 4; swap them"),
        (integer("0", "9", ScalingType="Logarithmic"), 'The range of "n" is Logarithmic, so its MinValue must be'),
        (integer("0", "0", ScalingType="ReverseLogarithmic"), "which needs a continuous range"),
        (continuous("low", "1"), 'The MinValue of the range "x" is "low"; it must be a finite number'),
        (continuous("0", "inf"), 'The MaxValue of the range "x" is "inf"; it must be a finite number'),
        (continuous("nan", "1"), 'is "nan"; it must be a finite number'),
        (continuous("0", "1_0"), 'is "1_0"; it must be a finite number'),
        (continuous("0", "1", ScalingType="Logarithmic"), "must be above 0, not 0; raise it, or choose Linear"),
        (continuous("0", "1", ScalingType="ReverseLogarithmic"), "must be at least 0 and below 1, not 0 to 1"),
        (
            continuous("-0.1", "0.5", ScalingType="ReverseLogarithmic"),
            "must be at least 0 and below 1, not -0.1 to 0.5",
        ),
        (words("a", "b", "a"), 'The range of "w" has the value a twice'),
        ({**words("a", name="x"), **continuous("0", "1")}, 'The hyperparameter "x" has more than one range'),
        (words("a", name=""), '"" is not a valid name of a tuned hyperparameter'),
        (words("a", name="_tuning_objective_metric"), '"_tuning_objective_metric" is not a valid name'),
    ],
)
def test_a_range_that_cannot_be_searched_says_why_and_what_to_do(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        ranges_of(given)
    assert message in caught.value.message


@pytest.mark.parametrize(
    "given",
    [
        integer("3", "3"),
        integer("1", "9", ScalingType="Logarithmic"),
        continuous("0", "0"),
        continuous("1e-300", "1e300", ScalingType="Logarithmic"),
        continuous("0", "0.999", ScalingType="ReverseLogarithmic"),
        words("only"),
    ],
)
def test_ranges_at_the_limits_are_accepted(given: dict[str, Any]) -> None:
    assert len(ranges_of(given)) == 1

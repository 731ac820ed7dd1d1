import pytest

from trainyard.foundation.errors import InvalidRequest
from trainyard.parameter import CategoricalParameter, ContinuousParameter, IntegerParameter


def test_the_ends_of_a_range_are_texts_as_requests_have_them() -> None:
    assert ContinuousParameter(0.00001, 0.1, scaling_type="Logarithmic").as_tuning_range("lr") == {
        "Name": "lr",
        "MinValue": "1e-05",
        "MaxValue": "0.1",
        "ScalingType": "Logarithmic",
    }
    assert IntegerParameter(1, 8).as_tuning_range("layers")["ScalingType"] == "Auto"


def test_categories_are_texts_and_for_frameworks_json() -> None:
    parameter = CategoricalParameter(["adam", 128, True])
    assert parameter.as_tuning_range("x") == {"Name": "x", "Values": ["adam", "128", "True"]}
    assert parameter.as_json_range("x") == {"Name": "x", "Values": ['"adam"', '"128"', '"True"']}


def test_one_value_may_stand_for_a_list_of_it() -> None:
    assert CategoricalParameter("adam").values == ["adam"]
    assert CategoricalParameter(("a", "b")).values == ["a", "b"]


def test_a_range_knows_what_is_in_it() -> None:
    assert ContinuousParameter(0.0, 1.0).is_valid(1.0)
    assert not IntegerParameter(1, 8).is_valid(9)
    assert not CategoricalParameter(["a"]).is_valid("b")


def test_a_scaling_that_there_is_not_is_refused_where_it_is_written() -> None:
    with pytest.raises(InvalidRequest, match='scaling_type is "Log"; it can be Auto, Linear, Logarithmic or Reverse'):
        ContinuousParameter(0.1, 1.0, "Log")


def test_ends_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="from 8 to 1 is empty; swap the bounds"):
        IntegerParameter(8, 1)

from typing import Any

import pytest

from trainyard.wire.models import Models
from trainyard.wire.protocols.nesting import DEEPEST, check_nesting, contains_itself


def _nested(depth: int) -> Any:
    value: Any = "leaf"
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


def test_a_value_may_nest_to_the_limit_and_no_further() -> None:
    check_nesting(_nested(DEEPEST))
    with pytest.raises(ValueError, match="nested more than"):
        check_nesting(_nested(DEEPEST + 1))


def test_only_shapes_that_contain_themselves_have_no_bound(models: Models) -> None:
    sagemaker = models.service("sagemaker")
    assert contains_itself(sagemaker.operation_model("Search").input_shape)
    assert not contains_itself(sagemaker.operation_model("CreateTrainingJob").input_shape)
    assert not contains_itself(None)


def test_a_shape_that_is_used_twice_does_not_contain_itself(models: Models) -> None:
    assert not contains_itself(models.service("sagemaker").operation_model("CreateHyperParameterTuningJob").input_shape)

from typing import Any

import pytest

from trainyard.wire.models import Models
from trainyard.wire.protocols.documents import MAX_DEPTH, DocumentCompiler, DocumentPlan, check_nesting, contains_itself
from trainyard.wire.protocols.json_text import JSON_READERS, json_scalar_writer


def _plan(models: Models, operation: str) -> DocumentPlan:
    compiler = DocumentCompiler(JSON_READERS, json_scalar_writer)
    return compiler.compile(models.service("sagemaker").operation_model(operation))


def test_unknown_and_null_members_are_dropped_and_a_null_in_a_list_is_kept(models: Models) -> None:
    document = {"TrainingJobName": "a", "Unknown": {"x": 1}, "RoleArn": None, "Tags": [None, {"Key": "k", "x": 2}]}
    assert _plan(models, "CreateTrainingJob").shape(document) == {
        "TrainingJobName": "a",
        "Tags": [None, {"Key": "k"}],
    }


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "Start of list found where not expected"),
        ("x", "STRING_VALUE can not be converted to a Structure"),
        ({"TrainingJobName": 1}, "NUMBER_VALUE can not be converted to a String"),
        ({"TrainingJobName": True}, "TRUE_VALUE can not be converted to a String"),
        ({"TrainingJobName": 1.5}, "DECIMAL_VALUE can not be converted to a String"),
        ({"TrainingJobName": ["x"]}, "Start of list found where not expected"),
        ({"TrainingJobName": {}}, "Start of structure or map found where not expected."),
        ({"Tags": {}}, "Expected list or null"),
        ({"Environment": "x"}, "STRING_VALUE can not be converted to a Map"),
        ({"EnableNetworkIsolation": "true"}, "STRING_VALUE can not be converted to a Boolean"),
        ({"EnableNetworkIsolation": 1}, "NUMBER_VALUE can not be converted to a Boolean"),
        ({"ResourceConfig": {"InstanceCount": "1"}}, "STRING_VALUE can not be converted to an Integer"),
        ({"ResourceConfig": {"InstanceCount": 1.5}}, "DECIMAL_VALUE can not be converted to an Integer"),
        ({"ResourceConfig": {"InstanceCount": True}}, "TRUE_VALUE can not be converted to an Integer"),
        ({"ResourceConfig": {"InstanceCount": 2**31}}, "A number is out of the range of integer"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_in_the_words_of_aws(models: Models, document: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        _plan(models, "CreateTrainingJob").shape(document)


def test_a_whole_number_may_be_written_as_a_decimal(models: Models) -> None:
    document = {"ResourceConfig": {"InstanceCount": 2.0}}
    assert _plan(models, "CreateTrainingJob").shape(document) == {"ResourceConfig": {"InstanceCount": 2}}


def test_a_document_nested_deeper_than_the_limit_is_refused(models: Models) -> None:
    expression: dict[str, Any] = {}
    for _ in range(2000):
        expression = {"SubExpressions": [expression]}
    with pytest.raises(ValueError, match="nested"):
        _plan(models, "Search").shape({"SearchExpression": expression})


def test_an_operation_without_input_has_an_empty_shape(models: Models) -> None:
    compiler = DocumentCompiler(JSON_READERS, json_scalar_writer)
    plan = compiler.compile(models.service("iam").operation_model("GetAccountSummary"))
    assert plan.shape({"anything": 1}) == {}


def test_none_is_not_written_and_an_unknown_member_is_a_bug(models: Models) -> None:
    write = _plan(models, "DescribeTrainingJob").write
    assert write is not None
    assert write({"TrainingJobName": "a", "RoleArn": None, "InputDataConfig": [None]}) == {
        "TrainingJobName": "a",
        "InputDataConfig": [],
    }
    with pytest.raises(AssertionError, match="DescribeTrainingJobResponse has no member Nme"):
        write({"Nme": "a"})


def _nested(depth: int) -> Any:
    value: Any = "leaf"
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


def test_a_document_type_is_written_as_it_is(models: Models) -> None:
    operation = models.service("trainyard").operation_model("DescribeProfile")
    write = DocumentCompiler(JSON_READERS, json_scalar_writer).compile(operation).write
    assert write is not None
    verdict = {"summary": "It waits.", "others": [{"share": None}]}
    assert write({"Verdict": verdict}) == {"Verdict": verdict}


def test_a_value_can_nest_to_the_limit_and_no_further() -> None:
    check_nesting(_nested(MAX_DEPTH))
    with pytest.raises(ValueError, match="nested more than"):
        check_nesting(_nested(MAX_DEPTH + 1))


def test_only_recursive_shapes_have_no_limit(models: Models) -> None:
    sagemaker = models.service("sagemaker")
    assert contains_itself(sagemaker.operation_model("Search").input_shape)
    assert not contains_itself(sagemaker.operation_model("CreateTrainingJob").input_shape)
    assert not contains_itself(None)


def test_a_shape_that_is_used_twice_does_not_contain_itself(models: Models) -> None:
    assert not contains_itself(models.service("sagemaker").operation_model("CreateHyperParameterTuningJob").input_shape)

import pytest

from trainyard.foundation.errors import InvalidRequest
from trainyard.insight.rules.contract import Parameter
from trainyard.insight.rules.parameters import parse_parameters, split_list

PARAMETERS = (
    Parameter("tensor_regex", tuple, None, "Which tensors."),
    Parameter("only_nan", bool, False, "Whether NaN alone is looked for."),
    Parameter("mode", str, "GLOBAL", "Which mode.", choices=("TRAIN", "EVAL", "GLOBAL")),
    Parameter("other_trials", str, None, "Where the other run is.", is_required=True),
)


def parsed(**given: str) -> dict[str, object]:
    return parse_parameters("Example", PARAMETERS, {"other_trials": "s3://bucket/run", **given})


def test_a_list_is_split_at_its_commas() -> None:
    assert parsed(tensor_regex=".*relu, .*tanh,")["tensor_regex"] == (".*relu", ".*tanh")


def test_a_comma_inside_brackets_belongs_to_its_regex() -> None:
    assert split_list("fc[1,2],a{1,3}") == ("fc[1,2]", "a{1,3}")


def test_none_is_a_value_where_it_is_the_default() -> None:
    assert parsed(tensor_regex="None")["tensor_regex"] is None
    with pytest.raises(InvalidRequest, match='"mode" of rule Example is "None"; it needs one of TRAIN, EVAL, GLOBAL'):
        parsed(mode="None")


@pytest.mark.parametrize(("text", "value"), [("True", True), ("false", False), ("1", True), ("no", False)])
def test_a_truth_has_several_words(text: str, value: bool) -> None:
    assert parsed(only_nan=text)["only_nan"] is value


def test_any_other_word_is_no_truth() -> None:
    with pytest.raises(InvalidRequest, match='"only_nan" of rule Example is "maybe"; it needs "True" or "False"'):
        parsed(only_nan="maybe")


def test_a_regex_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(
        InvalidRequest, match=r'"tensor_regex" of rule Example is "\(a"; it is not a valid regular expression'
    ):
        parsed(tensor_regex="(a")


def test_a_required_parameter_that_lacks_is_named_with_its_meaning() -> None:
    with pytest.raises(InvalidRequest, match='needs the parameter "other_trials": Where the other run is'):
        parse_parameters("Example", PARAMETERS, {})

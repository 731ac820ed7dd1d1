import pytest

from tests.unit.insight.rules.steps import Run
from trainyard.foundation.errors import InvalidRequest
from trainyard.insight.rules.catalog import RULES, make_rule

VANISHED = {"gradient/Net_fc1.weight": [[5e-8, 5e-8]]}


def found(parameters: dict[str, str], steps: int = 1) -> int:
    rule, run = make_rule("VanishingGradient", parameters), Run()
    return sum(len(list(rule.check(run.step(VANISHED)))) for _ in range(steps))


def test_a_rule_has_awss_defaults_unless_ours_are_asked_for() -> None:
    assert found({}) == 1
    assert found({"defaults": "advised"}) == 0
    assert found({"defaults": "advised"}, steps=20) == 1


def test_a_given_parameter_wins_over_the_defaults_of_either() -> None:
    assert found({"threshold": "1e-8"}) == 0
    assert found({"threshold": " 1E-7 ", "patience": "1", "defaults": "Advised"}) == 1


def test_an_unknown_rule_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(
        InvalidRequest, match=r'no built-in rule "VanishingGradients"; did you mean VanishingGradient\?'
    ):
        make_rule("VanishingGradients", {})


def test_an_unknown_parameter_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidRequest, match=r'VanishingGradient has no parameter "treshold"; it has: threshold, .*'):
        make_rule("VanishingGradient", {"treshold": "1"})


@pytest.mark.parametrize(
    ("name", "text", "possible"),
    [
        ("threshold", "small", "a number of at least 0"),
        ("threshold", "-1", "a number of at least 0"),
        ("threshold", "nan", "a number of at least 0"),
        ("threshold", "None", "a number of at least 0"),
        ("patience", "1.5", "a whole number of at least 1"),
        ("patience", "0", "a whole number of at least 1"),
        ("defaults", "best", '"aws" or "advised"'),
    ],
)
def test_a_malformed_parameter_is_refused_with_what_is_possible(name: str, text: str, possible: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        make_rule("VanishingGradient", {name: text})
    message = str(raised.value)
    assert f'Parameter "{name}" of rule VanishingGradient is "{text}"' in message
    assert possible in message


def test_every_rule_is_listed_under_its_own_name() -> None:
    assert all(rule.name == name for name, rule in RULES.items())

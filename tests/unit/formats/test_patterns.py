"""Which expressions may run over many lines at once."""

import pytest

from trainyard.formats.patterns import LinePattern
from trainyard.foundation.errors import InvalidRequest


@pytest.mark.parametrize(
    "expression",
    [r"loss=([0-9.]+)", r"^a$", r"\bx\b", r"(?i)Loss: (\d+)", r"a(?=b)", r"(?P<value>\d+)", r"[^=]*=(\d)", r"\d{2,3}"],
)
def test_an_expression_that_looks_only_at_itself_is_local(expression: str) -> None:
    assert LinePattern(expression).is_local


@pytest.mark.parametrize(
    "expression",
    [
        r"\Aloss",
        r"loss\Z",
        r"a(?!b)",
        r"(?<!a)b",
        r"(?>a+)b",
        r"[^=]*+=(\d)",
        r"a++",
        r"(a)?(?(1)b|c)",
        r"(?r)\d+",
        r"(?:loss){e<=1}",
    ],
)
def test_one_that_looks_around_or_never_turns_back_is_not(expression: str) -> None:
    assert not LinePattern(expression).is_local


@pytest.mark.parametrize("expression", ["(", "[", "a{2,1}", "*", "(?P<a>x)(?P<a", "\\"])
def test_what_is_no_expression_is_refused_with_the_expression(expression: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        LinePattern(expression)
    assert caught.value.message.startswith(f'"{expression}" is not a regular expression')


def test_the_first_group_is_the_value_and_the_whole_without_one() -> None:
    assert LinePattern("a(b)(c)").value("xabc") == "b"
    assert LinePattern("a.c").value("xabc") == "abc"
    assert LinePattern("a(b)?c").value("ac") == ""
    assert LinePattern("a").value("b") is None

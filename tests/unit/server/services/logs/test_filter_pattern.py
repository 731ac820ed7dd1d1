import pytest

from trainyard.foundation.errors import InvalidRequest
from trainyard.server.services.logs.filter_pattern import parse_pattern

MESSAGE = b'ERROR worker 3: out of memory, said "no more" at C:\\tmp'


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "   ",
        '""',
        "ERROR",
        "ERROR worker",
        "worker ERROR",
        "3 memory",
        '"out of memory"',
        '"out of memory" ERROR',
        r'"said \"no more\""',
        r'"C:\\tmp"',
        "-DEBUG",
        "ERROR -DEBUG",
        '-"out of disk"',
        "?ERROR ?WARN",
        "?WARN ?ERROR",
        '?WARN ?"out of memory"',
        "ERROR ?WARN",  # AWS ignores the optional terms when there are others
        "-DEBUG ?WARN",
        "wor",
    ],
)
def test_patterns_that_match(pattern: str) -> None:
    assert parse_pattern(pattern).matches(MESSAGE)


@pytest.mark.parametrize(
    "pattern",
    ["error", "ERROR disk", '"memory of out"', "-ERROR", 'worker -"out of memory"', "?WARN ?INFO", "WARN ?ERROR"],
)
def test_patterns_that_do_not_match(pattern: str) -> None:
    assert not parse_pattern(pattern).matches(MESSAGE)


@pytest.mark.parametrize("pattern", ['{ $.level = "ERROR" }', "[ip, user, ...]", "%ERR.R%"])
def test_structured_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(InvalidRequest, match="are not served"):
        parse_pattern(pattern)


@pytest.mark.parametrize("pattern", ["a:b", "x.y", "say$", "--x", "?-x"])
def test_a_term_with_other_characters_must_be_quoted(pattern: str) -> None:
    with pytest.raises(InvalidRequest, match="put it in quotes"):
        parse_pattern(pattern)


@pytest.mark.parametrize("pattern", ['"open', 'a "b', '"a"b', "-", "?", 'a"b"'])
def test_a_pattern_that_cannot_be_read_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_pattern(pattern)


def test_a_term_of_any_alphabet_is_found() -> None:
    assert parse_pattern("zug").matches(b"ein zug")
    assert parse_pattern("поезд").matches("это поезд".encode())

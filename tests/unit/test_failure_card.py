from typing import Any

import pytest

from trainyard.failure_card import card_lines, last_lines

RAISED = {
    "Type": "ValueError",
    "Message": "no luck",
    "File": "/opt/ml/code/train.py",
    "Line": 7,
    "Function": "main",
    "Source": "    raise ValueError('no luck')",
}


def card(**more: Any) -> dict[str, Any]:
    return {"Class": "user error", "Instance": "algo-1", "Advice": ["Correct the program."]} | more


def test_an_exception_is_told_with_its_place_and_its_source() -> None:
    assert card_lines(card(ExitCode=1, Exception=RAISED, Summary="ValueError: no luck (train.py, line 7)")) == [
        "user error on algo-1, exit code 1",
        "ValueError: no luck",
        "at train.py:7 in main: raise ValueError('no luck')",
        "try: Correct the program.",
    ]


def test_without_an_exception_the_summary_is_told() -> None:
    lines = card_lines(card(Class="out of memory", Signal="SIGKILL", Summary="It used more than it has.", Advice=[]))
    assert lines == ["out of memory on algo-1, ended by SIGKILL", "It used more than it has."]


@pytest.mark.parametrize("raised", [{"Type": "KeyboardInterrupt"}, {"Type": "E", "Message": "m", "File": "a.py"}])
def test_an_exception_of_which_little_is_known_is_told_as_far_as_it_is(raised: dict[str, Any]) -> None:
    lines = card_lines(card(Exception=raised))
    assert lines[0] == "user error on algo-1"
    assert lines[1].startswith(raised["Type"])
    assert lines[-1].startswith("try: ")


def test_what_a_job_wrote_cannot_move_a_terminal() -> None:
    told = card(Exception={"Type": "E", "Message": "\x1b]0;title\x07text"}, LastLines=["\x1b[2Jend"])
    assert card_lines(told)[1] == "E: text"
    assert last_lines(told) == ["end"]


def test_a_rank_is_named_before_its_instance() -> None:
    lines = card_lines(card(Rank=0, Signal="SIGKILL", Summary="It was killed.", Advice=[]))
    assert lines[0] == "user error of rank 0 on algo-1, ended by SIGKILL"

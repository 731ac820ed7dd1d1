import io
import sys

import pytest

from trainyard.cli.drawing import bar, block, span


@pytest.mark.parametrize(
    ("part", "drawn"), [(0, "····"), (0.001, "█···"), (0.5, "██··"), (1, "████"), (1.7, "████"), (-1, "····")]
)
def test_a_bar_shows_a_part_of_a_whole_and_anything_above_nothing(part: float, drawn: str) -> None:
    assert bar(part, 4, filled="█") == drawn


def test_a_plain_terminal_gets_plain_bars() -> None:
    assert bar(0.5, 4, filled="#") == "##.."


@pytest.mark.parametrize(
    ("start", "end", "drawn"),
    [(0, 1, "████"), (0.5, 1, "  ██"), (0.5, 0.5, "  █"), (1, 1, "   █"), (0, 0.001, "█")],
)
def test_a_stretch_lies_where_it_was_and_the_shortest_shows(start: float, end: float, drawn: str) -> None:
    assert span(start, end, 4, filled="█") == drawn


@pytest.mark.parametrize(("encoding", "filled"), [("utf-8", "█"), ("ascii", "#"), ("latin-1", "#")])
def test_bars_are_filled_with_what_the_output_can_have(
    monkeypatch: pytest.MonkeyPatch, encoding: str, filled: str
) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
    assert block() == filled

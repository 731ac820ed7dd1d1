import io
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from trainyard.cli.terminal.charts import bar, block, span, waterfall_lines


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


NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


def phase(name: str, start: float, end: float | None, instance: str = "") -> dict[str, Any]:
    told: dict[str, Any] = {"Phase": name, "StartTime": NOON + timedelta(seconds=start)}
    told |= {"EndTime": NOON + timedelta(seconds=end)} if end is not None else {}
    return told | ({"Instance": instance} if instance else {})


def test_each_phase_has_its_start_its_length_and_its_bar() -> None:
    phases = [phase("queue", 0, 0.25), phase("sandbox", 0.25, 0.5, "algo-1"), phase("train", 0.5, 1, "algo-1")]
    assert waterfall_lines(phases, now=NOON, width=8, filled="█") == [
        "queue              0.000 s    0.250 s  ██",
        "sandbox  algo-1    0.250 s    0.250 s    ██",
        "train    algo-1    0.500 s    0.500 s      ████",
    ]


def test_a_phase_in_progress_lasts_until_now() -> None:
    (line,) = waterfall_lines([phase("train", 0, None)], now=NOON + timedelta(minutes=2), width=4, filled="#")
    assert line == "train      0.000 s       2:00  ####"


def test_a_phase_without_duration_is_drawn_and_no_phases_make_no_chart() -> None:
    (line,) = waterfall_lines([phase("place", 0, 0)], now=NOON, width=4, filled="█")
    assert line.endswith("  █")
    assert waterfall_lines([], now=NOON, width=4, filled="█") == []

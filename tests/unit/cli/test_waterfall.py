from datetime import UTC, datetime, timedelta
from typing import Any

from trainyard.cli.waterfall import waterfall_lines

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


def test_a_phase_that_goes_on_lasts_until_now() -> None:
    (line,) = waterfall_lines([phase("train", 0, None)], now=NOON + timedelta(minutes=2), width=4, filled="#")
    assert line == "train      0.000 s       2:00  ####"


def test_what_took_no_time_is_drawn_and_nothing_is_no_chart() -> None:
    (line,) = waterfall_lines([phase("place", 0, 0)], now=NOON, width=4, filled="█")
    assert line.endswith("  █")
    assert waterfall_lines([], now=NOON, width=4, filled="█") == []

import numpy as np
import pytest

from tests.report_pages import read_page
from trainyard.insight.profiling.report.charts.plot import (
    Axis,
    draw_chart,
    elapsed_text,
    elapsed_ticks,
    path_of,
    round_ticks,
    upward_axis,
)
from trainyard.insight.profiling.report.markup import element


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [(0, 1, [0, 0.5, 1]), (0, 97, [0, 50]), (0, 4, [0, 1, 2, 3, 4]), (3, 3, [3]), (0.12, 0.31, [0.15, 0.2, 0.25, 0.3])],
)
def test_ticks_are_round_numbers_within_the_limits(low: float, high: float, ticks: list[float]) -> None:
    assert round_ticks(low, high) == pytest.approx(ticks)


@pytest.mark.parametrize(("high", "step"), [(45, 10), (600, 120), (36000, 7200)])
def test_times_have_ticks_of_a_clock(high: float, step: float) -> None:
    ticks = elapsed_ticks(0, high)
    assert np.diff(ticks) == pytest.approx(step)


def test_times_since_the_start_are_those_of_a_clock() -> None:
    assert [elapsed_text(value, 1e4) for value in (5, 754, 11100)] == ["0:05", "12:34", "3:05:00"]
    assert elapsed_text(0.25, 1) == "250 ms"


def test_percentages_share_an_axis_unless_they_are_small() -> None:
    assert upward_axis(np.array([40.0]), "%").high == 100
    assert upward_axis(np.array([2.2]), "%").high == pytest.approx(3)


def test_an_axis_is_cut_above_what_is_usual_only_if_asked() -> None:
    values = np.concatenate([np.full(99, 0.3), [6.0]])
    assert upward_axis(values, "s").high >= 6
    assert upward_axis(values, "s", is_cut=True).high < 0.6
    assert upward_axis(np.full(5, 0.3), "s", is_cut=True).high >= 0.3


def test_an_axis_of_nothing_has_a_height() -> None:
    assert upward_axis(np.array([np.nan]), "s").high > 0
    assert upward_axis(np.zeros(0), "%").high > 0


def test_a_path_has_a_gap_where_much_is_unknown_and_none_where_a_point_is() -> None:
    heights = np.array([0, 500, np.nan, 1000, *[np.nan] * 6, 0.0])
    assert path_of(np.arange(11.0), heights) == "M0 1000L1 500L3 0M10 1000"
    assert path_of(np.arange(2.0), np.full(2, np.nan)) == ""


def test_a_chart_has_its_title_limits_and_words_for_who_cannot_see_it() -> None:
    across, up = Axis(0, 60, "elapsed", "time"), Axis(0, 100, "%")
    figure = read_page(
        draw_chart("CPU & more", [element("path", d="M0 0")], across=across, up=up, summary="It is busy.")
    )
    assert figure.find("figcaption").text.strip() == "CPU & more"
    assert figure.find("svg").attributes["aria-label"] == "CPU & more. It is busy."
    plot = figure.find(of_class="plot").attributes
    assert (plot["data-x0"], plot["data-x1"], plot["data-y1"], plot["data-group"]) == ("0", "60", "100", "time")
    assert plot["tabindex"] == "0"
    assert [each.text for each in figure.find(of_class="y-axis").find_all("span")] == ["0 %", "50 %", "100 %"]
    assert figure.find(of_class="x-axis").find_all("span")[-1].attributes["class"] == "end"

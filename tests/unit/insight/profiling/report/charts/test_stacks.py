import numpy as np

from tests.report_pages import read_page
from trainyard.insight.profiling.report.charts.plot import Axis
from trainyard.insight.profiling.report.charts.stacks import draw_stacks

COLOURS = {"wait": "red", "work": "blue", "rest": "grey"}


def test_parts_lie_on_top_of_each_other() -> None:
    parts = {"wait": np.array([1.0, 2.0]), "work": np.array([3.0, 2.0]), "rest": np.zeros(2)}
    chart = read_page(draw_stacks("Steps", parts, COLOURS, across=Axis(0, 2), unit="s", names=["7", "8"]))
    wait, work = chart.find_all("path", of_class="block")
    assert (wait.attributes["data-label"], wait.attributes["style"]) == ("wait", "fill:red")
    # Each takes half of the width, with a gap; heights are of an axis up to 4 s.
    assert wait.attributes["d"] == "M30 1000V750h440V1000zM530 1000V500h440V1000z"
    assert work.attributes["d"] == "M30 750V0h440V750zM530 500V0h440V500z"
    assert [each.text for each in chart.find(of_class="legend").find_all("li")] == ["wait", "work"]
    assert "wait: 37.5 % of all. work: 62.5 % of all." in chart.find("svg").attributes["aria-label"]
    assert [each.text for each in chart.find(of_class="x-axis").find_all("span")] == ["7", "8"]


def test_unknown_amounts_are_gaps() -> None:
    parts = {"work": np.array([1.0, np.nan, 1.0])}
    (work,) = read_page(draw_stacks("Steps", parts, COLOURS, across=Axis(0, 3), unit="s")).find_all(
        "path", of_class="block"
    )
    assert work.attributes["d"].count("M") == 2


def test_a_stack_far_above_the_others_is_cut_and_named() -> None:
    parts = {"work": np.array([*[0.3] * 40, 6.0])}
    chart = read_page(draw_stacks("Steps", parts, COLOURS, across=Axis(0, 41), unit="s", is_cut=True))
    assert "The highest reaches 6 s." in chart.find("figcaption").text
    assert float(chart.find(of_class="plot").attributes["data-y1"]) < 1


def test_nothing_to_stack_is_an_empty_chart() -> None:
    chart = read_page(draw_stacks("Steps", {"work": np.zeros(3)}, COLOURS, across=Axis(0, 3), unit="s"))
    assert not chart.find_all("path", of_class="block")

import numpy as np

from tests.report_pages import read_page
from trainyard.insight.profiling.report.charts.lines import MAX_LINES, Line, draw_lines
from trainyard.insight.profiling.report.charts.plot import Axis
from trainyard.insight.profiling.report.downsampling import average_by_time

ACROSS = Axis(0, 10)


def line(label: str, *values: float) -> Line:
    return Line(
        label,
        average_by_time(np.linspace(0.5, len(values) - 0.5, len(values)), np.array(values), start=0, end=10, points=5),
    )


def test_a_line_has_a_band_from_its_lowest_to_its_highest_value() -> None:
    chart = read_page(draw_lines("CPU", [line("job", *range(10, 110, 10))], across=ACROSS, unit="%"))
    (path,) = chart.find_all("path", of_class="line")
    assert path.attributes["d"] == "M100 850L300 650L500 450L700 250L900 50"
    (band,) = chart.find_all("path", of_class="band")
    assert band.attributes["d"].startswith("M100 800L300 600")
    assert band.attributes["d"].endswith("L100 900Z")
    assert chart.find("svg").attributes["aria-label"] == "CPU. job: 10.0 % to 100 %, 55.0 % on average."


def test_many_lines_have_no_bands_and_not_all_are_drawn() -> None:
    lines = [line(f"gpu{number}", 1, 2) for number in range(MAX_LINES + 3)]
    chart = read_page(draw_lines("GPU", lines, across=ACROSS, unit="%"))
    assert len(chart.find_all("path", of_class="line")) == MAX_LINES
    assert not chart.find_all("path", of_class="band")
    assert "3 more series are not drawn." in chart.find("figcaption").text
    assert len(chart.find("ul", of_class="legend").find_all("li")) == MAX_LINES


def test_peaks_that_are_cut_are_named() -> None:
    values = np.full(400, 0.3)
    values[7] = 6.0
    buckets = average_by_time(np.arange(400.0), values, start=0, end=400, points=100)
    chart = draw_lines("Steps", [Line("worker_0", buckets)], across=Axis(0, 400), unit="s", is_cut=True)
    assert "Peaks reach 6 s." in read_page(chart).find("figcaption").text


def test_a_line_without_values_is_a_chart_without_a_line() -> None:
    chart = read_page(draw_lines("CPU", [line("job", float("nan"))], across=ACROSS, unit="%"))
    assert chart.find("path", of_class="line").attributes["d"] == ""
    assert "job: no values." in chart.find("svg").attributes["aria-label"]

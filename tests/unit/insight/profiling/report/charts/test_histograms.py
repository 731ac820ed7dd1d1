import re

import numpy as np

from tests.report_pages import read_page
from trainyard.insight.profiling.report.charts.histograms import draw_histogram


def test_a_histogram_marks_its_quantiles() -> None:
    chart = draw_histogram("Batches", np.linspace(0.1, 0.2, 1001), unit="s", marks={"p50": 0.5, "p95": 0.95})
    assert chart is not None
    page = read_page(chart)
    assert [each.text for each in page.find(of_class="legend").find_all("li")] == ["p50 150 ms", "p95 195 ms"]
    assert [each.attributes["d"] for each in page.find_all("path", of_class="mark")] == ["M503 0V1000", "M955 0V1000"]


def test_values_far_away_share_the_last_bar() -> None:
    values = np.concatenate([np.linspace(0.1, 0.2, 999), [60.0]])
    chart = draw_histogram("Batches", values, unit="s")
    assert chart is not None
    page = read_page(chart)
    assert float(page.find(of_class="plot").attributes["data-x1"]) < 0.21
    assert "The last bar has all up to 1 min." in page.find("figcaption").text


def test_values_count_as_often_as_they_stand_for_steps() -> None:
    chart = draw_histogram("Steps", np.array([1.0, 2.0]), unit="s", weights=np.array([1.0, 3.0]))
    assert chart is not None
    heights = [
        1000 - int(top)
        for top in re.findall(r"M\d+ 1000V(\d+)", read_page(chart).find("path", of_class="block").attributes["d"])
    ]
    assert heights == [333, 1000]


def test_values_that_do_not_differ_need_no_histogram() -> None:
    assert draw_histogram("Steps", np.array([np.nan]), unit="s") is None
    assert draw_histogram("Steps", np.full(9, 0.4), unit="s") is None

import pytest

from tests.report_pages import read_page
from trainyard.insight.profiling.report.charts.rooflines import draw_roofline_chart
from trainyard.insight.profiling.traces.roofline import RooflinePoint, RoofSide

# On a device with 100 TFLOP/s and 1 TB/s, whose roof bends at 100 operations for each byte.
LARGE = RooflinePoint("aten::mm", "[[4096, 4096]]", 4, 0.4, 20e12, 20e9, RoofSide.COMPUTE, 0.5)
SMALL = RooflinePoint("aten::bmm", "[[8, 8]]", 10, 0.1, 0.1e12, 0.01e12, RoofSide.MEMORY, 0.1)


def test_operators_lie_under_the_roof_that_they_are_held_back_by() -> None:
    page = read_page(draw_roofline_chart([LARGE, SMALL]))
    (roof,) = page.find_all("path", of_class="mark")
    plot = page.find(of_class="plot").attributes
    assert [float(plot[name]) for name in ("data-x0", "data-x1", "data-y0", "data-y1")] == [0, 4, 11, 15]
    # It rises from 1 TFLOP/s to the ridge in the middle, and is flat from there on.
    assert roof.attributes["d"] == "M0 750L500 250H1000"
    large, small = page.find_all("path", of_class="dot")
    assert large.attributes["d"].startswith("M750 ")
    assert small.attributes["d"].startswith("M250 750")
    assert large.attributes["data-label"] == "aten::mm: 1,000 FLOP/B, 50.0 % of the roof"
    assert [each.text for each in page.find(of_class="legend").find_all("li")] == [
        "held back by memory",
        "held back by arithmetic",
    ]
    assert [each.text for each in page.find(of_class="y-axis").find_all("span")][-1] == "1 PFLOP/s"


def test_without_a_roof_operators_are_only_compared() -> None:
    point = RooflinePoint("aten::mm", "", 4, 0.4, 20e9, 20e6)
    page = read_page(draw_roofline_chart([point]))
    assert not page.find_all("path", of_class="mark")
    assert page.find("path", of_class="dot").attributes["data-label"] == "aten::mm: 1,000 FLOP/B"


def test_where_no_operator_reaches_the_peak_the_slope_is_drawn_as_far_as_there_are_operators() -> None:
    (roof,) = read_page(draw_roofline_chart([SMALL])).find_all("path", of_class="mark")
    assert roof.attributes["d"].endswith("H1000")


@pytest.mark.parametrize(
    "point", [RooflinePoint("aten::mm", "", 1, 0.0, 1.0, 1.0), RooflinePoint("aten::mm", "", 1, 1.0, 1.0, 0.0)]
)
def test_operators_without_time_or_bytes_have_no_place(point: RooflinePoint) -> None:
    assert draw_roofline_chart([point]) == ""

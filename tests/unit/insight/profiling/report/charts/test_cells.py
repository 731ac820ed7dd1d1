from tests.report_pages import read_page
from trainyard.insight.profiling.report.charts.cells import Box, Part, bar_cell, box_cell, parts_bar


def test_parts_share_the_width_and_small_ones_have_no_label() -> None:
    bar = read_page(
        parts_bar(
            [Part("wait", 0.6, "red"), Part("work", 0.38, "blue"), Part("rest", 0.02, "grey"), Part("none", 0, "")]
        )
    )
    spans = bar.find_all("span")
    assert [each.text for each in spans] == ["wait 60.0 %", "work 38.0 %", ""]
    assert spans[2].attributes["title"] == "rest: 2.0 %"
    assert bar.find("div").attributes["aria-label"] == "wait 60.0 %, work 38.0 %, rest 2.0 %"


def test_a_bar_never_leaves_its_cell() -> None:
    assert "width:100.0%" in bar_cell(1.7)
    assert "width:0.0%" in bar_cell(-0.2)
    assert "width:0.0%" in bar_cell(float("nan"))


def test_a_box_has_its_quantiles_and_the_threshold() -> None:
    box = read_page(box_cell(Box(10, 25, 50, 75, 90), high=100, threshold=70))
    assert box.find(of_class="whisker").attributes["style"] == "left:10.0%;width:80.0%"
    assert box.find(of_class="box").attributes["style"] == "left:25.0%;width:50.0%"
    assert box.find(of_class="median").attributes["style"] == "left:50.0%"
    assert box.find(of_class="threshold").attributes["style"] == "left:70.0%"

import re
from xml.etree import ElementTree

from trainyard.insight.rules.charts import HEIGHT, LEFT, WIDTH, bar_chart, histogram, line_chart, matrix_chart
from trainyard.insight.rules.contract import Evidence

SVG = "{http://www.w3.org/2000/svg}"


def test_a_line_goes_through_its_points_and_leaves_out_what_is_not_finite() -> None:
    drawn = ElementTree.fromstring(line_chart([Evidence("a < b", (0, 1, 2, 3), (1.0, float("nan"), 3.0, 2.0))]))
    line = drawn.findall(f"{SVG}polyline")[-1].attrib["points"]
    points = [tuple(map(float, point.split(","))) for point in line.split()]
    assert points[0][0] == LEFT
    assert len(set(points)) == 3
    assert all(0 <= across <= WIDTH and 0 <= down <= HEIGHT for across, down in points)
    assert "a < b" in [text.text for text in drawn.findall(f"{SVG}text")]


def test_the_longest_bar_is_the_largest_value() -> None:
    widths = [float(width) for width in re.findall(r'width="([\d.]+)" height="14"', bar_chart({"f0": 0.25, "f1": 0.5}))]
    assert widths[1] == 2 * widths[0]


def test_a_matrix_has_a_cell_for_each_pair() -> None:
    drawn = ElementTree.fromstring(matrix_chart([[5, 1], [0, 4]]))
    assert len(drawn.findall(f"{SVG}rect")) == 4


def test_a_histogram_has_a_column_for_each_stretch() -> None:
    drawn = ElementTree.fromstring(histogram([0.0, 1.0, 2.0], [3, 0]))
    assert [column.attrib["height"] for column in drawn.findall(f"{SVG}rect")][1] == "0.0"


def test_nothing_is_drawn_of_nothing() -> None:
    assert line_chart([Evidence("loss", (0,), (float("nan"),))]) == ""
    assert bar_chart({}) == ""

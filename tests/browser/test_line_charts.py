"""The gestures of line charts, and what they draw."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.accessibility import accessibility_problems
from tests.browser.charts_site import serve_charts
from tests.browser.chromium import Browser, Page

HOSTILE = '<img src=x onerror="document.title=1">\u202eevil\x1b[31m'
# Reads the picture of the lines alone: how many of its pixels are painted, from one share of its width to another.
PAINTED = """
window.painted = (chart, from, to, isWanted = ([red, green, blue, alpha]) => alpha > 0) => {
  const {canvas} = chart.layer;
  const context = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", {willReadFrequently: true});
  context.drawImage(canvas, 0, 0);
  const left = Math.round(from * canvas.width), width = Math.max(1, Math.round(to * canvas.width) - left);
  const {data} = context.getImageData(left, 0, width, canvas.height);
  let count = 0;
  for (let at = 0; at < data.length; at += 4) if (isWanted(data.slice(at, at + 4))) count++;
  return count;
};
"""


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with serve_charts() as address:
        yield address


@pytest.fixture
def page(browser: Browser, site: str) -> Iterator[Page]:
    page = browser.open_page()
    page.show_as(width=900, height=900)
    page.open_url(site)
    page.evaluate(
        "Promise.all([import('/charts/line_chart.js'), import('/charts/smoothing.js')])"
        ".then(([{LineChart}, smoothing]) => { window.smoothing = smoothing; window.range = (from, to, step = 1) => "
        "Float64Array.from({length: Math.floor((to - from) / step)}, (_, number) => from + number * step);"
        "window.make = (place, options) => window[place] = new LineChart(document.getElementById(place), options); })"
    )
    page.evaluate(PAINTED)
    yield page
    page.evaluate("1")
    assert page.logged == []


def make(page: Page, place: str, options: str) -> None:
    page.evaluate(f"make('{place}', {options}); 1")
    page.wait_until_drawn()


def spot(page: Page, place: str, x: float, y: float = 0.5) -> tuple[float, float]:
    """Return the place in the window of a share of a chart's area."""
    left, top, width, height = page.evaluate(
        f"(() => {{ const {{left, top, width, height}} = {place}.area;"
        f"const box = {place}.surface.plot.getBoundingClientRect();"
        "return [box.x + left, box.y + top, width, height]; })()"
    )
    return left + x * width, top + y * height


def read(page: Page, expression: str) -> Any:
    page.wait_until_drawn()
    return page.evaluate(expression)


def test_all_charts_of_a_page_are_read_at_the_same_x(page: Page) -> None:
    square = "{x: range(0, 101), y: range(0, 101).map((x) => x * x)}"
    make(page, "one", f"{{series: [{{name: 'square', ...{square}}}], syncKey: 'a', xLabel: 'step', legend: true}}")
    make(page, "two", "{series: [{name: 'line', x: range(0, 201), y: range(0, 201)}], syncKey: 'a'}")
    make(page, "three", "{series: [{name: 'other', x: [0, 100], y: [1, 2]}]}")

    page.move_pointer(*spot(page, "one", 0.25))

    assert read(page, "[one.cursor, two.cursor, three.cursor]") == [25, 25, None]
    assert page.evaluate("one.tooltip.box.innerText").split("\n") == ["step 25", "square", "625"]
    # Only the chart under the pointer has a box; the others have a line.
    assert page.evaluate("[one, two].map((chart) => chart.tooltip.box.hidden)") == [False, True]
    page.move_pointer(5, 5)
    assert read(page, "[one.cursor, two.cursor, one.tooltip.box.hidden]") == [None, None, True]


def test_a_drag_zooms_and_a_double_click_shows_everything_again(page: Page) -> None:
    make(
        page,
        "one",
        "{series: [{name: 'loss', x: range(0, 1001), y: range(0, 1001)}],"
        "onSelectRange: (range) => (window.told ??= []).push(range)}",
    )
    page.drag(spot(page, "one", 0.2, 0.5), spot(page, "one", 0.4, 0.5))

    shown = read(page, "one.range")
    assert shown["x"] == pytest.approx([200, 400], abs=4)
    # The y axis fits what is shown.
    assert shown["y"] == pytest.approx([190, 410], abs=10)
    (told,) = page.evaluate("told")
    assert [told["from"], told["to"]] == pytest.approx(shown["x"])

    page.drag(spot(page, "one", 0.5, 0.2), spot(page, "one", 0.5, 0.6))
    assert read(page, "one.range.x") == shown["x"], "a drag upwards leaves x"
    assert page.evaluate("one.range.y") == pytest.approx([278, 366], abs=15)

    before = page.evaluate("one.range.x")
    page.drag(spot(page, "one", 0.5), spot(page, "one", 0.25), modifiers=8)
    assert read(page, "one.range.x")[0] == pytest.approx(before[0] + 50, abs=4), "with Shift, it moves the view"

    assert not page.evaluate("one.resetButton.hidden")
    page.click_at(*spot(page, "one", 0.5), count=2)
    assert read(page, "[one.range.x, one.range.isZoomed, one.resetButton.hidden]") == [[0, 1000], False, True]
    assert page.evaluate("told.at(-1)") is None


def test_a_chart_is_read_and_zoomed_with_keys(page: Page) -> None:
    make(page, "one", "{series: [{name: 'loss', x: range(0, 11), y: range(0, 11).map((x) => 10 - x)}], xLabel: 'step'}")
    page.evaluate("one.surface.plot.focus()")
    for _ in range(3):
        page.press("ArrowRight")
    assert read(page, "one.surface.live.textContent") == "step 2: loss 8"
    page.press("+")
    page.wait_until("one.range.isZoomed")
    page.press("0")
    assert read(page, "one.range.isZoomed") is False
    page.press("t")
    assert read(page, "[...document.querySelectorAll('tbody tr')].at(-1).innerText.split('\\t')") == ["10", "0"]
    assert accessibility_problems(page) == []


def test_a_logarithmic_axis_leaves_out_what_it_has_no_place_for(page: Page) -> None:
    make(page, "one", "{series: [{name: 'loss', x: range(0, 7), y: [0, 1, 10, 100, 1000, -5, 10000]}], logY: true}")
    low, high = read(page, "one.range.y")
    assert 0.5 < low < 1
    assert 10_000 < high < 20_000
    assert page.evaluate("one.yScale.fraction(100)") == pytest.approx(0.5, abs=0.01)
    page.evaluate("one.setData({logY: false})")
    assert read(page, "one.range.y[0]") < -5


def test_smoothing_keeps_constants_and_gaps_and_shows_the_values_behind(page: Page) -> None:
    constant = page.evaluate("[...smoothing.smooth(new Float64Array(1000).fill(0.1), 0.99)]")
    assert constant == [0.1] * 1000
    # The first value is not drawn towards zero, and a gap neither moves nor spreads.
    smoothed = page.evaluate(
        "[...smoothing.smooth([4, NaN, 4, 8], 0.5)].map((value) => Number.isNaN(value) ? 'gap' : value)"
    )
    assert smoothed == [4, "gap", 4, pytest.approx(4 + 4 / 1.75)]

    noisy = "{name: 'loss', x: range(0, 400), y: range(0, 400).map((x) => x % 2)}"
    make(page, "one", f"{{series: [{noisy}], smoothing: 0.95}}")
    strong = "painted(one, 0.5, 0.8, ([red, green, blue, alpha]) => alpha > 200)"
    faint = "painted(one, 0.5, 0.8, ([red, green, blue, alpha]) => alpha > 20 && alpha < 120)"
    with_smoothing = [page.evaluate(strong), page.evaluate(faint)]
    page.evaluate("one.setData({smoothing: 0}); 1")
    page.wait_until_drawn()
    assert with_smoothing[1] > 10 * with_smoothing[0] > 0
    assert page.evaluate(strong) > 5 * with_smoothing[0]
    page.evaluate("one.setData({smoothing: 0.95}); 1")
    page.move_pointer(*spot(page, "one", 0.5))
    value = read(page, "one.tooltip.box.innerText.split('\\n').at(-1)")
    assert value.endswith(("(0)", "(1)")), "the box tells both values"


def test_a_value_that_is_no_number_is_a_gap(page: Page) -> None:
    y = "range(0, 101).map((x) => x >= 40 && x < 60 ? (x % 2 ? NaN : Infinity) : x)"
    make(page, "one", f"{{series: [{{name: 'loss', x: range(0, 101), y: {y}}}]}}")
    assert page.evaluate("painted(one, 0.42, 0.58)") == 0
    assert page.evaluate("painted(one, 0.1, 0.3)") > 0
    assert page.evaluate("painted(one, 0.7, 0.9)") > 0
    assert read(page, "one.range.y") == pytest.approx([-5, 105])


def test_a_few_outliers_do_not_hide_the_rest(page: Page) -> None:
    y = "range(0, 1000).map((x) => x === 500 ? 1e6 : x === 700 ? -1e6 : Math.sin(x))"
    make(page, "one", f"{{series: [{{name: 'loss', x: range(0, 1000), y: {y}}}], clipOutliers: true}}")
    low, high = read(page, "one.range.y")
    assert -3 < low < -1
    assert 1 < high < 3
    assert page.evaluate("one.clipped") == {"above": 1, "below": 1}
    page.evaluate("one.setData({clipOutliers: false}); 1")
    assert read(page, "one.range.y[1]") > 1e6


def test_an_end_of_the_y_axis_can_be_fixed(page: Page) -> None:
    make(page, "one", "{series: [{name: 'memory', x: [0, 1], y: [100, 101]}], yRange: [0, null]}")
    assert read(page, "one.range.y") == pytest.approx([0, 106], abs=0.1)
    page.evaluate("one.setData({series: [{name: 'disk', x: [0, 1], y: [0, 0]}]}); 1")
    assert read(page, "one.range.y") == [0, 1]
    page.evaluate("one.setData({yRange: [null, 50]}); 1")
    assert read(page, "one.range.y") == pytest.approx([-2.5, 50])


def test_marks_say_what_happened(page: Page) -> None:
    marks = [{"x": 50, "text": f"Interrupted: {HOSTILE}", "kind": "interruption"}]
    make(page, "one", f"{{series: [{{name: 'loss', x: range(0, 101), y: range(0, 101)}}], marks: {json.dumps(marks)}}}")
    page.move_pointer(*spot(page, "one", 0.5))
    told = read(page, "one.tooltip.box.innerText")
    assert 'Interrupted: <img src=x onerror="document.title=1">⟨U+202E⟩evil␛[31m' in told
    assert page.evaluate("document.querySelectorAll('img').length") == 0


def test_charts_side_by_side_begin_and_end_at_the_same_x(page: Page) -> None:
    make(page, "one", "{series: [{name: 'loss', x: [10, 20], y: [1, 2]}], xRange: [0, 100]}")
    assert read(page, "one.range.x") == [0, 100]
    page.evaluate("one.append({loss: {x: [150], y: [3]}}); 1")
    assert read(page, "one.range.x") == [0, 150]


def test_points_that_come_are_drawn_and_new_runs_added(page: Page) -> None:
    make(page, "one", "{series: [{name: 'a', x: [0], y: [0]}]}")
    page.evaluate("one.append({a: {x: [1, 2], y: [1, 2]}, b: {x: [3, 1], y: [3, 1]}}); 1")
    assert read(page, "one.range.x") == [0, 3]
    assert page.evaluate("one.curves.map((curve) => [curve.name, [...curve.data.x.slice(0, curve.length)]])") == [
        ["a", [0, 1, 2]],
        ["b", [1, 3]],
    ]
    page.click(".chart-legend button")
    assert read(page, "one.range.x") == [1, 3], "what is hidden takes no room"
    assert page.evaluate("document.querySelector('.chart-legend button').getAttribute('aria-pressed')") == "false"


def test_lines_follow_the_colours_of_the_page(page: Page) -> None:
    make(page, "one", "{series: [{name: 'a', x: range(0, 101), y: range(0, 101)}]}")
    blue = "painted(one, 0.2, 0.8, ([red, green, blue, alpha]) => blue > 200 && green < 50 && alpha > 200)"
    green = "painted(one, 0.2, 0.8, ([red, green, blue, alpha]) => green > 200 && blue < 50 && alpha > 200)"
    assert page.evaluate(blue) > 0
    page.evaluate(
        "document.documentElement.dataset.theme = 'dark'; document.dispatchEvent(new CustomEvent('themechange'))"
    )
    page.wait_until_drawn()
    assert page.evaluate(blue) == 0
    assert page.evaluate(green) > 0


def test_fifty_runs_of_ten_thousand_points_are_moved_by_drawing_only_what_comes_into_view(page: Page) -> None:
    page.evaluate(
        "window.runs = Array.from({length: 50}, (_, run) => ({name: `run-${run}`, x: range(0, 10000),"
        "y: range(0, 10000).map((x) => Math.exp(-x / 3000) + run / 50 + Math.random() / 10)})); 1"
    )
    make(page, "one", "{series: runs, smoothing: 0.6, height: 400}")
    assert page.evaluate("painted(one, 0.45, 0.55)") > 1000
    # Moving the view moves the picture, and draws only what comes into it.
    count_lines = (
        "(() => { const {context} = one.layer, plain = Object.getPrototypeOf(context).lineTo; let count = 0;"
        "context.lineTo = (...place) => { count++; plain.apply(context, place); };"
        "WORK; one.surface.drawDirty(); delete context.lineTo; return count; })()"
    )
    whole = page.evaluate(count_lines.replace("WORK", "one.setRange({from: 2000, to: 4000})"))
    strip = page.evaluate(count_lines.replace("WORK", "one.gestures.actions.onPan(-10, 0, false)"))
    assert page.evaluate("one.range.x[0]") > 2010
    assert 0 < strip < whole / 10

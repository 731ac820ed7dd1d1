"""The heat map of the dashboard, in a real browser."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.browser.accessibility import accessibility_problems
from tests.browser.charts_site import serve_charts
from tests.browser.chromium import Browser, Page

RED, DARKEST, BRIGHTEST = [179, 38, 30], [68, 2, 85], [253, 231, 37]


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with serve_charts() as url:
        yield url


@pytest.fixture
def page(browser: Browser, site: str) -> Page:
    opened = browser.open_page()
    opened.show_as(width=900)
    opened.open_url(site)
    return opened


def draw(page: Page, values: Sequence[float | None], **options: Any) -> None:
    """Draw a heat map as `window.map`. What is selected is in `window.selected`."""
    shown = json.dumps({"xLabel": "step", "label": "Norms", "legend": "Norm", "height": 200, **options})
    page.evaluate(
        "import('/charts/heatmap.js').then(({Heatmap}) => {"
        f"const values = Float32Array.from({json.dumps(values)}, (value) => value ?? NaN);"
        f"const options = {shown};"
        "if (options.alarms) options.alarms = Uint8Array.from(options.alarms);"
        "const onSelect = (...cell) => (window.selected = cell);"
        "window.map = new Heatmap(document.querySelector('#one'), {...options, values, onSelect}); })"
    )
    page.wait_until_drawn()


def middle_of(page: Page, row: float, column: float) -> tuple[float, float]:
    """Where a cell lies in the window."""
    x, y = page.evaluate(
        "(() => { const {area, x, y, surface} = map; const {left, top} = surface.plot.getBoundingClientRect();"
        f"return [left + area.left + ({column} + 0.5 - x.shown[0]) * area.width / (x.shown[1] - x.shown[0]),"
        f"top + area.top + ({row} + 0.5 - y.shown[0]) * area.height / (y.shown[1] - y.shown[0])]; }})()"
    )
    return x, y


def colour_of(page: Page, row: float, column: float) -> list[int]:
    x, y = middle_of(page, row, column)
    colour: list[int] = page.evaluate(
        f"(() => {{ const {{left, top}} = map.surface.plot.getBoundingClientRect();"
        f"return [...map.surface.context.getImageData({x} - left, {y} - top, 1, 1).data.slice(0, 3)]; }})()"
    )
    return colour


def tip(page: Page) -> str:
    shown: str = page.evaluate("map.tooltip.box.hidden ? '' : map.tooltip.box.innerText")
    return shown


def test_values_alarms_and_marks_are_seen_and_told(page: Page) -> None:
    mark = {"x": 14, "text": "vanishing, step 14", "kind": "finding"}
    names = ["first.weight", "<b>second\u202e.weight"]
    draw(page, [1, 4, None, 10, 2, 3], rows=names, columns=[0, 10, 20], alarms=[0, 0, 1, 0, 0, 0], marks=[mark])
    assert [colour_of(page, *cell) for cell in ((0, 0), (1, 0), (0, 2))] == [DARKEST, BRIGHTEST, RED]
    # The mark is at a step inside the second column, and drawn through its middle.
    x, _ = middle_of(page, 0, 1)
    page.move_pointer(x, middle_of(page, 0, 1)[1])
    assert tip(page).split("\n")[:2] == ["first.weight", "vanishing, step 14"]
    page.move_pointer(*middle_of(page, 1, 2))
    assert tip(page).split("\n") == ["<b>second⟨U+202E⟩.weight", "step 20", "3"]
    page.click_at(*middle_of(page, 1, 2))
    assert page.evaluate("selected") == [1, 2]
    assert accessibility_problems(page) == []


def test_every_cell_is_reached_with_the_keyboard(page: Page) -> None:
    mark = {"x": 10, "text": "vanishing", "kind": "finding"}
    draw(page, [1, 4, 2, 10, 2, 3], rows=["first", "second"], columns=[0, 10, 20], marks=[mark])
    page.evaluate("map.surface.plot.focus()")
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        page.press(key)
    assert page.evaluate("map.surface.live.textContent") == "second, step 10: 2. vanishing"
    page.press("Enter")
    assert page.evaluate("selected") == [1, 1]
    page.press("t")
    table = page.evaluate("map.surface.tableElement.innerText").split()
    assert " ".join(table) == "0 10 20 first 1 4 2 second 10 2 3"


def test_a_part_is_enlarged_and_everything_shown_again(page: Page) -> None:
    draw(page, [float(number) for number in range(40)], rows=[f"row {n}" for n in range(4)], columns=list(range(10)))
    page.drag(middle_of(page, 1, 2), middle_of(page, 2, 5))
    shown = page.evaluate("[map.x.shown, map.y.shown]")
    assert shown == [pytest.approx([2.5, 5.5], abs=0.1), pytest.approx([1.5, 2.5], abs=0.1)]
    page.click_at(*middle_of(page, 2, 4), count=2)
    assert page.evaluate("[map.x.shown, map.y.shown]") == [[0, 10], [0, 4]]


def test_signs_have_a_palette_of_their_own_and_zero_lies_in_its_middle(page: Page) -> None:
    draw(page, [-1, 0, 4], rows=["mean"], columns=[0, 1, 2], palette="diverging")
    below, zero, above = (colour_of(page, 0, column) for column in range(3))
    assert below[2] > below[0]
    assert above[0] > above[2]
    assert max(zero) - min(zero) < 10


def test_colours_follow_the_theme(page: Page) -> None:
    draw(page, [0, 1, None], rows=["row"], columns=[0, 1, 2], palette="diverging")
    light = colour_of(page, 0, 0)
    page.evaluate(
        "document.documentElement.dataset.theme = 'dark', document.dispatchEvent(new CustomEvent('themechange'))"
    )
    page.wait_until_drawn()
    assert sum(colour_of(page, 0, 0)) < sum(light)
    assert colour_of(page, 0, 2) == [0, 0, 0]  # no value: the page is seen through the canvas


def test_nothing_to_show_is_said_and_does_nothing(page: Page) -> None:
    draw(page, [], rows=[], columns=[], empty="Nothing was captured")
    page.move_pointer(400, 100)
    page.click_at(400, 100)
    assert tip(page) == ""
    assert page.evaluate("window.selected === undefined && map.isEmpty")
    page.evaluate("map.setData({rows: ['one'], columns: [0], values: new Float32Array([1])})")
    page.wait_until_drawn()
    page.move_pointer(*middle_of(page, 0, 0))
    assert tip(page).split("\n") == ["one", "step 0", "1"]


def test_a_single_peak_is_seen_among_two_thousand_layers_over_600_steps(page: Page) -> None:
    draw(page, [1], rows=["one"], columns=[0])
    page.evaluate(
        "window.values = new Float32Array(2000 * 600).map((_, number) => 1e-3 * (number % 7));"
        "values[1234 * 600 + 345] = 5; 0"
    )
    page.evaluate(
        "map.setData({rows: Array.from({length: 2000}, (_, n) => `layer.${n}`),"
        "columns: Array.from({length: 600}, (_, n) => n), values}); map.surface.drawAll()"
    )
    x, y = middle_of(page, 1234, 345)
    left, top = page.evaluate("(({left, top}) => [left, top])(map.surface.plot.getBoundingClientRect())")
    around = page.evaluate(f"[...map.surface.context.getImageData({x - left} - 2, {y - top} - 2, 5, 5).data]")
    pixels = [around[place : place + 3] for place in range(0, len(around), 4)]
    assert BRIGHTEST in pixels

"""The timeline of traces, in a real browser."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.accessibility import accessibility_problems
from tests.browser.charts_site import serve_charts
from tests.browser.chromium import CONTROL, SHIFT, Browser, Page

# Two threads and a stream: steps of 100 µs with two operators each, of which the first calls another, and kernels.
_MAKE = """
import("/charts/timeline.js").then(({ Timeline }) => {
  const columns = { lane: [], start: [], duration: [], name: [] };
  const names = ["step", "aten::linear", "aten::mm", "<b>aten::add\\u202e</b>", "gemm_kernel"];
  const add = (lane, start, duration, name) => {
    columns.lane.push(lane); columns.start.push(start); columns.duration.push(duration); columns.name.push(name);
  };
  for (let step = 0; step < 20; step++) {
    const start = step * 100;
    add(0, start, 100, 0); add(0, start, 50, 1); add(0, start + 10, 30, 2); add(0, start + 60, 30, 3);
    add(2, start + 20, 40, 4);
  }
  window.told = { selected: [], ranges: [] };
  const slices = { lane: Int32Array.from(columns.lane), start: Float64Array.from(columns.start),
    duration: Float64Array.from(columns.duration), name: Int32Array.from(columns.name) };
  window.chart = new Timeline(document.querySelector("#one"), {
    slices, names,
    lanes: [["thread 1", "python"], ["thread 2", "python"], ["stream 7", "GPU 0"]].map(
      ([name, group]) => ({ name, group })),
    steps: Array.from({ length: 20 }, (_, step) => ({ from: step * 100, to: step * 100 + 100, name: `step ${step}` })),
    onSelect: (slice) => window.told.selected.push(slice && slice.name),
    onSelectRange: (range) => window.told.ranges.push(range),
  });
  return 1;
})
"""
# A part of a trace: what is shown is loaded by `onView`.
_SERVE = """
import("/charts/timeline.js").then(({ Timeline }) => {
  window.views = [];
  const part = ({ from, to }) => {
    const span = (to - from) / 10;
    const length = 10;
    return { lane: new Int32Array(length), depth: new Int32Array(length), name: new Int32Array(length),
      start: Float64Array.from({ length }, (_, number) => from + number * span),
      duration: new Float64Array(length).fill(span * 0.9), count: new Int32Array(length).fill(to - from > 1e6 ? 50 : 1),
      id: Int32Array.from({ length }, (_, number) => Math.round(from) + number) };
  };
  window.served = new Timeline(document.querySelector("#two"), {
    lanes: [{ name: "thread 1", rows: 1 }], unit: "ns", whole: [0, 1e9], names: ["aten::relu"], label: "Served",
    onView: (view) => { window.views.push(view); window.served.setData({ slices: part(view) }); },
    onSearch: async (name) => ({ total: 3,
      slices: [2e8, 5e8, 8e8].map((start, id) => ({ id, lane: 0, depth: 0, start, duration: 1000, name })) }),
  });
  return 1;
})
"""

# 200,000 slices in ten rows. The benchmark of the dashboard pans and zooms the same ones.
MAKE_LARGE = """
import("/charts/timeline.js").then(({ Timeline }) => {
  const [rows, each] = [10, 20000];
  const count = rows * each;
  const slices = { lane: new Int32Array(count), depth: new Int32Array(count), start: new Float64Array(count),
    duration: new Float64Array(count), name: new Int32Array(count), colour: new Int32Array(count) };
  for (let number = 0; number < count; number++) {
    const row = Math.floor(number / each);
    slices.lane[number] = row >> 1;
    slices.depth[number] = row % 2;
    slices.start[number] = (number % each) * 200 + ((number * 7919) % 50);
    slices.duration[number] = 20 + ((number * 104729) % 120);
    slices.name[number] = slices.colour[number] = number % 40;
  }
  const names = Array.from({ length: 40 }, (_, number) => `aten::operator_${number}`);
  window.large = new Timeline(document.querySelector("#three"), {
    slices, names, unit: "us", lanes: Array.from({ length: 5 }, (_, number) => ({ name: `thread ${number}` })),
  });
  return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))));
})
"""


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Page]:
    with serve_charts() as address:
        opened = browser.open_page()
        opened.show_as(width=1000)
        opened.open_url(address)
        opened.evaluate(_MAKE)
        opened.wait_until_drawn()
        yield opened
        assert opened.logged == []


@pytest.fixture(autouse=True)
def whole_view(page: Page) -> None:
    page.evaluate("chart.resetZoom(); chart.select(null); chart.input.value = ''; chart.search('');")
    page.evaluate("Object.assign(told, { selected: [], ranges: [] })")
    page.wait_until_drawn()


def place_of(page: Page, *, time: float, row: int) -> tuple[float, float]:
    """Return where a time is drawn in a row, counted over all lanes."""
    x, y = page.evaluate(
        f"(() => {{ const box = chart.surface.plot.getBoundingClientRect(); const {{ area }} = chart;"
        f"const [low, high] = chart.range.x; const top = chart.tops[{row}];"
        f"const left = ({time} - low) / (high - low) * area.width;"
        f"return [box.x + area.left + left, box.y + area.top + top - chart.scroll + 9]; }})()"
    )
    return x, y


def test_a_click_selects_the_slice_under_the_pointer_and_nested_ones_lie_below(page: Page) -> None:
    for row, name in ((0, "step"), (1, "aten::linear"), (2, "aten::mm"), (3, "gemm_kernel")):
        page.click_at(*place_of(page, time=525, row=row))
        assert page.evaluate("told.selected.at(-1)") == name
    assert "gemm_kernel, on stream 7: takes 40 µs, begins at 520 µs" in page.evaluate("chart.details.textContent")


def test_a_drag_zooms_a_shift_drag_pans_and_a_double_click_resets(page: Page) -> None:
    page.drag(place_of(page, time=500, row=0), place_of(page, time=1000, row=0))
    low, high = page.evaluate("chart.range.x")
    assert (low, high) == (pytest.approx(500, abs=5), pytest.approx(1000, abs=5))
    page.drag(place_of(page, time=600, row=0), place_of(page, time=700, row=0), modifiers=SHIFT)
    assert page.evaluate("chart.range.x[0]") == pytest.approx(400, abs=5)
    page.wait_until("told.ranges.length > 0 && Math.abs(told.ranges.at(-1).from - 400) < 5")
    page.click_at(*place_of(page, time=500, row=0), count=2)
    assert page.evaluate("chart.range.isZoomed") is False


def test_the_wheel_with_ctrl_zooms_where_the_pointer_is(page: Page) -> None:
    at = place_of(page, time=1500, row=0)
    page.turn_wheel(*at, -300, modifiers=CONTROL)
    low, high = page.evaluate("chart.range.x")
    assert high - low == pytest.approx(2000 * 0.67, rel=0.01)
    assert place_of(page, time=1500, row=0)[0] == pytest.approx(at[0], abs=2)


def test_keys_zoom_move_and_go_from_slice_to_slice(page: Page) -> None:
    page.evaluate("chart.surface.plot.focus()")
    page.move_pointer(*place_of(page, time=1000, row=0))
    for key, is_expected in (
        ("w", "high - low < 1700"),
        ("d", "low > 250"),
        ("s", "true"),
        ("0", "low === 0 && high === 2000"),
    ):
        page.press(key)
        page.wait_until_drawn()
        assert page.evaluate(f"(([low, high]) => {is_expected})(chart.range.x)"), key
    page.click_at(*place_of(page, time=525, row=0))
    for key, name in (("ArrowDown", "aten::linear"), ("ArrowDown", "aten::mm"), ("ArrowUp", "aten::linear")):
        page.press(key)
        assert page.evaluate("told.selected.at(-1)") == name
    page.press("ArrowRight")
    assert page.evaluate("chart.selected.start") == 560
    assert "begins at 560 µs" in page.evaluate("chart.surface.live.textContent")
    page.press("Escape")
    assert page.evaluate("chart.selected") is None


def test_a_search_counts_highlights_and_goes_from_match_to_match(page: Page) -> None:
    page.evaluate("chart.surface.plot.focus()")
    page.press("/")
    page.type("ATEN::M")
    page.wait_until("chart.count.textContent.startsWith('20 found')")
    page.press("Enter")
    page.press("Enter")
    assert page.evaluate("[chart.count.textContent, chart.selected.name, chart.selected.start]") == [
        "2 of 20",
        "aten::mm",
        110,
    ]
    page.press("Enter", modifiers=SHIFT)
    assert page.evaluate("chart.selected.start") == 10
    low, high = page.evaluate("chart.range.x")
    assert low <= 10
    assert high >= 40
    page.evaluate("chart.search('nothing')")
    assert page.evaluate("chart.count.textContent") == "0 found"


def test_a_lane_is_collapsed_by_a_click_on_its_name(page: Page) -> None:
    x, y = place_of(page, time=0, row=0)
    page.click_at(x - 100, y)
    assert page.evaluate("chart.lanes[0].shown") == 1
    page.click_at(*place_of(page, time=525, row=1))
    assert page.evaluate("told.selected.at(-1)") == "gemm_kernel"
    page.click_at(x - 100, y)
    assert page.evaluate("chart.lanes[0].shown") == 3


def test_the_slices_in_view_are_a_table(page: Page) -> None:
    page.evaluate("chart.setRange({ from: 500, to: 600 })")
    page.wait_until_drawn()
    page.evaluate("chart.surface.plot.focus()")
    page.press("t")
    rows: list[list[str]] = page.evaluate(
        "[...document.querySelectorAll('#one tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    assert ["aten::mm", "thread 1", "510 µs", "30 µs"] in rows
    # Text of a program stays text, and what turns it around is shown.
    assert any(row[0] == "<b>aten::add⟨U+202E⟩</b>" for row in rows)
    page.press("t")
    assert page.evaluate("document.querySelector('#one table')") is None


def test_what_is_seen_is_loaded_at_the_resolution_of_the_screen(page: Page) -> None:
    page.evaluate(_SERVE)
    first: dict[str, Any] = page.wait_until("window.views[0]")
    assert (first["from"], first["to"]) == (0, 1e9)
    assert first["resolution"] == pytest.approx(1e9 / page.evaluate("served.area.width"))
    page.evaluate("served.setRange({ from: 1e8, to: 1e8 + 1000 })")
    page.wait_until("views.length === 2")
    assert page.evaluate("views[1].resolution") < 2
    page.evaluate("served.resetZoom()")
    page.wait_until("views.length === 3")
    # What stands for several is gone into, not selected.
    page.evaluate("served.surface.plot.focus()")
    page.press("ArrowRight")
    page.press("Enter")
    page.wait_until("served.range.isZoomed")
    page.evaluate("served.input.value = 'relu'; served.search('relu')")
    page.wait_until("served.count.textContent.startsWith('3 found')")
    page.evaluate("served.showMatch(-1)")
    assert page.evaluate("served.selected.start") == 8e8
    page.evaluate("served.destroy()")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_timeline_is_accessible(page: Page, scheme: str) -> None:
    page.show_as(width=1000, scheme=scheme)
    page.evaluate(f"document.documentElement.dataset.theme = '{scheme}'")
    problems = accessibility_problems(page)
    page.show_as(width=1000)
    page.evaluate("document.documentElement.removeAttribute('data-theme')")
    assert problems == []


def test_a_timeline_without_slices_says_so(page: Page) -> None:
    page.evaluate("chart.setData({ slices: undefined, lanes: [], steps: [] })")
    page.wait_until_drawn()
    assert page.evaluate("chart.isEmpty") is True
    page.evaluate("chart.destroy()")


def test_a_frame_of_200_000_slices_draws_no_more_than_the_screen_can_show(page: Page) -> None:
    page.evaluate(MAKE_LARGE)
    drawn = page.evaluate("""
      (() => {
        const context = large.surface.context;
        let rectangles = 0;
        const fill = context.fillRect;
        context.fillRect = (...box) => { rectangles += 1; fill.apply(context, box); };
        const counts = [];
        for (const range of [null, { from: 1e6, to: 3e6 }, { from: 1e6, to: 1e6 + 2000 }]) {
          large.setRange(range);
          rectangles = 0;
          large.surface.drawAll();
          counts.push(rectangles);
        }
        return [counts, large.visible.length * (large.area.width + 5)];
      })()
    """)
    counts, most = drawn
    assert all(100 <= count <= most for count in counts), drawn
    page.evaluate("large.destroy()")

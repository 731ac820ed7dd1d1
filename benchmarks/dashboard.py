"""The dashboard in headless Chromium: how fast it shows, draws and follows, what it loads and what it costs the server.

    python -m benchmarks.dashboard [--jobs N] [--rounds N] [--seconds N]

Times are those of the browser's own clock, from the start of a navigation or of a call to the end of the frame in which
the result is painted. All pages are those of a real yard, with real jobs; only the 10,000 jobs of the list are copies
of one that ran. Charts draw data that is in the page already, so that nothing but drawing is timed.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.many_jobs import fill_yard
from benchmarks.measurement import own_cpu_seconds, write_results
from benchmarks.yard_jobs import SCRIPTS, Jobs, open_jobs
from tests.browser.charts_site import serve_charts
from tests.browser.chromium import CHROMIUM, Browser, Page, start_browser
from tests.browser.dashboard import sign_in
from tests.browser.test_timeline import MAKE_LARGE
from trainyard.foundation.home import Home
from trainyard.testing.yard import RunningYard

RUNS, POINTS = 50, 10_000
METRICS = [{"Name": name, "Regex": f"{name}=([0-9.]+)"} for name in ("loss", "accuracy", "sent")]

# Runs before the page's own scripts. Notes when an element that a selector finds has been painted.
_NOTE_PAINT = """
new MutationObserver((_, observer) => {
  if (document.querySelector(%s) === null) return;
  observer.disconnect();
  requestAnimationFrame(() => setTimeout(() => (window.paintedAt = performance.now())));
}).observe(document, { childList: true, subtree: true });
"""
# Notes how old the newest value of the metric `sent`, which is the moment of its print, is after it was drawn.
_NOTE_AGES = """
window.ages = [];
let sentAt = null;
const add = EventSource.prototype.addEventListener;
EventSource.prototype.addEventListener = function (name, handle) {
  return add.call(this, name, (event) => {
    if (name === "points") {
      const values = JSON.parse(event.data).filter(({ metric }) => metric === "sent").flatMap(({ values }) => values);
      sentAt = values.at(-1) ?? sentAt;
    }
    handle(event);
  });
};
const stroke = CanvasRenderingContext2D.prototype.stroke;
CanvasRenderingContext2D.prototype.stroke = function (...path) {
  stroke.apply(this, path);
  if (sentAt === null) return;
  const drawn = sentAt;
  sentAt = null;
  requestAnimationFrame(() => setTimeout(() => ages.push(Date.now() - 1000 * drawn)));
};
"""
_MAKE_CURVES = """
import("/charts/line_chart.js").then(({ LineChart }) => {
  const series = Array.from({ length: %d }, (_, run) => ({
    name: `run ${run}`,
    x: Float64Array.from({ length: %d }, (_, step) => step),
    y: Float64Array.from({ length: %d }, (_, step) => Math.exp(-step / 3000) + run / 50 + ((step * 7919) %% 100) / 500),
  }));
  return new Promise((done) => {
    const began = performance.now();
    window.curves = new LineChart(document.querySelector("#one"), { series, legend: true, smoothing: 0.6 });
    requestAnimationFrame(() => setTimeout(() => done(performance.now() - began)));
  });
})
"""
# What a person does to a chart: drags it to and fro with Shift, and turns the wheel with Ctrl.
_MAKE_GESTURES = """
(({ surface: { plot } }) => {
  const box = plot.getBoundingClientRect();
  const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
  const drag = (kind, clientX) => plot.dispatchEvent(new PointerEvent(kind, { clientX, clientY: y, shiftKey: true }));
  // There is no pointer to capture.
  plot.setPointerCapture = () => {};
  window.pan = (frame) => {
    if (frame === 1) drag("pointerdown", x);
    drag("pointermove", x + 200 * Math.sin(frame / 10));
  };
  window.zoom = (frame) => plot.dispatchEvent(new WheelEvent("wheel",
    { clientX: x, clientY: y, ctrlKey: true, deltaY: frame %% 60 < 30 ? -20 : 20, cancelable: true }));
})(%s)
"""
# Frames per second while each frame shows another range.
_COUNT_FRAMES = """
new Promise((done) => {
  const frames = [];
  const step = (at) => {
    frames.push(at);
    if (frames.length > 120 || at > frames[0] + 5000) done((1000 * (frames.length - 1)) / (frames.at(-1) - frames[0]));
    else {
      %s(frames.length);
      requestAnimationFrame(step);
    }
  };
  requestAnimationFrame(step);
})
"""
_SCROLL = "(() => (document.getElementById('view').scrollTop += 400))"


@dataclass(frozen=True, slots=True)
class Figure:
    """One result. A goal is a least value if more is better."""

    name: str
    unit: str
    values: Sequence[float]
    goal: float | None = None
    is_more_better: bool = False

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def is_missed(self) -> bool:
        if self.goal is None:
            return False
        return self.median < self.goal if self.is_more_better else self.median > self.goal


def main() -> None:
    arguments = _arguments()
    if CHROMIUM is None:
        sys.exit("This machine has no Chromium.")
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as name:
        folder = Path(name)
        with start_browser(folder / "browser") as browser:
            figures = [*_measure_charts(browser, arguments.rounds), *_measure_pages(browser, folder, arguments)]
    _print(figures)
    path = write_results("dashboard", {"figures": [asdict(each) for each in figures]})
    print(f"\nAll of it is in {path}.")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the dashboard in headless Chromium.")
    parser.add_argument("--jobs", type=int, default=10_000, help="in the list")
    parser.add_argument("--rounds", type=int, default=7, help="of each measurement")
    parser.add_argument("--seconds", type=float, default=30, help="for which the CPU time of the server is taken")
    return parser.parse_args()


def _measure_charts(browser: Browser, rounds: int) -> Iterator[Figure]:
    with serve_charts() as address:
        page = browser.open_page()
        page.show_as(width=1280)
        drawn, panned, zoomed = list[float](), list[float](), list[float]()
        for _ in range(rounds):
            page.open_url(address)
            drawn.append(page.evaluate(_MAKE_CURVES % (RUNS, POINTS, POINTS)))
            page.evaluate(f"curves.setRange({{ from: {POINTS / 2}, to: {POINTS * 3 / 4} }})")
            page.evaluate(_MAKE_GESTURES % "curves")
            page.wait_until_drawn()
            panned.append(page.evaluate(_COUNT_FRAMES % "pan"))
        yield Figure(f"{RUNS} runs x {POINTS:,} points drawn", "ms", drawn, goal=1000)
        yield Figure("the same, panned", "frames/s", panned, goal=50, is_more_better=True)
        for _ in range(rounds):
            page.open_url(address)
            page.evaluate(MAKE_LARGE)
            page.evaluate("large.setRange({ from: 1e6, to: 2e6 })")
            page.evaluate(_MAKE_GESTURES % "large")
            page.wait_until_drawn()
            zoomed.append(min(page.evaluate(_COUNT_FRAMES % gesture) for gesture in ("zoom", "pan")))
        yield Figure("200,000 trace slices, panned and zoomed", "frames/s", zoomed, goal=50, is_more_better=True)


def _measure_pages(browser: Browser, folder: Path, arguments: argparse.Namespace) -> Iterator[Figure]:
    home = Home(folder / "home")
    with open_jobs(home.root, python=Path(sys.executable)) as jobs:
        seed, log = _start(jobs, "loss_curve"), _start(jobs, "million_lines")
        jobs.finish(seed)
        jobs.finish(log)
    fill_yard(home, arguments.jobs, seed=seed)
    with open_jobs(home.root, python=Path(sys.executable)) as jobs:
        live, lines = _start(jobs, "moments"), _start(jobs, "ten_lines")
        yield _list_paint(browser, jobs.yard, arguments.jobs, arguments.rounds)
        pages = {
            "list": "/-/jobs",
            "job": f"/-/training/{live}",
            "log of ten lines a second": f"/-/training/{lines}/logs",
        }
        yield from _open_pages(browser, jobs.yard, pages, arguments.seconds)
        yield from _log_figures(browser, jobs.yard, log, arguments.rounds)
        yield _ages(browser, jobs.yard, live, arguments.rounds)
        for name in (live, lines):
            jobs.client.call("sagemaker", "StopTrainingJob", TrainingJobName=name)


def _start(jobs: Jobs, script: str) -> str:
    path = SCRIPTS / f"{script}.py"
    return jobs.create(path, jobs.upload(path), metrics=METRICS)


def _list_paint(browser: Browser, yard: RunningYard, count: int, rounds: int) -> Figure:
    """Measure with nothing in the browser's cache, after one load that fills the caches of the server."""
    page = _open_page(browser, yard, script=_NOTE_PAINT % json.dumps("#jobs tbody tr"))
    found = []
    for _ in range(rounds + 1):
        page.forget_cache()
        page.open_url(f"{yard.http}/-/jobs")
        found.append(page.wait_until("window.paintedAt"))
    return Figure(f"list of {count:,} jobs, first rows painted", "ms", found[1:], goal=300)


def _open_pages(browser: Browser, yard: RunningYard, addresses: Mapping[str, str], seconds: float) -> Iterator[Figure]:
    """Measure what each page loads, and what the server spends on it while it is open."""
    for name, address in addresses.items():
        page = _open_page(browser, yard)
        page.open_url("about:blank")
        # Jobs that run cost something as well, with or without a page.
        idle = _cpu_share(yard, seconds)
        page.forget_cache()
        page.open_url(yard.http + address)
        weight = page.evaluate(
            "performance.getEntriesByType('navigation').concat(performance.getEntriesByType('resource'))"
            ".reduce((sum, entry) => sum + entry.transferSize, 0)"
        )
        yield Figure(f"page of the {name}, what it loads", "kB", [weight / 1000], goal=300)
        # For the first events, charts and images.
        time.sleep(5)
        share = _cpu_share(yard, seconds) - idle
        yield Figure(f"page of the {name} open, CPU of the server", "% of a core", [100 * share], goal=1)
        page.close()


def _log_figures(browser: Browser, yard: RunningYard, job: str, rounds: int) -> Iterator[Figure]:
    page = _open_page(browser, yard, script=_NOTE_PAINT % json.dumps(".logs-line:not([data-waiting])"))
    opened, scrolled = list[float](), list[float]()
    for _ in range(rounds):
        page.open_url(f"{yard.http}/-/training/{job}/logs")
        opened.append(page.wait_until("window.paintedAt"))
        page.press("g")
        page.wait_until("document.getElementById('view').scrollTop === 0")
        scrolled.append(page.evaluate(_COUNT_FRAMES % _SCROLL))
    yield Figure("log of a million lines, first lines painted", "ms", opened)
    yield Figure("the same, scrolled", "frames/s", scrolled, goal=50, is_more_better=True)


def _ages(browser: Browser, yard: RunningYard, job: str, rounds: int) -> Figure:
    page = _open_page(browser, yard, script=_NOTE_AGES)
    page.open_url(f"{yard.http}/-/training/{job}")
    found = page.wait_until(f"window.ages.length > {2 * rounds} && window.ages.slice(1)")
    return Figure("a value from its print to the pixel", "ms", found, goal=500)


def _open_page(browser: Browser, yard: RunningYard, *, script: str = "") -> Page:
    page = sign_in(browser, yard, width=1440)
    page.run_in_new_documents(script)
    return page


def _cpu_share(yard: RunningYard, seconds: float) -> float:
    began, before = time.monotonic(), own_cpu_seconds(yard.process.pid)
    time.sleep(seconds)
    return (own_cpu_seconds(yard.process.pid) - before) / (time.monotonic() - began)


def _print(figures: Sequence[Figure]) -> None:
    print(f"\n{'median':60}{'':>12}   goal")
    for each in figures:
        goal = "" if each.goal is None else f"{'at least' if each.is_more_better else 'at most'} {each.goal:g}"
        print(f"{each.name:60}{each.median:>12.4g} {each.unit:12} {goal}{'   missed' if each.is_missed else ''}")


if __name__ == "__main__":
    main()

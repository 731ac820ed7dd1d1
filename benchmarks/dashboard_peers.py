"""The dashboard beside TensorBoard and the Optuna dashboard, in the same headless Chromium.

    python -m benchmarks.dashboard_peers [--rounds N] [--runs N] [--points N] [--trials N]

The curves of real jobs on the page that compares them, and the same values as event files in TensorBoard's time series;
a study on the page of its tuning job, and the same trials in Optuna's own storage in SQLite. Each page is opened in
turns, with nothing in the browser's cache, from servers that have shown it before. Times are those of the browser's own
clock, from the start of the navigation.
"""

import argparse
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from benchmarks.measurement import write_results
from benchmarks.scripts.long_curve import loss
from benchmarks.yard_jobs import SCRIPTS, Jobs, open_jobs
from tests.browser.chromium import CHROMIUM, Browser, start_browser
from tests.browser.dashboard import sign_in
from tests.browser.studies import RANGES, store_study, study_trials
from tests.conformance.environments import PinsNotInstalled, interpreter
from trainyard.formats.tensorboard import EventFile, Scalar
from trainyard.foundation.jobs.tuning import RangeKind, Scaling, TrialStatus
from trainyard.testing.yard import RunningYard

OURS, TENSORBOARD, OPTUNA = "Trainyard", "TensorBoard", "Optuna dashboard"
LIMIT_S = 90
TENSORBOARD_SAMPLES = 1000  # of each curve, unless it is told otherwise
_STUDY_PROGRAM = Path(__file__).with_name("optuna_study.py")

# Runs before the page's own scripts. Notes when a condition, tested in each frame, holds and that has been painted.
_NOTE_PAINT = """
performance.setResourceTimingBufferSize(10000);
(function test() {
  if (%s) requestAnimationFrame(() => setTimeout(() => (window.paintedAt = performance.now())));
  else requestAnimationFrame(test);
})();
"""
# All values are read, and the chart was told to draw them in this frame.
_OURS_COMPARES = (
    "document.querySelector('#charts .curve canvas') && document.querySelector('#charts').ariaBusy === 'false'"
)
# The count stands over the table, which is drawn after the charts.
_OURS_HAS_TRIALS = "document.querySelector('#trial-count')?.textContent === '%d'"
# A worker draws, so only the picture tells. At first, it draws the left ends of the curves, in the upper half.
_TENSORBOARD_DRAWS = """(() => {
  const canvas = document.querySelector("line-chart canvas");
  if (!canvas?.width) return false;
  const context = new OffscreenCanvas(60, 40).getContext("2d");
  context.drawImage(canvas, 0, 0, 60, 40);
  const alphas = context.getImageData(0, 20, 60, 20).data.filter((_, index) => index % 4 === 3);
  return alphas.some(Boolean);
})()"""
_OPTUNA_HAS_TRIALS = "document.querySelectorAll('#plot-history path.point').length >= %d"

# A stream of events counts when it ends, so what is loaded is summed when nothing more comes.
_HAS_LOADED = """
performance.now() - Math.max(0, ...performance.getEntriesByType("resource").map((each) => each.responseEnd)) > 2000
"""
_OPENING = """(() => {
  const loaded = performance.getEntriesByType("navigation").concat(performance.getEntriesByType("resource"));
  return {
    first_ms: performance.getEntriesByName("first-contentful-paint")[0].startTime,
    painted_ms: window.paintedAt,
    loaded_kb: loaded.reduce((sum, { transferSize }) => sum + transferSize, 0) / 1000,
  };
})()"""


@dataclass(frozen=True, slots=True)
class Subject:
    """A page to measure. `is_drawn` is the condition, in JavaScript, that what was asked for is there."""

    name: str
    url: str
    is_drawn: str


@dataclass(frozen=True, slots=True)
class Opening:
    """What the browser measured: the first contentful paint, and until everything asked for was painted."""

    first_ms: float
    painted_ms: float
    loaded_kb: float


class NotAnswered(Exception):
    """A peer's server did not start."""


@dataclass(slots=True)
class Comparison:
    """Openings by the name of a subject, and why others could not be measured."""

    title: str
    subjects: list[Subject]
    openings: dict[str, list[Opening]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def add_peer(self, stack: ExitStack, name: str, start: Callable[[], AbstractContextManager[Subject]]) -> None:
        try:
            self.subjects.append(stack.enter_context(start()))
        except (PinsNotInstalled, NotAnswered, OSError, subprocess.CalledProcessError) as error:
            self.missing[name] = str(error)

    def measure(self, browser: Browser, yard: RunningYard) -> None:
        """Open each page once. A peer that fails is not tried again."""
        for subject in self.subjects:
            if subject.name in self.missing:
                continue
            try:
                opening = _open(browser, yard, subject)
            except AssertionError as error:
                if subject.name == OURS:
                    raise
                self.missing[subject.name] = str(error)[:500]
            else:
                self.openings.setdefault(subject.name, []).append(opening)


def main() -> None:
    arguments = _arguments()
    if CHROMIUM is None:
        sys.exit("This machine has no Chromium.")
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        jobs = stack.enter_context(open_jobs(folder / "home", python=Path(sys.executable)))
        comparisons = [
            _compare_curves(stack, folder, jobs, arguments),
            _compare_studies(stack, folder, jobs, arguments),
        ]
        browser = stack.enter_context(start_browser(folder / "browser"))
        for comparison in comparisons:
            for number in range(arguments.rounds + 1):
                print(f"{comparison.title}: round {number} of {arguments.rounds}", flush=True)
                comparison.measure(browser, jobs.yard)
            # The first round fills the caches of the servers.
            comparison.openings = {name: found[1:] for name, found in comparison.openings.items()}
            _print(comparison)
    results = {each.title: {"openings": _document(each), "not measured": each.missing} for each in comparisons}
    print(f"\nEvery round is in {write_results('dashboard_peers', {**vars(arguments), 'comparisons': results})}.")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the dashboard beside TensorBoard and the Optuna dashboard.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=50, help="training jobs that are compared, at most 50")
    parser.add_argument("--points", type=int, default=10_000, help="of each curve, more than 1,000")
    parser.add_argument("--trials", type=int, default=1000, help="of the study")
    return parser.parse_args()


def _open(browser: Browser, yard: RunningYard, subject: Subject) -> Opening:
    # Pages behind another one are not painted, so there is one at a time.
    page = sign_in(browser, yard, width=1440)
    page.run_in_new_documents(_NOTE_PAINT % subject.is_drawn)
    page.forget_cache()
    page.open_url(subject.url)
    page.wait_until("window.paintedAt", timeout_s=LIMIT_S)
    page.wait_until(_HAS_LOADED)
    opening = Opening(**page.evaluate(_OPENING))
    page.close()
    return opening


def _compare_curves(stack: ExitStack, folder: Path, jobs: Jobs, arguments: argparse.Namespace) -> Comparison:
    names = _train(jobs, arguments.runs, arguments.points)
    url = f"{jobs.yard.http}/-/compare?jobs={','.join(names)}"
    title = f"{arguments.runs} runs x {arguments.points:,} points"
    found = Comparison(title, [Subject(OURS, url, _OURS_COMPARES)])
    _write_event_files(folder / "events", arguments.runs, arguments.points)
    # Asked for all by the documented 0, TensorBoard's data server keeps none.
    for name, samples in ((TENSORBOARD, arguments.points), (f"{TENSORBOARD}, as it comes", TENSORBOARD_SAMPLES)):
        found.add_peer(stack, name, partial(_tensorboard, folder / "events", name, samples))
    return found


def _train(jobs: Jobs, runs: int, points: int) -> list[str]:
    print(f"training {runs} jobs", flush=True)
    script = SCRIPTS / "long_curve.py"
    code, metrics = jobs.upload(script), [{"Name": "loss", "Regex": "loss=([0-9.]+)"}]
    names = [
        jobs.create(script, code, arguments={"run": str(run), "points": str(points)}, metrics=metrics)
        for run in range(runs)
    ]
    for name in names:
        jobs.finish(name)
    return names


def _write_event_files(folder: Path, runs: int, points: int) -> None:
    began_us = time.time_ns() // 1000
    for run in range(runs):
        file = EventFile(folder / f"run-{run:02}", writer="benchmark", at_us=began_us)
        for step in range(points):
            file.write(step, [Scalar("loss", loss(run, step))], at_us=began_us + 1000 * step)
        file.close()


@contextmanager
def _tensorboard(events: Path, name: str, samples: int) -> Iterator[Subject]:
    port = _free_port()
    address = f"http://127.0.0.1:{port}"
    command: list[str | Path] = [
        interpreter("tensorboard").with_name("tensorboard"),
        "--logdir",
        events,
        "--reload_interval",
        "0",
    ]
    command += ["--host", "127.0.0.1", "--port", str(port), "--samples_per_plugin", f"scalars={samples}"]
    run = max(each.name for each in events.iterdir())
    with _serve(command, f"{address}/data/plugin/scalars/scalars?tag=loss&run={run}", least=samples):
        yield Subject(name, f"{address}/#timeseries", _TENSORBOARD_DRAWS)


def _compare_studies(stack: ExitStack, folder: Path, jobs: Jobs, arguments: argparse.Namespace) -> Comparison:
    store_study(jobs.yard, "study", trials=arguments.trials)
    ours = Subject(OURS, f"{jobs.yard.http}/-/tuning/study", _OURS_HAS_TRIALS % arguments.trials)
    found = Comparison(f"a study of {arguments.trials:,} trials", [ours])
    found.add_peer(stack, OPTUNA, partial(_optuna, folder / "optuna.db", arguments.trials))
    return found


@contextmanager
def _optuna(database: Path, trials: int) -> Iterator[Subject]:
    python, storage, port = interpreter("optuna-dashboard"), f"sqlite:///{database}", _free_port()
    print("filling the storage of Optuna", flush=True)
    subprocess.run([python, _STUDY_PROGRAM, storage], input=_study_document(trials), text=True, check=True)
    completed = sum(each.status is TrialStatus.COMPLETED for each in study_trials("study", trials))
    command: list[str | Path] = [
        python.with_name("optuna-dashboard"),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        storage,
    ]
    with _serve(command, f"http://127.0.0.1:{port}/api/studies"):
        url = f"http://127.0.0.1:{port}/dashboard/studies/1"
        yield Subject(OPTUNA, url, _OPTUNA_HAS_TRIALS % completed)


def _study_document(count: int) -> str:
    numeric = {each.name for each in RANGES if each.kind is not RangeKind.CATEGORICAL}
    ranges = [
        {
            "name": each.name,
            "kind": each.kind,
            "low": each.low,
            "high": each.high,
            "values": each.values,
            "is_logarithmic": each.scaling is Scaling.LOGARITHMIC,
        }
        for each in RANGES
    ]
    trials = [
        {
            "status": each.status,
            "objective": each.objective,
            "curve": each.curve,
            "values": {name: json.loads(text) if name in numeric else text for name, text in each.values.items()},
        }
        for each in study_trials("study", count)
    ]
    return json.dumps({"ranges": ranges, "trials": trials})


@contextmanager
def _serve(command: Sequence[str | Path], url: str, *, least: int = 0) -> Iterator[None]:
    """Run a server until the block ends, which starts once the server answers with a list of at least so many."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + LIMIT_S
            while not _has_answer(url, least):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise NotAnswered(f"{Path(command[0]).name} did not answer at {url}.")
                time.sleep(0.5)
            yield
        finally:
            process.terminate()


def _has_answer(url: str, least: int) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return len(json.load(answer)) >= least
    except (OSError, ValueError):
        return False


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _document(comparison: Comparison) -> dict[str, object]:
    return {name: [asdict(each) for each in found] for name, found in comparison.openings.items()}


def _print(comparison: Comparison) -> None:
    print(f"\n{comparison.title:34}{'first paint':>16}{'painted':>12}{'':10}{'loaded':>12}")
    medians = {
        name: Opening(
            *(statistics.median(values) for values in zip(*(asdict(each).values() for each in found), strict=True))
        )
        for name, found in comparison.openings.items()
    }
    for name, each in medians.items():
        ratio = "" if name == OURS else f"({each.painted_ms / medians[OURS].painted_ms:.1f}x)"
        print(f"{name:34}{each.first_ms:>13,.0f} ms{each.painted_ms:>9,.0f} ms {ratio:9}{each.loaded_kb:>9,.0f} kB")
    for name, reason in comparison.missing.items():
        print(f"{name:34}not measured: {reason}")


if __name__ == "__main__":
    main()

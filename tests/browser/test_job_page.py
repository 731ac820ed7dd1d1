"""The overview of a job in a real browser: one that ended, one that failed, one that was interrupted, one that runs."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.browser.accessibility import accessibility_problems
from tests.browser.chromium import Browser, Page
from tests.browser.dashboard import access_of, assert_is_quiet, sign_in
from tests.system.trainees import IMAGE, UNTIL_STOPPED, Trainee
from tests.system.yards import trainee_of
from trainyard.testing.yard import RunningYard, running_yard, start_yard

POINTS = 12_000
HOSTILE = "<img src=x onerror=alert(1)>\u202egpj"
METRICS = {
    "train:loss": "train:loss=([0-9.]+)",
    "train:accuracy": "accuracy=([0-9.]+)",
    "lr": "lr=([0-9.]+)",
    f"test/{HOSTILE}": "odd=([0-9.]+)",
    "never": "never=([0-9.]+)",
}
# The loss of the last step is 1, and of all others between 2 and 3. The accuracy has a value every 100 steps. Lines
# that are read together have the same time, so the program waits for its reader before it writes more.
ENDS = f"""
import fcntl, termios, time
for step in range({POINTS}):
    loss = 1 if step == {POINTS - 1} else 2 + step % 7 / 7
    print(f"train:loss={{loss:.4f}} lr=0.001", flush=True)
    if step % 100 == 0:
        print(f"accuracy={{step / {POINTS}:.4f}} odd=1", flush=True)
        time.sleep(0.02)
        while any(fcntl.ioctl(1, termios.FIONREAD, bytes(4))):
            time.sleep(0.001)
"""
FAILS = f"""
def train_step(batch_size):
    raise ValueError("{HOSTILE} does not fit")
print("train:loss=0.5", flush=True)
train_step(64)
"""
LIVE = """
import itertools, time
for step in itertools.count():
    print(f"train:loss={1 / (step + 1):.6f}", flush=True)
    time.sleep(0.05)
"""
# The steps before the interruption.
FIRST_ATTEMPT = 30
SPOT = """
import pathlib, signal, sys, time
mark = pathlib.Path("/opt/ml/checkpoints/mark")
signal.signal(signal.SIGTERM, lambda *_: (mark.write_text(""), sys.exit(0)))
for step in range(20 if mark.exists() else FIRST_ATTEMPT):
    print(f"train:loss={step}", flush=True)
    time.sleep(0.03)
while not mark.exists():
    time.sleep(0.03)
""".replace("FIRST_ATTEMPT", str(FIRST_ATTEMPT))
SPOT_REQUEST = {
    "EnableManagedSpotTraining": True,
    "StoppingCondition": {"MaxRuntimeInSeconds": 3600, "MaxWaitTimeInSeconds": 7200},
    "CheckpointConfig": {"S3Uri": "s3://data/checkpoints"},
}
LOSS = "figure[data-chart='train:loss']"
ACCURACY = "figure[data-chart='train:accuracy']"
# Chromium has no name for the clipboard of a page without a window, so pages get one of their own.
CLIPBOARD = (
    "Object.defineProperty(navigator, 'clipboard', {value: {writeText: async (text) => { window.copied = text; }}}); 1"
)


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningYard]:
    home = tmp_path_factory.mktemp("job") / "yard"
    start_yard(home).stop()
    (home / "catalog.toml").write_text('["ml.m5.large"]\non_demand_usd = 36.0\n')
    with running_yard(home, environment={"TRAINYARD_SERVER_SLOTS": "1"}) as running:
        yield running


@pytest.fixture(scope="module")
def trainee(yard: RunningYard) -> Trainee:
    """One whose jobs have ended, but for one that runs and one that waits for it."""
    made = trainee_of(yard).prepare()
    definitions = [{"Name": name, "Regex": regex} for name, regex in METRICS.items()]

    def start(name: str, script: str, **changed: Any) -> None:
        request = made.request(name, script, **changed)
        request["AlgorithmSpecification"] = {
            "TrainingImage": IMAGE,
            "TrainingInputMode": "File",
            "MetricDefinitions": definitions,
        }
        request["ProfilerConfig"] = {"S3OutputPath": "s3://data/profiles", "ProfilingIntervalInMilliseconds": 100}
        request["HyperParameters"] |= {"optimizer": HOSTILE}
        made.sagemaker.create_training_job(**request)

    start("spot", SPOT, **SPOT_REQUEST)
    made.await_line("spot", f"train:loss={FIRST_ATTEMPT - 1}")
    with closing(access_of(yard).client()) as api:
        api.call("trainyard", "InterruptJob", TrainingJobName="spot")
    made.reach("spot", "Completed")
    start("ends", ENDS, Tags=[{"Key": f"tag-{number}", "Value": "x" * 200} for number in range(40)])
    made.reach("ends", "Completed")
    for name in ("fails", "fails-too"):
        start(name, FAILS)
        made.reach(name, "Failed")
    start("live", LIVE, **UNTIL_STOPPED)
    made.await_line("live", "train:loss=0.500000")
    start("waits", LIVE, **UNTIL_STOPPED)
    return made


@pytest.fixture
def page(browser: Browser, yard: RunningYard, trainee: Trainee) -> Iterator[Page]:
    page = sign_in(browser, yard)
    yield page
    assert_is_quiet(page, yard)


def open_job(page: Page, yard: RunningYard, name: str, query: str = "") -> None:
    page.open_url(f"{yard.http}/-/training/{name}{query}")
    page.wait_until("document.querySelector('.chart-card, #charts-empty:not([hidden])') !== null")


def text(page: Page, selector: str) -> str:
    found: str = page.evaluate(f"document.querySelector({selector!r})?.innerText ?? ''")
    return found


def spot(page: Page, chart: str, x: float) -> tuple[float, float]:
    """Return a place in the plot of a chart: a share of its width, in the middle of its height."""
    plot = f"document.querySelector({chart + ' .chart-plot'!r})"
    page.wait_until(f"{plot} !== null")
    page.evaluate(f"{plot}.scrollIntoView({{block: 'center'}})")
    page.wait_until_drawn()
    left, top, width, height = page.evaluate(
        f"(() => {{ const box = {plot}.getBoundingClientRect(); return [box.x, box.y, box.width, box.height]; }})()"
    )
    return left + x * width, top + height / 2


def rows(page: Page, chart: str) -> list[list[str]]:
    """Return the points that a chart shows, from its table, which stays open."""
    if not page.evaluate(f"document.querySelector({chart + ' table'!r}) !== null"):
        page.wait_until(f"document.querySelector({chart + ' .chart-plot'!r}) !== null")
        page.evaluate(f"document.querySelector({chart + ' .chart-plot'!r}).focus()")
        page.press("t")
    found: list[list[str]] = page.wait_until(
        f"[...document.querySelectorAll({chart + ' tbody tr'!r})]"
        ".map((row) => [...row.cells].map((cell) => cell.innerText))"
    )
    return found


def test_a_job_that_ended_shows_its_curves_values_and_times(page: Page, yard: RunningYard) -> None:
    open_job(page, yard, "ends")
    page.wait_until(f"document.querySelector({LOSS + ' canvas'!r}) !== null")
    assert "Completed" in text(page, "#job-status")
    titles = page.evaluate("[...document.querySelectorAll('h2')].map((each) => each.innerText)")
    assert titles == ["Metrics", "Hardware", "All values", "Timeline", "About", "Notes"]

    assert page.evaluate(
        "[...document.querySelectorAll('#chart-groups .chart-card-title')].map((each) => each.textContent)"
    ) == ["train:loss", "train:accuracy", "test/<img src=x onerror=alert(1)>⟨U+202E⟩gpj", "lr"]
    assert text(page, "#charts-missing") == "The log has no values of never."
    page.wait_until(f"document.querySelector({LOSS + ' .chart-card-values span'!r}) !== null")
    assert text(page, f"{LOSS} .chart-card-values").split("\n") == ["1", "best 1"]
    assert text(page, "figure[data-chart=lr] .chart-card-values") == "0.001", "no learning rate is the best"
    values = text(page, "#job-metrics tbody tr:last-child").split("\t")
    assert values[1:] == ["1", "1", "1", "2.8571", "12,000"]

    assert [line for line in text(page, ".timeline-list").split("\n") if line.isalpha()][-2:] == [
        "Training",
        "Uploading",
    ]
    assert "Import the libraries" in text(page, ".waterfall")
    assert page.evaluate("document.querySelectorAll('.timeline-bar rect').length") >= 3
    assert "36.00 USD per hour" in text(page, "#job-about")
    assert page.evaluate("document.querySelectorAll('main img').length") == 0
    # Charts out of view are drawn for the printer, too.
    page.wait_until("!document.getElementById('hardware').hidden")
    page.show_as(width=1280, height=400)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    drawn = "[...document.querySelectorAll('.chart-card')].every((card) => card.querySelector('canvas')?.width > 100)"
    assert page.evaluate(drawn)
    # Nothing comes any more.
    assert page.evaluate("document.querySelector('[data-live-state]').hidden")
    assert not [url for url in page.requested if url.endswith("/live")]


def test_a_job_that_failed_says_first_why(page: Page, yard: RunningYard) -> None:
    open_job(page, yard, "fails")
    assert page.evaluate("document.querySelector('main h2').innerText") == "Why it failed"
    assert text(page, ".failure-cause") == "ValueError <img src=x onerror=alert(1)>⟨U+202E⟩gpj does not fit"
    assert "/opt/ml/code/train.py, line 3, in train_step" in text(page, ".failure-source")
    assert "raise ValueError(" in text(page, ".failure-source pre")
    page.wait_until("!document.getElementById('failure-similar').hidden")
    assert text(page, "#failure-similar") == "Seen in 1 other job: fails-too"
    assert page.evaluate("document.querySelector('#failure-similar a').pathname") == "/-/training/fails-too"
    page.wait_until("document.getElementById('failure-log').href.includes('#L')")
    page.click("#failure-log")
    page.wait_until("document.querySelector('#rows')?.innerText.includes('Traceback')")


def test_an_interruption_is_drawn_into_the_curves(page: Page, yard: RunningYard) -> None:
    open_job(page, yard, "spot")
    assert "admin interrupted it.\ncontinued after" in text(page, "#job-timeline")
    # The curve continues after the points of the first attempt.
    points = rows(page, LOSS)
    assert [float(row[0]) for row in points] == list(range(len(points)))
    assert len(points) == FIRST_ATTEMPT + 20
    width = page.evaluate(f"document.querySelector({LOSS + ' .chart-plot'!r}).clientWidth")
    left, middle = spot(page, LOSS, 0)
    found = []
    for pixel in range(0, width, 4):
        page.move_pointer(left + pixel, middle)
        shown = text(page, f"{LOSS} .chart-tip")
        found += [shown] if "Interrupted" in shown else []
    assert found, "the mark can be read"
    assert "Interrupted: admin interrupted it." in found[0]
    assert abs(float(found[0].split("\n")[0].removeprefix("value ")) - FIRST_ATTEMPT) <= 1


def test_charts_are_filtered_grouped_pinned_and_enlarged(page: Page, yard: RunningYard) -> None:
    page.evaluate("localStorage.clear()")
    open_job(page, yard, "ends")
    page.wait_until("!document.getElementById('hardware').hidden")
    groups = "[...document.querySelectorAll('.chart-group-head span:first-child')].map((each) => each.innerText)"
    shown = "[...document.querySelectorAll('.charts .chart-card')].map((each) => each.dataset.chart)"
    assert page.evaluate(groups) == ["train", "test", "Other"]

    page.press("/")
    page.type("TRAIN accu")
    assert page.wait_until(f"{shown}.length === 1 && {shown}") == ["train:accuracy"]
    page.evaluate("document.getElementById('chart-filter').value = ''")
    page.evaluate("document.getElementById('chart-filter').dispatchEvent(new Event('input')); 1")

    page.click("[data-group=train]")
    assert "train:loss" not in page.evaluate(shown)
    page.click("[data-group=train]")
    assert "train:loss" in page.evaluate(shown)

    page.click(f"{ACCURACY} [data-pins]")
    assert page.evaluate(groups)[0] == "Pinned"
    assert page.evaluate(shown)[0] == "train:accuracy"
    open_job(page, yard, "fails")
    open_job(page, yard, "ends")
    assert page.evaluate(shown)[0] == "train:accuracy", "on the pages of all jobs"

    page.click(f"{ACCURACY} [data-enlarges]")
    page.wait_until(f"document.querySelector({ACCURACY + ' .chart-plot'!r})?.clientHeight >= 400")


def test_all_charts_show_the_same_part_with_its_own_points(page: Page, yard: RunningYard) -> None:
    open_job(page, yard, "ends")
    # What comes later would move the charts under the pointer.
    page.wait_until("!document.getElementById('hardware').hidden")
    coarse = rows(page, LOSS)
    assert len(coarse) <= 1000
    page.drag(spot(page, LOSS, 0.4), spot(page, LOSS, 0.45))
    page.wait_until("new URLSearchParams(location.search).has('from')")
    low, high = (float(page.evaluate(f"new URLSearchParams(location.search).get('{end}')")) for end in ("from", "to"))
    assert 0 < low < high < POINTS
    # The yard now sends what it had left out.
    page.wait_until(f"document.querySelectorAll({LOSS + ' tbody tr'!r}).length >= {int(high - low) - 2}")
    steps = [float(row[0].replace(",", "")) for row in rows(page, LOSS)]
    assert steps == [float(step) for step in range(int(steps[0]), int(steps[-1]) + 1)]
    others = [float(row[0].replace(",", "")) for row in rows(page, ACCURACY)]
    assert low - 101 <= others[0] <= others[-1] <= high + 101

    page.open_url(page.evaluate("location.href"))
    page.wait_until(f"document.querySelector({LOSS + ' canvas'!r}) !== null")
    # The first point may be the last before the view, of the curve with few points.
    assert float(rows(page, LOSS)[0][0].replace(",", "")) >= low - 20, "the address keeps it"
    page.click_at(*spot(page, LOSS, 0.5), count=2)
    page.wait_until("!new URLSearchParams(location.search).has('from')")
    page.wait_until(f"document.querySelector({LOSS + ' tbody td'!r}).innerText === '0'")


def test_settings_apply_to_all_charts_and_stay_in_the_address(page: Page, yard: RunningYard) -> None:
    open_job(page, yard, "ends")
    page.wait_until(f"document.querySelector({LOSS + ' canvas'!r}) !== null")
    page.click("#log-scale")
    page.evaluate(
        "const axis = document.getElementById('axis'); axis.value = 'relative'; axis.dispatchEvent(new Event('change'))"
    )
    assert page.evaluate("location.search") == "?log=1&axis=relative"
    assert "s" in rows(page, LOSS)[-1][0], "durations have units"
    page.move_pointer(*spot(page, LOSS, 0.5))
    page.wait_until(f"!document.querySelector({LOSS + ' .chart-tip'!r}).hidden")
    open_job(page, yard, "ends", "?log=1&axis=time&smoothing=0.9")
    assert page.evaluate("document.getElementById('log-scale').ariaPressed") == "true"
    assert page.evaluate("['axis', 'smoothing'].map((id) => document.getElementById(id).value)") == ["time", "0.9"]


def test_a_chart_has_an_address_of_its_own(page: Page, yard: RunningYard) -> None:
    open_job(page, yard, "ends", "?axis=relative")
    page.evaluate(CLIPBOARD)
    page.click(f"{LOSS} [data-copies-link]")
    link = page.wait_until("window.copied")
    assert link == f"{yard.http}/-/training/ends/charts/train%3Aloss?axis=relative"
    assert "Copied a link to the chart." in page.wait_until("document.querySelector('.toast')?.innerText")
    page.open_url(link)
    page.wait_until("document.querySelector('#chart canvas') !== null")
    page.evaluate("document.querySelector('#chart .chart-plot').focus()")
    page.press("t")
    page.wait_until("document.querySelectorAll('#chart tbody tr').length > 100")
    assert accessibility_problems(page) == []
    framing = page.evaluate("fetch(location.href).then((answer) => answer.headers.get('content-security-policy'))")
    assert "frame-ancestors 'self' http://localhost:*" in framing


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["ends", "fails", "live"])
def test_the_page_is_accessible_and_fits_a_phone(page: Page, yard: RunningYard, name: str, scheme: str) -> None:
    page.show_as(width=1280, scheme=scheme)
    open_job(page, yard, name)
    page.wait_until("document.querySelector('.chart-card canvas') !== null")
    assert accessibility_problems(page) == []
    page.show_as(width=390, scheme=scheme)
    page.wait_until_drawn()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_job_that_waits_says_why(page: Page, yard: RunningYard) -> None:
    open_job(page, yard, "waits")
    assert page.evaluate("document.querySelector('main h2').innerText") == "Next in the queue"
    assert "all 1 slots of local are in use" in text(page, "#job-waiting")
    assert "Waiting" in text(page, "#job-status")
    assert "As soon as the log has values" in text(page, "#charts-empty")
    page.wait_until("!document.querySelector('[data-action=stop]').hidden")


def test_a_job_without_metrics_says_how_to_define_them(page: Page, yard: RunningYard, trainee: Trainee) -> None:
    trainee.start("bare", "print('done')")
    open_job(page, yard, "bare")
    assert "This job has no metrics" in text(page, "#charts-empty")
    assert "trainyard run --md" in text(page, "#charts-empty")
    trainee.sagemaker.stop_training_job(TrainingJobName="bare")


def test_the_page_of_a_running_job_grows_until_it_ends(page: Page, yard: RunningYard, trainee: Trainee) -> None:
    open_job(page, yard, "live")
    page.wait_until("document.querySelector('[data-live-state]').dataset.liveState === 'live'")
    rows(page, LOSS)
    # A table says how many rows it has if it does not show them all.
    table = f"document.querySelector({LOSS + ' table'!r})"
    drawn = f"Number({table}.caption?.innerText.match(/of (\\d+) rows/)[1] ?? {table}.tBodies[0].rows.length)"
    before = page.wait_until(drawn)
    count = "Number(document.querySelector('#job-metrics tbody tr td:last-child').innerText.replaceAll(',', ''))"
    counted = page.wait_until(count)
    page.wait_until(f"{drawn} > {before + 10}")
    page.wait_until(f"{count} > {counted}")
    assert "so far" in text(page, "#job-timeline")
    assert "Price so far" in text(page, "#job-about")

    trainee.sagemaker.stop_training_job(TrainingJobName="live")

    page.wait_until("document.getElementById('job-status').innerText.includes('Stopped')")
    page.wait_until("document.querySelector('[data-live-state]').hidden")
    assert page.evaluate("document.getElementById('job-facts').dataset.running") == "false"
    assert "so far" not in text(page, "#job-timeline")
    trainee.sagemaker.stop_training_job(TrainingJobName="waits")

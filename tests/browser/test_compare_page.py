"""Comparing runs in a real browser: their curves, the facts in which they differ, and the lines of their code."""

import io
import tarfile
from collections.abc import Iterator
from datetime import timedelta
from math import ceil, floor

import pytest

from tests.browser.accessibility import accessibility_problems
from tests.browser.chromium import SHIFT, Browser, Page
from tests.browser.dashboard import assert_is_quiet, sign_in
from tests.system.trainees import UNTIL_STOPPED, Trainee
from tests.system.yards import trainee_of
from trainyard.testing.eventually import eventually
from trainyard.testing.yard import RunningYard, running_yard

HOSTILE = "<img src=x onerror=alert(1)>\u202e"
SCRIPT = """
import fcntl, sys, termios, time
rate = float(sys.argv[sys.argv.index("--lr") + 1])
for step in range(4000):
    # Parts of a curve are found by their times, and lines that are read together have the same time.
    while step % 100 == 0 and any(fcntl.ioctl(1, termios.FIONREAD, bytes(4))):
        time.sleep(0.001)
    print(f"loss: {rate / (step + 1):.6f}; accuracy: {1 - rate / (step + 1):.6f}", flush=True)
"""
RATES = {"run-a": "0.1", "run-b": "0.2", "run-c": "0.4"}
METRICS = [{"Name": name, "Regex": f"{name}: ([0-9.]+)"} for name in ("loss", "accuracy")]
ROWS = (
    "Object.fromEntries([...document.querySelectorAll('#differences tbody tr:not(.fact-kind)')].map((row) => "
    "[row.cells[0].innerText, [...row.cells].slice(1).map((cell) => cell.innerText)]))"
)
DRAWN = "document.querySelectorAll('.curve').length > 0 && document.getElementById('charts').ariaBusy === 'false'"
LOADED = "!document.getElementById('comparison').hidden && document.querySelector('#differences tbody tr') !== null"


def create(trainee: Trainee, name: str, rate: str) -> None:
    request = trainee.request(name, f"# {name}: {HOSTILE}\n{SCRIPT}" if name == "run-c" else SCRIPT)
    source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{trainee.bucket}/inputs/{'c' if name == 'run-c' else 'ab'}/"}
    request["AlgorithmSpecification"]["MetricDefinitions"] = METRICS
    request["HyperParameters"] |= {"lr": rate, "epochs": "3"}
    request |= {
        "Environment": {"NOTE": HOSTILE if name == "run-b" else "plain"},
        "InputDataConfig": [{"ChannelName": "train", "DataSource": {"S3DataSource": source}}],
    }
    trainee.sagemaker.create_training_job(**request)


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningYard]:
    with running_yard(tmp_path_factory.mktemp("compare") / "yard") as running:
        trainee = trainee_of(running).prepare()
        s3 = trainee.user.client("s3")
        for folder in ("ab", "c"):
            s3.put_object(Bucket=trainee.bucket, Key=f"inputs/{folder}/data.csv", Body=folder.encode())
        for name, rate in RATES.items():
            create(trainee, name, rate)
        for name in RATES:
            ended = trainee.reach(name, "Completed", "Failed")
            assert ended["TrainingJobStatus"] == "Completed", trainee.lines(name)
        yield running


@pytest.fixture(scope="module")
def page(browser: Browser, yard: RunningYard) -> Page:
    page = sign_in(browser, yard)
    page.logged.clear()
    return page


def open_comparison(
    page: Page, yard: RunningYard, jobs: str, *, more: str = "", width: int = 1280, scheme: str = "light"
) -> None:
    page.show_as(width=width, scheme=scheme)
    page.open_url(f"{yard.http}/-/compare?jobs={jobs}{more}")
    page.wait_until(LOADED)


def read_chart(page: Page, metric: str) -> list[list[str]]:
    """Return the table of a chart, which its readers without a mouse use."""
    page.evaluate(
        f"[...document.querySelectorAll('.curve')].find((each) => each.innerText.includes('{metric}')).id = 'it'"
    )
    page.evaluate("document.querySelector('#it [tabindex=\"0\"]').focus()")
    page.press("t")
    rows: list[list[str]] = page.wait_until(
        "(() => { const table = document.querySelector('#it table'); return table && "
        "[...table.rows].map((row) => [...row.cells].map((cell) => cell.innerText)); })()"
    )
    page.press("t")
    page.evaluate("document.getElementById('it').removeAttribute('id')")
    return rows


def test_only_what_differs_is_shown(page: Page, yard: RunningYard) -> None:
    open_comparison(page, yard, "run-a,run-b,run-c")
    found = page.evaluate(ROWS)
    assert found["lr"] == ["0.1", "0.2", "0.4"]
    assert found["loss"] == ["2.5e-05", "5e-05", "0.0001"]
    assert found["NOTE"] == ["plain", "<img src=x onerror=alert(1)>⟨U+202E⟩", "plain"]
    assert found["train.py"][0] == found["train.py"][1] != found["train.py"][2]
    assert found["train"][0] == found["train"][1] != found["train"][2]
    assert not {"epochs", "type", "image"} & found.keys()
    marked = page.evaluate("[...document.querySelectorAll('#differences td.differs')].map((cell) => cell.innerText)")
    assert {"0.2", "0.4"} <= set(marked)
    assert "0.1" not in marked
    page.click("#same")
    page.wait_until("document.getElementById('differences').innerText.includes('epochs')")
    found = page.evaluate(ROWS)
    assert (found["epochs"], found["engine"]) == (["3"] * 3, ["local"] * 3)
    assert "same=1" in page.evaluate("location.search")


def test_curves_lie_over_each_other_and_keep_their_colours(page: Page, yard: RunningYard) -> None:
    open_comparison(page, yard, "run-a,run-b,run-c")
    page.wait_until("document.querySelectorAll('.curve canvas').length >= 2")
    page.wait_until(DRAWN)
    page.wait_until_drawn()
    table = read_chart(page, "loss")
    assert sorted(table[0][1:]) == ["run-a", "run-b", "run-c"]
    first = dict(zip(table[0], table[1], strict=True))
    assert [first[name] for name in RATES] == ["0.1", "0.2", "0.4"]
    assert table[1][0] == "0"

    colours = "[...document.querySelectorAll('.run .run-swatch')].map((each) => getComputedStyle(each).backgroundColor)"
    before = page.evaluate(colours)
    open_comparison(page, yard, "run-c,run-a")
    assert page.evaluate(colours) == [before[2], before[0]]


def test_a_part_of_the_curves_is_shown_with_all_its_points(page: Page, yard: RunningYard) -> None:
    open_comparison(page, yard, "run-a,run-b,run-c")
    page.wait_until(DRAWN)
    page.evaluate("document.querySelector('.chart-plot').scrollIntoView({block: 'center'})")
    left, middle, width = page.evaluate(
        "(() => { const box = document.querySelector('.chart-plot').getBoundingClientRect();"
        "return [box.x, box.y + box.height / 2, box.width]; })()"
    )
    page.drag((left + width * 0.4, middle), (left + width * 0.5, middle))
    page.wait_until("new URLSearchParams(location.search).has('from')")
    low, high = (float(page.evaluate(f"new URLSearchParams(location.search).get('{end}')")) for end in ("from", "to"))
    assert 1000 < low < high < 3000
    page.evaluate("document.querySelector('.chart-plot').focus()")
    page.press("t")
    page.wait_until(f"document.querySelectorAll('.curve tbody tr').length >= {int(high - low) - 2}")
    cells = page.evaluate("[...document.querySelectorAll('.curve tbody tr')].map((row) => row.cells[0].innerText)")
    steps = [int(cell.replace(",", "")) for cell in cells]
    assert [step for step in steps if low <= step <= high] == list(range(ceil(low), floor(high) + 1))
    page.press("t")


def test_runs_and_metrics_are_chosen_and_the_address_keeps_the_choice(page: Page, yard: RunningYard) -> None:
    open_comparison(page, yard, "run-a,run-b,run-c")
    page.click(".run:nth-child(2) .run-toggle")
    page.click("#metrics button:nth-child(2)")
    page.wait_until("document.querySelectorAll('.curve').length === 1")
    page.open_url(page.evaluate("location.href"))
    page.wait_until(LOADED)
    assert page.evaluate("[...document.querySelectorAll('.run-toggle')].map((each) => each.ariaPressed)") == [
        "true",
        "false",
        "true",
    ]
    shown = page.evaluate("document.querySelector('#metrics button[aria-pressed=true]').innerText")
    page.wait_until("document.querySelectorAll('.curve').length === 1")
    page.wait_until_drawn()
    page.wait_until(DRAWN)
    page.wait_until_drawn()
    assert sorted(read_chart(page, shown)[0][1:]) == ["run-a", "run-c"]
    box = page.evaluate(
        "(() => { const box = document.querySelector('.run:nth-child(1) .run-toggle').getBoundingClientRect();"
        "return [box.x + 20, box.y + 8]; })()"
    )
    page.click_at(*box, modifiers=SHIFT)
    page.wait_until("document.querySelectorAll('.run-toggle[aria-pressed=true]').length === 1")
    page.click(".run:nth-child(3) [aria-label='Remove run-c']")
    page.wait_until("document.getElementById('facts').innerText === '2 runs'")
    page.click("#add-name")
    page.wait_until("[...document.querySelectorAll('#add-names option')].some((each) => each.value === 'run-c')")
    page.type("run-c")
    page.press("Enter")
    page.wait_until("document.getElementById('facts').innerText === '3 runs'")
    page.evaluate("history.back()")
    page.wait_until("document.getElementById('facts').innerText === '2 runs'")


def test_the_lines_of_the_code_are_compared(page: Page, yard: RunningYard) -> None:
    open_comparison(page, yard, "run-a,run-b,run-c")
    page.wait_until("document.getElementById('code').innerText.includes('the same')")
    page.evaluate(
        "(() => { const select = document.getElementById('code-to'); select.value = 'run-c';"
        "select.dispatchEvent(new Event('change')); })()"
    )
    page.wait_until("document.querySelector('.code-line.is-added') !== null")
    added = page.evaluate("[...document.querySelectorAll('.code-line.is-added')].map((each) => each.textContent)")
    assert added == ["+# run-c: <img src=x onerror=alert(1)>⟨U+202E⟩"]
    assert page.evaluate("document.querySelectorAll('#code img').length") == 0
    assert "codeTo=run-c" in page.evaluate("location.search")
    assert_is_quiet(page, yard)


def test_what_is_missing_is_said(page: Page, yard: RunningYard) -> None:
    page.open_url(f"{yard.http}/-/compare")
    assert "trainyard compare JOB JOB" in page.evaluate("document.getElementById('few').innerText")
    page.open_url(f"{yard.http}/-/compare?jobs=run-a,absent")
    assert 'no training job named "absent"' in page.wait_until("document.getElementById('problems').innerText")
    assert not page.evaluate("document.getElementById('few').hidden")
    page.open_url(f"{yard.http}/-/compare?jobs=run-a,absent,run-b")
    page.wait_until(LOADED)
    assert page.evaluate("document.getElementById('facts').innerText") == "2 runs"
    page.open_url(f"{yard.http}/-/training/run-a/files")
    page.click("#job-actions a[href^='/-/compare']")
    page.wait_until("location.pathname === '/-/compare' && document.querySelectorAll('.run').length === 1")


def test_an_archive_that_is_no_archive_is_no_code(page: Page, yard: RunningYard) -> None:
    trainee = trainee_of(yard)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("empty"))
    for key, body in (("run-a", b"not an archive"), ("run-b", buffer.getvalue()[:20])):
        where = {"Bucket": trainee.bucket, "Key": f"{key}/source/sourcedir.tar.gz"}
        before = trainee.user.client("s3").get_object(**where)["Body"].read()
        trainee.user.client("s3").put_object(**where, Body=body)
        open_comparison(page, yard, "run-a,run-b,run-c")
        assert page.evaluate(ROWS)["train.py"][0 if key == "run-a" else 1] == "none"
        trainee.user.client("s3").put_object(**where, Body=before)


def test_curves_of_running_jobs_grow_until_they_end(page: Page, yard: RunningYard) -> None:
    trainee = trainee_of(yard)
    script = "import time\nwhile True:\n    print('loss: 1', flush=True)\n    time.sleep(0.1)"
    request = trainee.request("grows", script, **UNTIL_STOPPED)
    request["AlgorithmSpecification"]["MetricDefinitions"] = METRICS
    trainee.sagemaker.create_training_job(**request)
    eventually(lambda: trainee.describe("grows").get("FinalMetricDataList"), within=timedelta(seconds=60))
    open_comparison(page, yard, "grows,run-a", more="&hidden=run-a&metrics=loss")
    page.wait_until(DRAWN)
    before = len(read_chart(page, "loss"))
    page.evaluate("document.querySelector('.chart-plot').focus()")
    page.press("t")
    page.wait_until(f"document.querySelectorAll('.curve tbody tr').length > {before + 20}")
    trainee.sagemaker.stop_training_job(TrainingJobName="grows")
    page.wait_until("document.querySelector('#differences thead').innerText.includes('Stopped')")
    assert_is_quiet(page, yard)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_accessible_and_fits_a_phone(page: Page, yard: RunningYard, scheme: str) -> None:
    for width in (1280, 390):
        open_comparison(page, yard, "run-a,run-b,run-c", more="&codeTo=run-c", width=width, scheme=scheme)
        page.wait_until("document.querySelector('.code-line') !== null")
        assert accessibility_problems(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390

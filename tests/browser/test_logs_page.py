"""The log of a job in a real browser: a million lines, live lines, hostile lines, several instances and attempts."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.browser.accessibility import accessibility_problems
from tests.browser.chromium import Browser, Page
from tests.browser.dashboard import access_of, assert_is_quiet, sign_in
from tests.system.trainees import UNTIL_STOPPED, Trainee
from tests.system.yards import trainee_of
from trainyard.formats.logs import LogWriter
from trainyard.testing.yard import RunningYard, running_yard

# The agent writes the first line of every log.
MILLION = r"""
import sys
for epoch in range(1000):
    sys.stdout.write("".join(f"step {epoch * 1000 + step} of epoch {epoch}\n" for step in range(1000)))
    if epoch == 499:
        sys.stdout.write("Traceback (most recent call last):\nValueError: handled\n")
"""
LIVE = """
import itertools, time
for number in itertools.count():
    print(f"live {number}", flush=True)
    time.sleep(0.05)
"""
HOSTILE = r"""
import sys
def deep():
    raise RuntimeError("<b>loss</b> is nan")
sys.stdout.buffer.write(b'''<script>document.title="pwned"</script><img src=x onerror="document.title='pwned'">
\x1b[31mred\x1b[0m \x1b[1;32mgreen\x1b[0m
\x1b]8;;https://evil.example/\x07link\x1b]8;;\x07 \x1b]0;pwned\x07 \x1b[2J
\xe2\x80\xaegnp.exe\xe2\x80\xac \x00 \xff
10%\r50%\rdone
''' + b"x" * 300_000 + b"\n")
sys.stdout.flush()
deep()
"""
HOSTS = """
import os
for number in range(30):
    print(os.environ["SM_CURRENT_HOST"], "says", number, flush=True)
"""
SPOT = """
import itertools, pathlib, signal, sys, time
mark = pathlib.Path("/opt/ml/checkpoints/mark")
signal.signal(signal.SIGTERM, lambda *_: (mark.write_text(""), sys.exit(0)))
for number in range(3) if mark.exists() else itertools.count():
    print(f"{'second' if mark.exists() else 'first'} {number}", flush=True)
    time.sleep(0.05)
"""
SPOT_REQUEST = {
    "EnableManagedSpotTraining": True,
    "StoppingCondition": {"MaxRuntimeInSeconds": 3600, "MaxWaitTimeInSeconds": 7200},
    "CheckpointConfig": {"S3Uri": "s3://data/checkpoints"},
}


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningYard]:
    slots = {"TRAINYARD_SERVER_SLOTS": "8"}
    with running_yard(tmp_path_factory.mktemp("logs") / "yard", environment=slots) as running:
        yield running


@pytest.fixture(scope="module")
def trainee(yard: RunningYard) -> Trainee:
    """One whose jobs run, or have ended."""
    made = trainee_of(yard).prepare()
    two = {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 1}
    made.start("spot", SPOT, **SPOT_REQUEST)
    made.start("million", MILLION)
    made.start("live", LIVE, **UNTIL_STOPPED)
    made.start("hostile", HOSTILE)
    made.start("hosts", HOSTS, ResourceConfig=two)
    made.await_line("spot", "first 1")
    with closing(access_of(yard).client()) as api:
        api.call("trainyard", "InterruptJob", TrainingJobName="spot")
    for name in ("spot", "million", "hosts"):
        made.reach(name, "Completed")
    made.reach("hostile", "Failed")
    return made


@pytest.fixture
def page(browser: Browser, yard: RunningYard, trainee: Trainee) -> Page:
    return sign_in(browser, yard)


def open_log(page: Page, yard: RunningYard, job: str, rest: str = "") -> None:
    page.logged.clear()
    page.requested.clear()
    page.open_url(f"{yard.http}/-/training/{job}/logs{rest}")
    page.wait_until("document.querySelector('.logs-line:not([data-waiting])') !== null")


def shown_lines(page: Page) -> list[str]:
    lines: list[str] = page.evaluate("[...document.querySelectorAll('.logs-text')].map((line) => line.textContent)")
    return lines


def await_line(page: Page, text: str) -> None:
    page.wait_until(f"[...document.querySelectorAll('.logs-text')].some((line) => line.textContent === {text!r})")


def marked_lines(page: Page) -> list[str]:
    marked: list[str] = page.evaluate(
        "[...document.querySelectorAll('.logs-line-marked .logs-text')].map((line) => line.textContent)"
    )
    return marked


def line_requests(page: Page) -> list[str]:
    return [url for url in page.requested if "/logs/lines" in url]


def search_for(page: Page, text: str) -> None:
    page.press("/")
    page.evaluate("document.getElementById('find').select()")
    page.type(text)
    page.press("Enter")


def test_a_million_lines_scroll_and_only_those_in_view_are_in_the_page(page: Page, yard: RunningYard) -> None:
    open_log(page, yard, "million")
    assert "1,000,003 lines" in page.wait_until("document.getElementById('extent').textContent")
    page.press("G")
    await_line(page, "step 999999 of epoch 999")
    page.press("g")
    await_line(page, "step 0 of epoch 0")
    page.turn_wheel(600, 500, 1900)
    await_line(page, "step 100 of epoch 0")
    page.evaluate("(() => { const view = document.getElementById('view'); view.scrollTop = view.scrollHeight / 4; })()")
    page.wait_until("/of epoch 2[45]\\d/.test(document.querySelector('.logs-text').textContent)")
    assert page.evaluate("document.querySelectorAll('.logs-line').length") < 60
    assert len(line_requests(page)) < 20
    assert_is_quiet(page, yard)


def test_a_text_is_found_among_a_million_lines(page: Page, yard: RunningYard) -> None:
    open_log(page, yard, "million")
    search_for(page, "step 123456 ")
    await_line(page, "step 123456 of epoch 123")
    page.wait_until("document.getElementById('count').textContent === '1 of 1'")
    assert page.evaluate("document.querySelector('.logs-hit').textContent") == "step 123456 "
    page.press("Escape")
    page.click("#regex")
    search_for(page, r"^step \d*99999 of")
    await_line(page, "step 199999 of epoch 199")
    page.wait_until("document.getElementById('count').textContent === '2 of 10'")
    page.press("Enter", modifiers=8)
    await_line(page, "step 99999 of epoch 99")
    search_for(page, "step (")
    page.wait_until("!document.getElementById('problem').hidden")
    assert "regular expression" in page.evaluate("document.getElementById('problem').textContent")


def test_the_address_shows_the_same_search_and_lines_to_others(page: Page, yard: RunningYard) -> None:
    open_log(page, yard, "million", "?find=epoch+7&case=1#L5000-L5002")
    page.wait_until("document.querySelectorAll('.logs-line-marked').length === 3")
    assert marked_lines(page) == [f"step {number} of epoch 4" for number in (4998, 4999)] + ["step 5000 of epoch 5"]
    assert page.evaluate("document.getElementById('find').value") == "epoch 7"
    page.click(".logs-line[data-place='5010'] .logs-number")
    page.click_at(*number_at(page, 5012), modifiers=8)
    assert page.evaluate("location.hash") == "#L5010-L5012"
    address = page.evaluate("location.pathname + location.search + location.hash").removeprefix(
        "/-/training/million/logs"
    )
    open_log(page, yard, "hosts")
    open_log(page, yard, "million", address)
    page.wait_until("document.querySelectorAll('.logs-line-marked').length === 3")
    assert marked_lines(page)[0] == "step 5008 of epoch 5"


def number_at(page: Page, place: int) -> tuple[float, float]:
    x, y = page.evaluate(
        f"(() => {{ const number = document.querySelector('[data-place=\"{place}\"] .logs-number');"
        "const box = number.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; })()"
    )
    return x, y


def test_the_first_error_is_a_key_away(page: Page, yard: RunningYard) -> None:
    open_log(page, yard, "million")
    page.press("e")
    page.wait_until("document.querySelector('.logs-line-current') !== null")
    assert page.evaluate("document.querySelector('.logs-line-current').dataset.place") == "500002"


def test_new_lines_are_followed_until_the_reader_scrolls_up(page: Page, yard: RunningYard) -> None:
    open_log(page, yard, "live")
    following = "document.getElementById('follow').getAttribute('aria-pressed') === 'true'"
    rows = "[...document.querySelectorAll('.logs-line:not([data-waiting]) .logs-text')]"
    last = f"Number({rows}.at(-1)?.textContent.slice(5))"
    page.wait_until(f"{following} && {last} > 60")
    seen, asked = page.evaluate(last), len(line_requests(page))
    page.wait_until(f"{last} > {seen + 40}")
    # Lines come with the news of them: asking for them would cost the server as much again.
    assert len(line_requests(page)) - asked < 3
    page.turn_wheel(600, 500, -400)
    page.wait_until(f"!({following})")
    page.wait_until_drawn()
    top = shown_lines(page)[0]
    total = page.evaluate("document.getElementById('extent').textContent")
    page.wait_until(f"document.getElementById('extent').textContent !== {total!r}")
    assert shown_lines(page)[0] == top
    page.press("f")
    page.wait_until(f"{following} && {last} > {seen + 60}")
    shown = page.evaluate(f"{rows}.map((line) => Number(line.textContent.slice(5)))")
    assert shown == list(range(shown[0], shown[0] + len(shown)))


def test_a_log_that_ends_is_no_longer_followed(page: Page, yard: RunningYard, trainee: Trainee) -> None:
    trainee.start("brief", LIVE, **UNTIL_STOPPED)
    trainee.await_line("brief", "live 3")
    open_log(page, yard, "brief")
    trainee.sagemaker.stop_training_job(TrainingJobName="brief")
    page.wait_until("document.getElementById('follow').disabled")
    assert "growing" not in page.evaluate("document.getElementById('extent').textContent")
    assert page.evaluate("document.querySelector('[data-live-state]').hidden")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_a_program_wrote_is_inert(page: Page, yard: RunningYard, scheme: str) -> None:
    page.show_as(width=1280, scheme=scheme)
    open_log(page, yard, "hostile")
    lines = shown_lines(page)
    assert lines[1].startswith("<script>document.title=")
    assert lines[2] == "red green"
    assert lines[3] == "␛]8;;https://evil.example/␇link␛]8;;␇ ␛]0;pwned␇ ␛[2J"
    assert lines[4] == "⟨U+202E⟩gnp.exe⟨U+202C⟩ ␀ \N{REPLACEMENT CHARACTER}"
    assert lines[5] == "…done"
    assert len(lines[6]) < 20_000
    assert page.evaluate("document.querySelector('.ansi-red').textContent") == "red"
    assert page.evaluate("document.querySelectorAll('#rows :is(a[href*=evil], img, script, b)').length") == 0
    assert "pwned" not in page.evaluate("document.title")
    assert accessibility_problems(page) == []
    assert_is_quiet(page, yard)


def test_what_a_line_hides_is_shown_on_request(page: Page, yard: RunningYard) -> None:
    open_log(page, yard, "hostile")
    page.click("[data-place='6'] .logs-more")
    await_line(page, "10%␍50%␍done")
    page.evaluate("document.querySelector(\"[data-place='7'] .logs-more\").click()")
    page.wait_until("document.querySelector(\"[data-place='7'] .logs-text\").textContent.length > 200000")


def test_the_cause_of_a_failure_is_a_click_away(page: Page, yard: RunningYard) -> None:
    open_log(page, yard, "hostile")
    page.click("#cause")
    page.wait_until("document.querySelector('.logs-line-marked') !== null")
    marked = marked_lines(page)
    assert marked[0] == "Traceback (most recent call last):"
    assert marked[-1] == "RuntimeError: <b>loss</b> is nan"


def test_instances_are_read_together_or_alone(page: Page, yard: RunningYard) -> None:
    open_log(page, yard, "hosts")
    await_line(page, "algo-1 says 0")
    await_line(page, "algo-2 says 0")
    page.click(".logs-source:nth-child(3)")
    page.wait_until(
        "location.search === '?instance=algo-2' && !document.querySelector('[data-waiting], .logs-instance')"
    )
    assert shown_lines(page)[1:] == [f"algo-2 says {number}" for number in range(30)]
    log: str = page.evaluate("fetch(document.getElementById('download').href).then((answer) => answer.text())")
    assert log.splitlines()[1:] == [f"algo-2 says {number}" for number in range(30)]
    page.click(".logs-source:nth-child(1)")
    page.wait_until("location.search === '' && document.querySelector('.logs-instance') !== null")
    both: str = page.evaluate("fetch(document.getElementById('download').href).then((answer) => answer.text())")
    assert sorted(both.splitlines())[-1] == "[algo-2] algo-2 says 9"


def test_attempts_are_marked_and_chosen(page: Page, yard: RunningYard) -> None:
    open_log(page, yard, "spot")
    await_line(page, "second 0")
    assert "Attempt 2 of 2. Attempt 1 was interrupted" in page.evaluate(
        "document.getElementById('attempt-note').innerText"
    )
    page.click("#attempt-note button")
    await_line(page, "first 0")
    assert "Attempt 1 of 2 was interrupted" in page.evaluate("document.getElementById('attempt-note').innerText")
    assert page.evaluate("location.search") == "?attempt=1"


def test_a_gap_of_a_log_is_shown_where_it_is(page: Page, yard: RunningYard, trainee: Trainee) -> None:
    trainee.run("gap", "print('before the gap')")
    logs = yard.home.root.glob("jobs/*/1/algo-1/logs/*.log")
    (log,) = (file for file in logs if b"before the gap" in file.read_bytes())
    lose_middle(log.parent)
    open_log(page, yard, "gap")
    await_line(page, "first segment")
    await_line(page, "2.1 kB missing before this line: the log exceeded its limitthird segment")
    assert not any("second" in line for line in shown_lines(page))


def lose_middle(folder: Path) -> None:
    """Leave of a log what remains of one that exceeded the limit: its beginning and its end."""
    for file in folder.iterdir():
        file.unlink()
    parts = (b"first segment\n", b"second segment\n" * 140, b"third segment\n")
    with LogWriter(folder, segment_bytes=1000) as writer:
        for number, part in enumerate(parts):
            writer.append(part, 1000 * number)
    segments = sorted({file.stem for file in folder.iterdir()})
    for file in folder.glob(f"{segments[1]}.*"):
        file.unlink()


def test_a_phone_shows_the_log(page: Page, yard: RunningYard) -> None:
    page.show_as(width=390)
    open_log(page, yard, "hosts")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.press("w")
    page.press("t")
    page.wait_until("/^\\d\\d:\\d\\d/.test(document.querySelector('.logs-time')?.textContent)")
    widths: list[Any] = page.evaluate("[...document.querySelectorAll('.logs-line')].map((line) => line.scrollWidth)")
    assert max(widths) <= 390

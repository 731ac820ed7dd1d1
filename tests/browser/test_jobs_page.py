"""The list of jobs in a real browser, with jobs that run, wait, fail and have ended."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.browser.accessibility import accessibility_problems
from tests.browser.chromium import ALT, SHIFT, Browser, Page
from tests.browser.dashboard import assert_is_quiet, sign_in
from tests.system.trainees import IMAGE, UNTIL_STOPPED, Trainee
from tests.system.tuners import Tuner
from tests.system.yards import trainee_of
from trainyard.testing.eventually import eventually
from trainyard.testing.yard import RunningYard, running_yard

CURVE = """
import sys
for step in range(40):
    print(f"loss={2 / (step + 1):.4f};", flush=True)
if "--fail" in sys.argv:
    raise RuntimeError("<img src=x onerror='document.title=1'>, no \\u202eluck")
"""
LIVE = """
import itertools, time
for step in itertools.count():
    print(f"loss={step + 0.5};", flush=True)
    time.sleep(0.2)
"""
TRIAL = """
report(0.25)
time.sleep(86_400)
"""
LONG = "a-job-whose-name-has-as-many-characters-as-sagemaker-permits-63"
WAITING = 52
PRICES = '["ml.m5.large"]\non_demand_usd = 1.5\n'


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningYard]:
    home = tmp_path_factory.mktemp("jobs") / "yard"
    with running_yard(home) as made:
        made.home.catalog_file.write_text(PRICES)
    with running_yard(home, environment={"TRAINYARD_SERVER_SLOTS": "2"}) as running:
        yield running


@pytest.fixture(scope="module")
def trainee(yard: RunningYard) -> Trainee:
    """One with jobs of all states, of which only the tuning job and `live` run."""
    made = trainee_of(yard).prepare()
    start(made, "good-1", CURVE, {"lr": "0.1"}, team="vision")
    start(made, "good-2", CURVE, {"lr": "0.01"}, team="text")
    start(made, "bad", CURVE, {"lr": "1", "fail": ""}, team="vision")
    for name, status in (("good-1", "Completed"), ("good-2", "Completed"), ("bad", "Failed")):
        made.reach(name, status)
    start(made, "live", LIVE, {"lr": "0.5"}, team="text and more")
    tuner = Tuner(made)
    tuner.start("search", TRIAL, ranges={"lr": (0.001, 0.1)}, trials=2, parallel=1, definition=UNTIL_STOPPED)
    made.reach("live", "Training")
    (trial,) = eventually(lambda: tuner.trials("search"), within=timedelta(seconds=60))
    made.reach(trial["TrainingJobName"], "Training")
    request = made.request(LONG, CURVE, **reporting_loss())
    made.sagemaker.create_training_job(**request | {"Tags": tags({f"key-{n}": f"value {n}" for n in range(50)})})
    for number in range(WAITING - 1):
        made.sagemaker.create_training_job(**request | {"TrainingJobName": f"later-{number}"})
    return made


@pytest.fixture(scope="module")
def page(browser: Browser, yard: RunningYard, trainee: Trainee) -> Page:
    return sign_in(browser, yard, width=1400)


def start(trainee: Trainee, name: str, script: str, hyperparameters: dict[str, str], **tagged: str) -> None:
    request = trainee.request(name, script, **reporting_loss(), **UNTIL_STOPPED, Tags=tags(tagged))
    request["HyperParameters"] |= hyperparameters
    trainee.sagemaker.create_training_job(**request)


def reporting_loss() -> dict[str, Any]:
    metrics = [{"Name": "loss", "Regex": "loss=(.*);"}]
    algorithm = {"TrainingImage": IMAGE, "TrainingInputMode": "File", "MetricDefinitions": metrics}
    return {"AlgorithmSpecification": algorithm}


def tags(values: dict[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in values.items()]


def show(page: Page, yard: RunningYard, query: str = "") -> None:
    page.open_url(f"{yard.http}/-/jobs?{query}")
    page.wait_until("document.querySelector('#capacity').childElementCount > 0")


def names(page: Page) -> list[str]:
    found: list[str] = page.evaluate("[...document.querySelectorAll('.job-name a')].map((link) => link.textContent)")
    return found


def wait_for_names(page: Page, *expected: str) -> None:
    page.wait_until(
        "JSON.stringify([...document.querySelectorAll('.job-name a')].map((link) => link.textContent)) === "
        + json.dumps(json.dumps(expected, separators=(",", ":")))
    )


def cell(page: Page, name: str, column: str) -> str:
    text: str = page.evaluate(cell_script(name, column))
    return text


def cell_script(name: str, column: str) -> str:
    link = f"[...document.querySelectorAll('.job-name a')].find((each) => each.textContent === {json.dumps(name)})"
    return f"{link}.closest('tr').querySelector('td[data-key={json.dumps(column)}]').innerText"


def columns(page: Page) -> list[str]:
    found: list[str] = page.evaluate("[...document.querySelectorAll('th[data-key]')].map((head) => head.dataset.key)")
    return found


def state(page: Page, name: str) -> str | None:
    found: str | None = page.evaluate(f"new URLSearchParams(location.search).get({json.dumps(name)})")
    return found


def tag_selection(page: Page, key: str, value: str) -> None:
    page.evaluate(
        "[...document.querySelectorAll('#bulk-bar button')].find((each) => each.textContent === 'Tag').click()"
    )
    page.wait_until("document.activeElement.name === 'key'")
    page.type(key)
    page.press("Tab")
    page.type(value)
    page.press("Enter")


def test_all_kinds_of_jobs_are_in_one_table(page: Page, yard: RunningYard) -> None:
    show(page, yard, "filter=-later -name:a-job -tuning:search")
    wait_for_names(page, "search", "live", "bad", "good-2", "good-1")
    plain = ["status", "created", "duration", "type", "cost", "user"]
    assert columns(page) == [*plain, "metric:loss", "spark:loss", "tags"]
    assert cell(page, "good-1", "status") == "Completed"
    assert cell(page, "good-1", "metric:loss") == "0.05"
    assert cell(page, "good-1", "tags") == "team=vision"
    assert cell(page, "good-1", "cost").endswith("USD")
    assert cell(page, "bad", "status").startswith("Failed")
    assert "<img src=x onerror='document.title=1'>, no ⟨U+202E⟩luck" in cell(page, "bad", "status")
    assert "Trials: 1 running" in cell(page, "search", "status")
    links = page.evaluate("[...document.querySelectorAll('.job-name a')].map((link) => link.getAttribute('href'))")
    assert links[:2] == ["/-/tuning/search", "/-/training/live"]
    page.wait_until(
        "[...document.querySelectorAll('.sparkline')].filter((canvas) => "
        "canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.some((value) => value > 0))"
        ".length === 4"
    )


def test_values_of_running_jobs_change_by_themselves(page: Page, yard: RunningYard) -> None:
    show(page, yard, "filter=live")
    before = cell(page, "live", "metric:loss")
    page.wait_until(f"{cell_script('live', 'metric:loss')} !== {json.dumps(before)}")
    took = cell(page, "live", "duration")
    page.wait_until(f"{cell_script('live', 'duration')} !== {json.dumps(took)}")


def test_a_waiting_job_says_why_and_the_machine_how_much_is_in_use(page: Page, yard: RunningYard) -> None:
    show(page, yard, "filter=status:waiting later-0")
    wait_for_names(page, "later-0")
    assert "#2 1 job is ahead of it in the queue" in " ".join(cell(page, "later-0", "status").split())
    capacity = page.evaluate("document.querySelector('#capacity').innerText")
    assert "2 of 2" in capacity
    page.click("#overview-button")
    queue = page.wait_until("document.querySelector('.queue')?.innerText")
    assert queue.split()[:2] == ["#1", LONG]
    assert "all 2 slots of local are in use" in queue
    shown = page.evaluate("document.querySelector('#overview').innerText")
    assert "per hour" in shown
    assert "live" in shown
    assert state(page, "overview") == "1"
    page.click("#capacity .link-button")
    page.wait_until("document.querySelectorAll('.job-name').length === 50")
    assert state(page, "filter") == "status:waiting"


def test_the_filter_suggests_names_and_values_and_explains_what_is_wrong(page: Page, yard: RunningYard) -> None:
    show(page, yard)
    page.press("/")
    page.type("tag:te")
    page.wait_until("document.querySelector('.filter-option code')?.textContent === 'tag:team'")
    page.press("ArrowDown")
    page.press("Enter")
    page.type("=vi")
    page.wait_until("document.querySelector('.filter-option code')?.textContent === 'tag:team=vision'")
    page.press("ArrowDown")
    page.press("Tab")
    wait_for_names(page, "bad", "good-1")
    assert state(page, "filter") == "tag:team=vision"
    page.type("status:nothing")
    page.press("Enter")
    problem = page.wait_until("document.querySelector('#filter-problem').innerText")
    assert "write one of waiting, running" in problem
    assert names(page) == ["bad", "good-1"]
    assert accessibility_problems(page) == []
    page.logged.clear()
    page.click("#quick-filters [data-status=failed]")
    wait_for_names(page, "bad")
    assert page.evaluate("document.querySelector('#filter').value") == "tag:team=vision status:failed"
    page.click("#quick-filters [data-status=stopped]")
    page.wait_until("document.querySelector('#nothing').innerText.includes('No job matches')")
    page.click("#nothing button")
    page.wait_until("document.querySelectorAll('.job-name').length === 50")


def test_a_click_on_a_tag_filters_by_any_value(page: Page, yard: RunningYard) -> None:
    show(page, yard, "filter=status:running kind:training -tuning:search")
    wait_for_names(page, "live")
    page.click(".tag-chip")
    page.wait_until("new URLSearchParams(location.search).get('filter').includes('tag')")
    assert state(page, "filter") == 'status:running kind:training -tuning:search tag:team="text and more"'
    wait_for_names(page, "live")


def test_any_column_sorts_and_the_address_keeps_the_view(page: Page, yard: RunningYard) -> None:
    show(page, yard, "filter=has:lr kind:training -tuning:search&columns=status,param%253Alr,metric%253Aloss.min")
    wait_for_names(page, "live", "bad", "good-2", "good-1")
    page.click("[data-sort='param:lr']")
    wait_for_names(page, "good-2", "good-1", "live", "bad")
    page.click("[data-sort='param:lr']")
    wait_for_names(page, "bad", "live", "good-1", "good-2")
    assert page.evaluate("document.querySelector('[data-sort=\"param:lr\"]').closest('th').ariaSort") == "descending"
    address = page.evaluate("location.href")
    page.open_url(address)
    wait_for_names(page, "bad", "live", "good-1", "good-2")
    page.evaluate("history.back()")
    wait_for_names(page, "good-2", "good-1", "live", "bad")
    show(page, yard, "filter=has:lr kind:training -tuning:search sort:-param:lr")
    wait_for_names(page, "bad", "live", "good-1", "good-2")
    page.click("[data-sort='name']")
    wait_for_names(page, "bad", "good-1", "good-2", "live")
    assert state(page, "filter") == "has:lr kind:training -tuning:search"


def test_columns_are_added_moved_and_removed(page: Page, yard: RunningYard) -> None:
    show(page, yard, "filter=good-1&columns=status,created,metric%253Aloss")
    page.click("#columns summary")
    page.wait_until("document.querySelector('.column-add') !== null")
    page.type("lr")
    page.wait_until("document.querySelectorAll('.column-add').length === 1")
    page.click(".column-add")
    page.wait_until("document.querySelectorAll('th[data-key]').length === 4")
    assert cell(page, "good-1", "param:lr") == "0.1"
    page.evaluate("document.querySelector('[data-focus=\"move param:lr\"]').focus()")
    page.press("ArrowUp")
    assert columns(page) == ["status", "created", "param:lr", "metric:loss"]
    page.press("ArrowUp")
    assert columns(page) == ["status", "param:lr", "created", "metric:loss"]
    page.evaluate(
        "(() => { const select = document.querySelector('.select-small'); select.value = 'max';"
        "select.dispatchEvent(new Event('change')); })()"
    )
    page.wait_until("document.querySelector('th[data-key=\"metric:loss.max\"]') !== null")
    assert cell(page, "good-1", "metric:loss.max") == "2"
    page.click("[aria-label='Remove Created']")
    page.press("Escape")
    page.wait_until("document.querySelector('#columns').open === false")
    places = page.evaluate(
        "[...document.querySelectorAll('th[data-key]')].map((head) => head.getBoundingClientRect())"
        ".map((box) => [box.x + box.width - 8, box.y + box.height / 2])"
    )
    page.drag(tuple(places[0]), tuple(places[2]))
    assert columns(page) == ["param:lr", "metric:loss.max", "status"]
    assert state(page, "columns") == "param%3Alr,metric%3Aloss.max,status"
    assert state(page, "sort") is None


def test_the_columns_that_were_chosen_last_are_shown_again(page: Page, yard: RunningYard) -> None:
    page.evaluate("localStorage.clear()")
    show(page, yard, "filter=good-1")
    wait_for_names(page, "good-1")
    default = columns(page)
    page.click("#columns summary")
    page.wait_until("document.querySelector('.column-add') !== null")
    page.type("lr")
    page.wait_until("document.querySelectorAll('.column-add').length === 1")
    page.click(".column-add")
    page.wait_until("document.querySelector('th[data-key=\"param:lr\"]') !== null")
    chosen = [*default, "param:lr"]
    assert columns(page) == chosen

    show(page, yard, "filter=good-1")
    page.wait_until(f"{cell_script('good-1', 'param:lr')} === '0.1'")
    assert columns(page) == chosen
    # A link to what is seen shows the same to others.
    assert "param%3Alr" in (state(page, "columns") or "")
    show(page, yard, "filter=good-1&columns=status,created")
    wait_for_names(page, "good-1")
    assert columns(page) == ["status", "created"]

    show(page, yard, "filter=good-1")
    page.wait_until(f"{cell_script('good-1', 'param:lr')} === '0.1'")
    page.click("#columns summary")
    page.click(".column-search button")
    page.wait_until("document.querySelector('th[data-key=\"param:lr\"]') === null")
    assert columns(page) == default
    show(page, yard, "filter=good-1")
    wait_for_names(page, "good-1")
    assert columns(page) == default
    assert state(page, "columns") is None


def test_groups_open_and_lead_to_their_jobs(page: Page, yard: RunningYard) -> None:
    show(page, yard, "filter=kind:training")
    page.evaluate(
        "(() => { const select = document.querySelector('#group'); select.value = 'failure';"
        "select.dispatchEvent(new Event('change')); })()"
    )
    heads = "[...document.querySelectorAll('.group-head')].map((head) => head.innerText.replace(/\\s+/g, ' '))"
    assert "⟨U+202E⟩luck" in page.wait_until(f"{heads}[0]")
    assert "no value" in page.evaluate(f"{heads}[1]")
    page.click(".group-toggle")
    wait_for_names(page, "bad")
    page.open_url(page.evaluate("location.href"))
    wait_for_names(page, "bad")
    assert accessibility_problems(page) == []
    page.click(".group-toggle")
    wait_for_names(page)
    page.evaluate("document.querySelectorAll('.group-toggle')[1].click()")
    page.click("[data-shows-group]")
    page.wait_until("document.querySelector('.group-head') === null && document.querySelectorAll('.job-name').length")
    assert state(page, "filter") == "kind:training -has:failure"


def test_selected_jobs_are_tagged_stopped_and_deleted(page: Page, yard: RunningYard, trainee: Trainee) -> None:
    show(page, yard, "filter=-later -name:a-job kind:training -tuning:search&sort=name")
    wait_for_names(page, "bad", "good-1", "good-2", "live")
    page.click("tr:nth-child(2) .row-check")
    page.press("ArrowDown", modifiers=SHIFT)
    assert page.evaluate("document.querySelector('#bulk-bar').innerText").startswith("2 jobs selected")
    x, y = page.evaluate(
        "(() => { const box = document.querySelector('tr:nth-child(4) .row-check').getBoundingClientRect();"
        "return [box.x + box.width / 2, box.y + box.height / 2]; })()"
    )
    page.click("tr:nth-child(1) .row-check")
    page.click_at(x, y, modifiers=SHIFT)
    assert page.evaluate("document.querySelector('#bulk-bar').innerText").startswith("4 jobs selected")
    assert accessibility_problems(page) == []

    compared = page.evaluate("document.querySelector('#bulk-bar a').getAttribute('href')")
    assert compared == "/-/compare?jobs=good-1%2Cgood-2%2Cbad%2Clive"
    tag_selection(page, "stage", "<b>done</b>")
    failed = page.wait_until("document.querySelector('.failures')?.innerText")
    assert "bad" in failed.split()
    assert "Value '<b>done</b>' at 'tags.1.member.value' failed to satisfy constraint" in failed
    page.press("Escape")
    tag_selection(page, "stage", "done")
    page.wait_until(f"{cell_script('good-1', 'tags')}.includes('stage=done')")
    arn = trainee.describe("bad")["TrainingJobArn"]
    assert {"Key": "stage", "Value": "done"} in trainee.sagemaker.list_tags(ResourceArn=arn)["Tags"]

    page.click("#select-all")
    page.evaluate("document.querySelector('#bulk-bar .button-danger').click()")
    assert "stop them first" in page.wait_until("document.querySelector('dialog')?.innerText")
    page.click("dialog button[value=yes]")
    failed = page.wait_until("document.querySelector('.failures')?.innerText")
    assert failed.startswith("live")
    assert "InProgress; stop it first" in failed
    page.press("Escape")
    wait_for_names(page, "live")

    last = f"later-{WAITING - 2}"
    show(page, yard, f"filter={last}")
    page.click(".row-check")
    page.evaluate("document.querySelector('#bulk-bar button').click()")
    assert last in page.wait_until("document.querySelector('dialog')?.innerText")
    page.click("dialog button[value=yes]")
    page.wait_until(f"{cell_script(last, 'status')} === 'Stopped'")
    assert trainee.describe(last)["TrainingJobStatus"] == "Stopped"


def test_pages_follow_each_other_and_all_their_jobs_can_be_selected(page: Page, yard: RunningYard) -> None:
    show(page, yard, "filter=later&sort=name")
    page.wait_until(f"document.querySelector('#jobs-total').textContent === '{WAITING - 1} jobs'")
    first = names(page)
    page.click("#select-all")
    page.click("#bulk-bar button:nth-last-child(2)")
    page.wait_until(f"document.querySelector('#bulk-bar').innerText.startsWith('{WAITING - 1} jobs selected')")
    page.click("#pager button:last-child")
    page.wait_until("document.querySelectorAll('.job-name').length === 1")
    (last,) = names(page)
    assert page.evaluate("document.querySelector('#jobs-total').textContent") == f"{WAITING - 1} jobs"
    assert [*first, last] == sorted(f"later-{number}" for number in range(WAITING - 1))
    assert page.evaluate("document.querySelector('.row-check').checked") is True
    page.evaluate("history.back()")
    page.wait_until("document.querySelectorAll('.job-name').length === 50")
    assert names(page) == first


def test_new_jobs_appear_and_the_page_asks_nobody_else(page: Page, yard: RunningYard, trainee: Trainee) -> None:
    show(page, yard, "filter=fresh")
    page.wait_until("document.querySelector('#nothing').hidden === false")
    page.logged.clear()
    start(trainee, "fresh", CURVE, {})
    wait_for_names(page, "fresh")
    before = columns(page)
    page.evaluate("document.querySelector('th[data-key=created] button').focus()")
    page.press("ArrowLeft", modifiers=ALT)
    assert columns(page) == [before[1], before[0], *before[2:]]
    assert names(page) == ["fresh"]
    assert page.evaluate("document.activeElement.dataset.sort") == "created"
    assert_is_quiet(page, yard)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_accessible_and_fits_a_phone(page: Page, yard: RunningYard, scheme: str) -> None:
    page.show_as(width=1400, scheme=scheme)
    show(page, yard, "overview=1")
    page.wait_until("document.querySelector('.queue') !== null")
    assert accessibility_problems(page) == []
    page.click("#columns summary")
    page.wait_until("document.querySelector('.column-add') !== null")
    assert accessibility_problems(page) == []
    page.show_as(width=390, scheme=scheme)
    show(page, yard, "overview=1")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.show_as(width=1400)


def test_an_empty_list_says_how_to_begin_and_shows_the_first_job(browser: Browser, tmp_path: Path) -> None:
    with running_yard(tmp_path / "yard") as yard:
        page = sign_in(browser, yard)
        assert "trainyard run train.py" in page.evaluate("document.querySelector('.empty').innerText")
        assert accessibility_problems(page) == []
        start(trainee_of(yard).prepare(), "first", CURVE, {})
        page.wait_until("document.querySelector('.job-name a')?.textContent === 'first'")
        assert "cost" not in columns(page)

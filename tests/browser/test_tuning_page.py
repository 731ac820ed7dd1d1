"""The page of a tuning job, in a real browser: live trials, linked charts, selections, and the states of a search."""

import json
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlencode

import pytest

from tests.browser.accessibility import accessibility_problems
from tests.browser.chromium import SHIFT, Browser, Page
from tests.browser.dashboard import access_of, assert_is_quiet, sign_in
from tests.browser.studies import store_study
from tests.system.trainees import UNTIL_STOPPED
from tests.system.tuners import Tuner
from tests.system.yards import trainee_of
from trainyard._sdk.connection import Access
from trainyard.testing.yard import RunningYard, running_yard

SLOTS = {"TRAINYARD_SERVER_SLOTS": "4"}
HOSTILE = '"<img src=x onerror=alert(1)>\u202egpj"'
LONG = "a-hyperparameter-with-a-name-as-long-as-people-write-them-" * 3
# A word with markup makes it fail.
STEPS = """
import pathlib
x = float(tuned["x"])
for step in range(1, 4):
    report((x - 0.3) ** 2 + 1 / step)
if tuned["word"].startswith("<"):
    raise ValueError("<b>It was told to fail.</b>")
"""
ENDLESS = """
for step in range(1, 1_000_000):
    report(number + 1 / step)
    time.sleep(0.1)
"""
TRIALS = 8
MANY = 1000

ROWS = "document.querySelectorAll('#trials tbody tr').length"
CHIPS = "[...document.querySelectorAll('#selection .chip')].map((each) => each.firstChild.textContent)"
# The table follows the charts a moment later.
IS_SETTLED = "document.querySelector('[aria-busy]') === null"
HAS_SURVEY = "document.querySelector('#importance .bars') !== null"


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningYard]:
    with running_yard(tmp_path_factory.mktemp("tuning") / "yard", environment=SLOTS) as running:
        trainee_of(running).prepare()
        store_study(running, "study", trials=60)
        store_study(running, "large", trials=MANY)
        store_study(running, "brackets", trials=30, is_hyperband=True)
        store_study(running, "warm", trials=20, parent="study")
        store_study(running, "algorithms", trials=24, definitions=("trees", "network"))
        yield running


@pytest.fixture(scope="module")
def tuner(yard: RunningYard) -> Tuner:
    return Tuner(trainee_of(yard))


@pytest.fixture(scope="module")
def page(browser: Browser, yard: RunningYard) -> Page:
    page = sign_in(browser, yard)
    page.logged.clear()
    return page


def show(
    page: Page, yard: RunningYard, name: str = "study", *, width: int = 1280, scheme: str = "light", **state: str
) -> None:
    """Open the page of a tuning job that has ended, and wait until it shows everything."""
    page.show_as(width=width, scheme=scheme)
    page.open_url(f"{yard.http}/-/tuning/{name}?{urlencode(state)}")
    page.wait_until("Number(document.querySelector('#trial-count').textContent.split(' ').at(-1)) > 0")
    page.wait_until("document.querySelector('[data-live-state]').hidden")
    page.wait_until_drawn()
    page.wait_until(IS_SETTLED)


def box_of(page: Page, selector: str) -> dict[str, float]:
    """Scroll an element into view and return where it is."""
    found: dict[str, float] = page.evaluate(
        f"(() => {{ const found = document.querySelector({json.dumps(selector)});"
        "found.scrollIntoView({block: 'center'}); const {x, y, width, height} = found.getBoundingClientRect();"
        "return {x, y, width, height}; })()"
    )
    page.wait_until_drawn()
    return found


def shown_trials(page: Page) -> list[int]:
    page.wait_until(IS_SETTLED)
    numbers: list[int] = page.evaluate(
        "[...document.querySelectorAll('#trials tbody tr')].map((row) => Number(row.dataset.trial))"
    )
    return numbers


def column(page: Page, key: int) -> list[str]:
    """Return the texts of a column of the table."""
    page.wait_until(IS_SETTLED)
    texts: list[str] = page.evaluate(
        f"[...document.querySelectorAll('#trials tbody tr')].map((row) => row.cells[{key}].textContent.trim())"
    )
    return texts


def query(page: Page, name: str) -> str | None:
    value: str | None = page.evaluate(f"new URLSearchParams(location.search).get({json.dumps(name)})")
    return value


def axis_place(page: Page, number: int, position: float) -> tuple[float, float]:
    """Return where a position of an axis of the parallel coordinates is; the sizes are those of parallel.js."""
    box = box_of(page, "#parallel .chart-plot")
    count = page.evaluate("JSON.parse(document.getElementById('data').textContent).definitions[0].axes.length + 1")
    x = box["x"] + 56 + number * (box["width"] - 112) / (count - 1)
    return x, box["y"] + 34 + (1 - position) * (box["height"] - 48)


def test_a_search_is_followed_live_from_its_first_trial_to_its_end(page: Page, yard: RunningYard, tuner: Tuner) -> None:
    tuner.start("live", STEPS, ranges={"x": (0.0, 1.0), "word": ("plain", HOSTILE)}, trials=TRIALS)
    page.show_as(width=1280)
    page.open_url(f"{yard.http}/-/tuning/live")
    page.wait_until("document.querySelector('[data-live-state]').dataset.liveState === 'live'")
    page.wait_until("document.querySelector('#next-trial dl, #next-trial .faint')?.innerText.includes('x')")
    told = tuner.finish("live")
    page.wait_until(f"{ROWS} === {TRIALS} && document.querySelector('#notices').innerText.includes('Why it ended')")
    page.wait_until("document.querySelector('[data-live-state]').hidden")
    page.wait_until(HAS_SURVEY)
    page.wait_until(IS_SETTLED)
    best = told["BestTrainingJob"]["TrainingJobName"]
    assert page.evaluate("document.querySelector('#figures a').getAttribute('href')") == f"/-/training/{best}"
    assert page.evaluate("document.querySelector('#trials tbody a').textContent") == best
    values = told["BestTrainingJob"]["TunedHyperParameters"]
    assert page.evaluate("document.querySelectorAll('#best dt').length") == len(values)
    assert "trainyard tune best live --arguments" in page.evaluate("document.querySelector('#best code').textContent")
    failed = told["TrainingJobStatusCounters"]["NonRetryableError"]
    assert page.evaluate("[...document.querySelectorAll('#figures .stat-value')].at(-1).textContent") == str(failed)
    assert page.evaluate("document.querySelectorAll('#tuning img').length") == 0
    assert page.evaluate("document.querySelector('#job-status').innerText").strip() == "Completed"
    page.wait_until("!document.querySelector('[data-action=delete]').disabled")
    page.wait_until("document.querySelector('#next-trial').innerText.startsWith('None.')")
    assert_is_quiet(page, yard)


def test_a_script_reads_over_the_api_what_the_page_shows(page: Page, yard: RunningYard) -> None:
    show(page, yard)
    named = {"HyperParameterTuningJobName": "study"}
    with closing(access_of(yard).client()) as api:
        listed = api.call("trainyard", "ListTrials", **named)
        curves = api.call("trainyard", "ReadTrialCurves", **named, MaxPoints=10)["Curves"]
        survey = api.call("trainyard", "SurveyTuningJob", **named, HyperParameterNames=["lr", "dropout"])["Survey"]
        explained = api.call("trainyard", "ExplainNextTrial", **named)
        again = api.call("trainyard", "ListTrials", **named, Cursor=listed["Cursor"])["Trials"]
    assert sorted(each["TrialNumber"] for each in listed["Trials"]) == sorted(shown_trials(page))
    assert again == []
    assert all(len(each["Values"]) <= 10 for each in curves)
    assert survey["JointDependence"]["Names"] == ["lr", "dropout"]
    assert explained["IsLast"]
    assert explained["Reasons"][0] in page.evaluate("document.querySelector('#notices').innerText")


def test_a_running_search_tells_what_comes_next_and_can_be_stopped(page: Page, yard: RunningYard, tuner: Tuner) -> None:
    tuner.start("endless", ENDLESS, ranges={"x": (0.0, 1.0)}, trials=50, parallel=2, definition=UNTIL_STOPPED)
    page.open_url(f"{yard.http}/-/tuning/endless")
    page.wait_until(f"{ROWS} === 2 && document.querySelector('#trials tbody').innerText.includes('Running')")
    page.wait_until("document.querySelector('#next-trial').innerText.includes('Too little is known for a model')")
    # The objective of a running trial is the last that it reported.
    first = page.wait_until("document.querySelector('#trials tbody .objective')?.textContent")
    page.wait_until(f"document.querySelector('#trials tbody .objective')?.textContent !== '{first}'")
    page.click("[data-action=stop]")
    page.click("dialog[open] .button-danger")
    page.wait_until("document.querySelector('#notices').innerText.includes('Its user stopped it.')")
    assert tuner.finish("endless")["HyperParameterTuningJobStatus"] == "Stopped"
    page.wait_until("document.querySelector('#trials tbody').innerText.match(/Stopped/g)?.length === 2")
    page.wait_until("document.querySelector('#job-status').innerText.includes('Stopped')")


def test_a_tuning_job_without_trials_says_what_is_missing(page: Page, yard: RunningYard, tuner: Tuner) -> None:
    # One trial at a time takes longer to start than the page to open, and none has an objective.
    ranges = {LONG: (0.0, 1.0)}
    tuner.start(
        "early", "time.sleep(86_400)", ranges=ranges, trials=2, parallel=1, strategy="Random", definition=UNTIL_STOPPED
    )
    page.open_url(f"{yard.http}/-/tuning/early")
    note = page.wait_until("document.querySelector('#survey-note').textContent")
    assert note == "The model needs 5 more measured trials"
    reasons = page.wait_until("document.querySelector('#next-trial .reasons')?.innerText")
    assert "Random search draws every value anew" in reasons
    for width in (1280, 390):
        page.show_as(width=width)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    tuner.sagemaker.stop_hyper_parameter_tuning_job(HyperParameterTuningJobName="early")
    tuner.finish("early")


def test_brushes_on_axes_select_everywhere_and_the_address_keeps_them(page: Page, yard: RunningYard) -> None:
    show(page, yard)
    everything = shown_trials(page)
    # The learning rate is the first axis.
    page.drag(axis_place(page, 0, 0.4), axis_place(page, 0, 0.6))
    (chip,) = page.wait_until(f"{CHIPS}.length === 1 && {CHIPS}")
    assert chip.startswith("lr ")
    within = shown_trials(page)
    assert 0 < len(within) < len(everything)
    assert all(10 ** (-5 + 4 * 0.38) < float(text) < 10 ** (-5 + 4 * 0.62) for text in column(page, 3))
    compared = page.evaluate("document.querySelector('#selection a').getAttribute('href')")
    assert compared.startswith("/-/compare?jobs=study-")
    assert 2 <= len(compared.split(",")) <= 10
    # A second brush narrows the first one down.
    page.click_at(*axis_place(page, 5, 1 / 6))
    page.wait_until(f"{CHIPS}.length === 2")
    assert set(column(page, 8)) == {"adam"}
    both = shown_trials(page)
    page.open_url(page.evaluate("location.href"))
    page.wait_until(f"{CHIPS}.length === 2 && {ROWS} > 0")
    assert shown_trials(page) == both
    page.click("#selection .chip button")
    page.wait_until(f"{CHIPS}.length === 1")
    page.click("#selection > .button")
    page.wait_until(f"{CHIPS}.length === 0")
    assert shown_trials(page) == everything
    assert query(page, "brush") is None


def test_axes_are_moved_by_their_names_and_by_the_keyboard(page: Page, yard: RunningYard) -> None:
    show(page, yard)
    x, y = axis_place(page, 0, 1.0)
    target, _ = axis_place(page, 2, 1.0)
    page.drag((x, y - 22), (target, y - 22))
    order = page.wait_until("new URLSearchParams(location.search).get('order')").split(",")
    assert [each.replace("%3A", ":") for each in order][:3] == ["p:dropout", "p:momentum", "p:lr"]
    page.evaluate("document.querySelector('#parallel .chart-plot').focus()")
    page.press("ArrowRight", modifiers=SHIFT)
    assert page.wait_until("new URLSearchParams(location.search).get('order')").startswith("p%3Amomentum,p%3Adropout")
    page.press("ArrowUp")
    page.wait_until(f"{CHIPS}.length === 1")
    page.press("Delete")
    page.wait_until(f"{CHIPS}.length === 0")


def test_boxes_in_charts_select_and_all_charts_share_the_selection(page: Page, yard: RunningYard) -> None:
    show(page, yard)
    history = box_of(page, "#history .chart-plot")
    middle = history["x"] + history["width"] / 2
    page.drag((history["x"] + 60, history["y"] + 20), (middle, history["y"] + history["height"] - 50))
    page.wait_until(f"{CHIPS}.length === 2")
    assert max(shown_trials(page)) < 45
    page.press("Escape")
    page.wait_until(f"{CHIPS}.length === 0")
    curves = box_of(page, "#curves .chart-plot")
    # Only trials that were not stopped come to the right end.
    right = curves["x"] + curves["width"]
    page.drag((right - 80, curves["y"] + 12), (right - 16, curves["y"] + curves["height"] - 40))
    page.wait_until(f"{CHIPS}.length === 1")
    assert set(column(page, 1)) == {"Completed"}
    page.click("#selection > .button")
    slots = box_of(page, "#slots .chart-plot")
    page.drag((slots["x"] + 60, slots["y"] + 20), (slots["x"] + 200, slots["y"] + 22))
    page.wait_until(f"{CHIPS}.length === 1")
    assert max(shown_trials(page)) < 30
    page.click("#selection > .button")


def test_a_trial_under_the_pointer_is_marked_everywhere_and_a_click_compares_it(page: Page, yard: RunningYard) -> None:
    show(page, yard)
    worst = shown_trials(page)[20]
    page.evaluate(f"document.querySelector('tr[data-trial=\"{worst}\"]').scrollIntoView({{block: 'center'}})")
    page.click(f'tr[data-trial="{worst}"] .trial-number')
    page.wait_until("!document.querySelector('#pinned').hidden")
    text = page.evaluate("document.querySelector('#pinned').innerText")
    assert f"Trial {worst}" in text
    assert "best, trial" in text
    assert "Compare the training jobs" in text
    assert query(page, "trial") == str(worst)
    assert page.evaluate("document.querySelector('tr[aria-selected=true]').dataset.trial") == str(worst)
    # The bar of the best trial is outlined; the pointer over a bar marks its row.
    box = box_of(page, "#slots .chart-plot")
    page.move_pointer(box["x"] + 50, box["y"] + 16)
    marked = page.wait_until("[...document.querySelectorAll('tr.is-marked')].map((row) => row.dataset.trial)")
    tip = page.evaluate("document.querySelector('#slots .chart-tip').innerText")
    assert any(f"Trial {number} " in tip for number in marked) or str(worst) in marked
    page.click("#pinned .button-quiet")
    page.wait_until("document.querySelector('#pinned').hidden")
    page.click(f'tr[data-trial="{worst}"] td:nth-child(2)')
    page.wait_until("!document.querySelector('#pinned').hidden")
    page.press("Escape")
    page.wait_until("document.querySelector('#pinned').hidden")


def test_the_table_is_sorted_filtered_and_shows_chosen_columns(page: Page, yard: RunningYard) -> None:
    show(page, yard)
    objectives = [float(text) for text in column(page, 2) if text[0].isdigit()]
    assert objectives == sorted(objectives), "the best is first"
    page.click("#trials th:nth-child(4) .table-sort")
    page.wait_until("document.querySelector('#trials th:nth-child(4)').getAttribute('aria-sort') === 'ascending'")
    page.click("#trials th:nth-child(4) .table-sort")
    page.wait_until("document.querySelector('#trials th:nth-child(4)').getAttribute('aria-sort') === 'descending'")
    rates = [float(text) for text in column(page, 3)]
    assert rates == sorted(rates, reverse=True)
    page.press("/")
    page.type("lr<0.001 optimizer=adam state:early")
    page.wait_until("location.search.includes('filter=')")
    page.wait_until(f"{ROWS} < 60")
    assert set(column(page, 1)) == {"Stopped early"}
    assert set(column(page, 8)) == {"adam"}
    assert all(float(text) < 0.001 for text in column(page, 3))
    page.click("#columns-menu summary")
    page.wait_until("document.querySelectorAll('#columns input').length > 0")
    page.evaluate(
        "[...document.querySelectorAll('#columns label')].find((each) => each.innerText === 'Reason').click()"
    )
    page.wait_until("document.querySelector('#trials thead').innerText.includes('Reason')")
    assert "worse than the median" in page.evaluate("document.querySelector('#trials tbody').innerText")
    show(page, yard, filter="state:failed", columns="state,reason")
    assert page.evaluate("[...document.querySelectorAll('#trials th')].map((each) => each.innerText.trim())") == [
        "Trial",
        "State",
        "Reason",
    ]
    assert set(column(page, 2)) == {"CUDA out of memory."}


def test_a_model_ranks_hyperparameters_and_draws_two_of_them(page: Page, yard: RunningYard) -> None:
    show(page, yard)
    page.wait_until(HAS_SURVEY)
    names = page.evaluate("[...document.querySelectorAll('#importance th')].map((each) => each.textContent)")
    assert names[:2] == ["lr", "optimizer"]
    assert page.evaluate("document.querySelectorAll('#slices canvas').length") == 12
    chosen = "[document.querySelector('#contour-x').value, document.querySelector('#contour-y').value]"
    assert page.evaluate(chosen) == ["lr", "optimizer"]
    page.evaluate(
        "(() => { const select = document.querySelector('#contour-x'); select.value = 'optimizer';"
        "select.dispatchEvent(new Event('change')); })()"
    )
    page.wait_until(f"{chosen}.join() === 'optimizer,lr'")
    page.click("#importance tr:nth-child(3)")
    third = names[2]
    page.wait_until(f"{chosen}[0] === {json.dumps(third)}")
    assert query(page, "x") == third
    page.click("#contour .chart-tools button")
    assert page.wait_until("document.querySelector('#contour .chart-table')?.innerText").startswith("trial")


def test_a_warm_start_shows_its_parents_and_their_best(page: Page, yard: RunningYard) -> None:
    show(page, yard, "warm")
    parent = page.evaluate("document.querySelector('#tuning a[href=\"/-/tuning/study\"]').parentElement.innerText")
    assert "The same data and algorithm as study, best 0.1" in " ".join(parent.split())
    assert "Best of the parents" in page.evaluate("document.querySelector('#history-legend').innerText")


def test_hyperband_shows_brackets_and_rungs(page: Page, yard: RunningYard) -> None:
    show(page, yard, "brackets")
    assert "Bracket" in page.evaluate("document.querySelector('#trials thead').innerText")
    assert "the best third continues" in page.evaluate("document.querySelector('#tuning').innerText")


def test_several_algorithms_are_shown_together_or_one_by_one(page: Page, yard: RunningYard) -> None:
    show(page, yard, "algorithms")
    assert set(column(page, 3)) == {"trees", "network"}
    text = page.evaluate("document.querySelector('#study-bar').innerText")
    assert f"Hyperparameters are those of {column(page, 3)[0]}, which has the best trial" in text
    page.evaluate(
        "(() => { const select = document.querySelector('#definition'); select.value = 'trees';"
        "select.dispatchEvent(new Event('change')); })()"
    )
    page.wait_until(f"{ROWS} === 12")
    assert set(column(page, 3)) == {"trees"}
    assert query(page, "algorithm") == "trees"
    page.wait_until(HAS_SURVEY)


def test_a_thousand_trials_are_shown_in_parts_and_selected_by_the_keyboard(page: Page, yard: RunningYard) -> None:
    show(page, yard, "large")
    page.wait_until(f"document.querySelector('#trial-count').textContent === '{MANY}'")
    page.wait_until(HAS_SURVEY)
    assert page.evaluate(ROWS) == 100
    page.click("#more button")
    page.wait_until(f"{ROWS} === 200")
    page.evaluate("document.querySelector('#parallel .chart-plot').focus()")
    page.press("ArrowUp")
    for _ in range(10):
        page.press("ArrowDown")
    page.wait_until(f"Number(document.querySelector('#trial-count').textContent.split(' ')[0]) < {MANY}")
    page.press("Delete")
    page.wait_until(f"document.querySelector('#trial-count').textContent === '{MANY}'")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_is_accessible_and_fits_a_phone(page: Page, yard: RunningYard, width: int, scheme: str) -> None:
    show(page, yard, width=width, scheme=scheme, trial="7", filter="adam", brush="0.2~0.8~p:lr")
    page.wait_until(HAS_SURVEY)
    assert accessibility_problems(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_tuning_job_that_does_not_exist_is_an_error_with_a_way_back(page: Page, yard: RunningYard) -> None:
    page.open_url(f"{yard.http}/-/tuning/nothing")
    assert "nothing" in page.evaluate("document.querySelector('.error-message').innerText")
    page.logged.clear()


def test_other_users_see_nothing_of_it(browser: Browser, yard: RunningYard) -> None:
    with closing(access_of(yard).client()) as api:
        api.call("iam", "CreateUser", UserName="ben")
        key = api.call("iam", "CreateAccessKey", UserName="ben")["AccessKey"]
    access = Access(yard.http, key["AccessKeyId"], key["SecretAccessKey"], yard.credentials.region)
    page = sign_in(browser, yard, access=access)
    for part in ("", "/survey", "/next"):
        page.open_url(f"{yard.http}/-/tuning/study{part}")
        assert "There is nothing here" in page.evaluate("document.body.innerText")

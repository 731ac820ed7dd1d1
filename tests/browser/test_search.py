"""The search over everything, in a real browser."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.browser.accessibility import accessibility_problems
from tests.browser.chromium import CONTROL, Browser, Page
from tests.browser.dashboard import access_of, assert_is_quiet, sign_in
from tests.system.trainees import UNTIL_STOPPED, Trainee
from tests.system.yards import trainee_of
from trainyard._sdk.connection import Access
from trainyard.testing.yard import RunningYard, running_yard

TITLES = "[...document.querySelectorAll('.search-option')].map((option) => option.dataset.title)"
LONG_NAME = "a-name-of-the-greatest-length-that-a-training-job-can-have-12345"[:63]


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningYard]:
    with running_yard(tmp_path_factory.mktemp("search") / "yard", environment={"TRAINYARD_SERVER_SLOTS": "1"}) as made:
        yield made


@pytest.fixture(scope="module")
def trainee(yard: RunningYard) -> Trainee:
    """One whose jobs wait for another to end."""
    made = trainee_of(yard).prepare()
    names = ["bert", *(f"bert-{number}" for number in range(12)), "resnet", LONG_NAME]
    made.start("holds-the-slot", "import time\ntime.sleep(86_400)", **UNTIL_STOPPED)
    request = made.request("template", "print()")
    for name in names:
        made.sagemaker.create_training_job(**request | {"TrainingJobName": name})
    return made


@pytest.fixture
def page(browser: Browser, yard: RunningYard, trainee: Trainee) -> Page:
    page = sign_in(browser, yard)
    page.open_url(f"{yard.http}/-/training/{trainee.describe('bert')['TrainingJobName']}/logs")
    page.logged.clear()
    page.requested.clear()
    return page


@pytest.fixture(scope="module")
def plain_user(yard: RunningYard) -> Access:
    with closing(access_of(yard).client()) as api:
        api.call("iam", "CreateUser", UserName="plain")
        key = api.call("iam", "CreateAccessKey", UserName="plain")["AccessKey"]
    return Access(yard.http, key["AccessKeyId"], key["SecretAccessKey"], "us-east-1")


def search_for(page: Page, text: str) -> list[str]:
    """Open the search, type a text and return the titles of what it finds."""
    page.press("k", modifiers=CONTROL)
    # Of a search that is open still, Escape empties the field.
    page.wait_until("document.activeElement.matches('.search-field') && document.activeElement.value === ''")
    page.type(text)
    page.wait_until(f"document.getElementById('search-results').dataset.shown === {text!r}")
    titles: list[str] = page.evaluate(TITLES)
    return titles


def test_jobs_are_found_by_parts_of_their_names_the_newest_first(page: Page, yard: RunningYard) -> None:
    titles = search_for(page, "BERT 1")
    assert titles == ["bert-11", "bert-10", "bert-1"]
    page.press("ArrowDown")
    page.press("ArrowDown")
    page.press("ArrowUp")
    page.press("Enter")
    page.wait_until("location.pathname === '/-/training/bert-10'")
    assert_is_quiet(page, yard)


def test_a_job_with_exactly_this_name_comes_before_newer_ones(page: Page) -> None:
    titles = search_for(page, "bert")
    assert titles[:3] == ["bert", "bert-11", "bert-10"]
    assert titles[8] == "All jobs with these words"
    page.press("ArrowUp")
    page.press("Enter")
    page.wait_until("location.pathname === '/-/jobs' && location.search.includes('bert')")


def test_what_is_typed_and_entered_at_once_is_what_opens(page: Page) -> None:
    page.press("k", modifiers=CONTROL)
    page.wait_until("document.activeElement.classList.contains('search-field')")
    page.type("resnet")
    page.press("Enter")
    page.wait_until("location.pathname === '/-/training/resnet'")


def test_pages_settings_and_users_are_found_by_administrators_only(
    page: Page, browser: Browser, yard: RunningYard, plain_user: Access
) -> None:
    assert "Admin: Faults" in search_for(page, "fault")
    page.press("Escape")
    assert "warm_idle" in search_for(page, "warm worker stays")
    page.press("Escape")
    assert search_for(page, "plain") == ["plain"]
    page.press("Escape")
    other = sign_in(browser, yard, access=plain_user)
    for text in ("fault", "warm worker stays", "plain", "bert", "admin"):
        assert search_for(other, text) == []
        other.press("Escape")
    assert other.evaluate("fetch('/-/search?q=').then((found) => found.text())").count("bert") == 0


def test_what_was_opened_last_is_offered_first(page: Page, yard: RunningYard) -> None:
    search_for(page, "bert-7")
    page.press("Enter")
    page.wait_until("location.pathname === '/-/training/bert-7'")
    page.wait_until_drawn()
    assert search_for(page, "")[0] == "bert-7"
    page.press("Escape")
    page.wait_until("document.querySelector('dialog') === null")


def test_tabs_of_the_page_are_found(page: Page) -> None:
    assert search_for(page, "overv")[0] == "Overview"


def test_operators_quotes_and_markup_are_words(page: Page, yard: RunningYard) -> None:
    for text in ('status:failed "', "a<b lr>=0.1 -x", "<img src=x onerror=alert(1)>", "\\"):
        assert search_for(page, text) == []
        assert text in page.evaluate("document.querySelector('.search-state').textContent")
        page.press("Escape")
    assert page.evaluate("document.querySelectorAll('img[src=x]').length") == 0
    assert_is_quiet(page, yard)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_search_is_accessible_and_fits_a_phone(page: Page, scheme: str) -> None:
    page.show_as(width=390, scheme=scheme)
    search_for(page, "a")
    assert LONG_NAME in page.evaluate(TITLES)
    assert accessibility_problems(page) == []
    assert page.evaluate("document.querySelector('dialog').getBoundingClientRect().right") <= 390

"""Four hundred different tags: as many as a job may have on each of eight jobs, some as long as they may be."""

from collections.abc import Iterator

import pytest

from tests.browser.accessibility import accessibility_problems
from tests.browser.chromium import Browser, Page
from tests.browser.dashboard import sign_in
from tests.system.trainees import UNTIL_STOPPED, Trainee
from tests.system.yards import trainee_of
from trainyard.testing.yard import RunningYard, running_yard

JOBS, TAGS_OF_A_JOB = 8, 50
BUSY = "import time; time.sleep(86_400)"


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningYard]:
    slots = {"TRAINYARD_SERVER_SLOTS": "1"}
    with running_yard(tmp_path_factory.mktemp("tags") / "yard", environment=slots) as running:
        yield running


@pytest.fixture(scope="module")
def trainee(yard: RunningYard) -> Trainee:
    """One whose tagged jobs wait for the one that runs."""
    made = trainee_of(yard).prepare()
    made.start("busy", BUSY, **UNTIL_STOPPED)
    request = made.request("tagged", BUSY, **UNTIL_STOPPED)
    for job in range(JOBS):
        numbers = range(job * TAGS_OF_A_JOB, (job + 1) * TAGS_OF_A_JOB)
        tags = [{"Key": key_of(number), "Value": value_of(number)} for number in numbers]
        made.sagemaker.create_training_job(**request | {"TrainingJobName": f"tagged-{job}", "Tags": tags})
    return made


@pytest.fixture
def page(browser: Browser, yard: RunningYard, trainee: Trainee) -> Page:
    return sign_in(browser, yard)


def key_of(number: int) -> str:
    return f"cost-centre/{number}/".ljust(128, "x") if number % TAGS_OF_A_JOB == 7 else f"tag-{number}"


def value_of(number: int) -> str:
    return f"value {number} ".ljust(255, "y") if number % TAGS_OF_A_JOB == 8 else f"value {number}"


def show_jobs(page: Page, yard: RunningYard) -> None:
    page.open_url(f"{yard.http}/-/jobs")
    page.wait_until(f"document.querySelectorAll('.job-name').length === {JOBS + 1}")
    page.wait_until("document.querySelectorAll('#group optgroup option').length === 400")


def height_of(page: Page, selector: str) -> float:
    height: float = page.evaluate(f"document.querySelector({selector!r}).getBoundingClientRect().height")
    return height


def assert_fits(page: Page, width: int, selector: str = "html") -> None:
    """Nothing sticks out of the page, or of a part of it, to the side."""
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert (
        page.evaluate(
            f"(({{ scrollWidth, clientWidth }}) => scrollWidth - clientWidth)(document.querySelector({selector!r}))"
        )
        <= 0
    )


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_a_list_with_400_tags_stays_a_list(page: Page, yard: RunningYard, width: int, scheme: str) -> None:
    page.show_as(width=width, scheme=scheme)
    show_jobs(page, yard)
    before = height_of(page, "tbody tr")
    page.click(".chip-more")
    page.wait_until("document.querySelectorAll('.tag-cell.is-whole .tag-chip').length === 50")
    assert height_of(page, "tbody tr") < 4 * before
    assert accessibility_problems(page) == []
    page.click(".chip-more")
    page.wait_until("document.querySelector('.tag-cell.is-whole') === null")
    assert height_of(page, "tbody tr") == before

    options = page.evaluate("[...document.querySelectorAll('#group optgroup option')].map((each) => each.value)")
    short = [f"tag:tag-{number}" for number in range(JOBS * TAGS_OF_A_JOB) if number % TAGS_OF_A_JOB != 7]
    assert [each for each in options if each.startswith("tag:tag-")] == short

    page.click("#columns summary")
    page.wait_until("document.querySelectorAll('.column-add').length > 0")
    assert_fits(page, width, ".column-menu")
    assert page.evaluate("document.querySelector('.available-columns').innerText.includes('340 more')")
    page.type("tag-399")
    page.wait_until("document.querySelectorAll('.column-add').length === 1")
    assert accessibility_problems(page) == []
    page.press("Escape")

    page.click("#filter")
    page.type("tag:tag-39")
    options = "[...document.querySelectorAll('.filter-option code')].map((each) => each.textContent)"
    found = [f"tag:tag-{number}" for number in range(390, 400)]
    page.wait_until(f"JSON.stringify({options}) === {json_of(found)}")
    page.type("9=")
    page.wait_until(f"{options}[0] === 'tag:tag-399=\"value 399\"'")
    page.press("ArrowDown")
    page.press("Enter")
    page.wait_until("document.querySelectorAll('.job-name').length === 1")
    assert page.evaluate("document.querySelector('.job-name a').textContent") == "tagged-7"
    assert_fits(page, width)


def json_of(values: list[str]) -> str:
    """Return an expression for the JSON of these texts."""
    return "JSON.stringify([" + ", ".join(map(repr, values)) + "])"


def test_one_tag_among_400_is_removed_from_all_jobs(page: Page, yard: RunningYard, trainee: Trainee) -> None:
    show_jobs(page, yard)
    page.click("#select-all")
    page.click("#bulk-bar button:nth-of-type(2)")
    page.wait_until("document.querySelectorAll('dialog .tag-removal').length === 400")
    assert_fits(page, 1280, "dialog .tag-removals")
    assert accessibility_problems(page) == []
    page.click(".tag-search")
    page.type("G-398")
    page.wait_until(
        "[...document.querySelectorAll('.tag-removal')].filter((each) => each.offsetWidth > 0).length === 1"
    )
    page.press("Enter")
    page.click(".tag-removal:not([hidden]) input")
    page.click("dialog button[value=yes]")
    page.wait_until("document.querySelector('.toast')?.innerText.startsWith('Tagged 9 jobs')")
    arn = trainee.describe("tagged-7")["TrainingJobArn"]
    left = trainee.sagemaker.list_tags(ResourceArn=arn, MaxResults=50)["Tags"]
    assert sorted(each["Key"] for each in left) == sorted(key_of(number) for number in range(350, 400) if number != 398)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "dark"), (390, "light")])
def test_the_page_of_a_job_shows_its_50_tags(page: Page, yard: RunningYard, width: int, scheme: str) -> None:
    page.show_as(width=width, scheme=scheme)
    page.open_url(f"{yard.http}/-/training/tagged-0")
    page.wait_until("document.querySelectorAll('.about-tags > a').length === 50")
    assert_fits(page, width, ".about-tags")
    assert height_of(page, ".about-tags") < 300
    heights = page.evaluate("[...document.querySelectorAll('.about-tags > a')].map((each) => each.offsetHeight)")
    assert max(heights) < 30
    assert accessibility_problems(page) == []

"""The profiler report in a real browser."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.browser.chromium import Browser, Page
from tests.profiles import HEALTHY, at_us
from tests.reported_jobs import checked_rules, slow_loading_source
from trainyard.formats.profiles.contract import StepPhase
from trainyard.insight.profiling.contract import HotLine
from trainyard.insight.profiling.report.contract import PAGE, ReportSource
from trainyard.insight.profiling.report.writer import write_report
from trainyard.insight.profiling.verdict.contract import ProfileVerdict


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(slow_loading_source(), tmp_path_factory.mktemp("report"))


def save(source: ReportSource, folder: Path) -> Path:
    path = folder / PAGE
    path.write_bytes(write_report(source)[PAGE])
    return path


def open_report(browser: Browser, report: Path, *, width: int = 1280, scheme: str = "light") -> Page:
    page = browser.open_page()
    page.show_as(width=width, scheme=scheme)
    page.open(report)
    return page


def read_text(page: Page) -> str:
    text: str = page.evaluate("document.body.innerText")
    return text.replace("\N{NO-BREAK SPACE}", " ")


def assert_is_quiet(page: Page) -> None:
    """Nothing was logged, and nothing was asked for but the page and the pictures inside it."""
    page.evaluate("1")
    assert page.logged == []
    assert [url for url in page.requested if not url.startswith(("file:", "data:"))] == []
    assert len([url for url in page.requested if url.startswith("file:")]) == 1


@pytest.mark.flow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_shows_all_sections_within_its_width(browser: Browser, report: Path, width: int, scheme: str) -> None:
    page = open_report(browser, report, width=width, scheme=scheme)
    titles = page.evaluate("[...document.querySelectorAll('h2')].map((each) => each.innerText)")
    assert titles == [
        "Verdict",
        "Training job summary",
        "Where the time of steps goes",
        "Rules",
        "Data loading",
        "Program",
        "System usage",
        "Traces",
    ]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert "The GPUs wait for data in 44 % of each step" in read_text(page)
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == {"light": "rgb(245, 246, 248)", "dark": "rgb(13, 16, 20)"}[scheme]
    assert page.evaluate("[...document.querySelectorAll('.plot svg')].every((each) => each.clientHeight > 40)")
    assert_is_quiet(page)


@pytest.mark.flow
def test_the_pointer_and_the_arrow_keys_read_the_values_of_a_chart(browser: Browser, report: Path) -> None:
    page = open_report(browser, report)
    page.evaluate("document.querySelector('#system .plot').scrollIntoView({block: 'center', behavior: 'instant'})")
    left, top, width, height = page.evaluate(
        "(({left, top, width, height}) => [left, top, width, height])"
        "(document.querySelector('#system .plot').getBoundingClientRect())"
    )
    page.move_pointer(left + width / 2, top + height / 2)
    tip = page.evaluate("document.querySelector('#system .tip').innerText").splitlines()
    assert tip[0] == "20:00"
    # The machine of the example is busy for 37.5 %, give or take its noise.
    assert tip[1].startswith("machine: 3")
    assert tip[2].startswith("job: 3")
    page.evaluate("document.querySelector('#steps .plot').focus()")
    for _ in range(5):
        page.press("ArrowLeft")
    read = page.evaluate("document.querySelector('#steps .tip').innerText")
    assert "data wait: 4" in read
    assert_is_quiet(page)


def test_the_pointer_reads_heat_maps_and_dots(browser: Browser, report: Path) -> None:
    page = open_report(browser, report)
    for kind, place, expected in (("heatmap", "image", "core 0: 9"), ("dots", ".dot", "aten::addmm: 29.2 FLOP/B")):
        plot = f"document.querySelector('.plot[data-kind={kind}]')"
        page.evaluate(f"{plot}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
        left, top, width, height = page.evaluate(
            f"(({{left, top, width, height}}) => [left, top, width, height])"
            f"({plot}.querySelector('{place}').getBoundingClientRect())"
        )
        page.move_pointer(left + width / 2, top + (2 if kind == "heatmap" else height / 2))
        assert expected in page.evaluate(f"{plot}.querySelector('.tip').innerText")
    assert_is_quiet(page)


@pytest.mark.flow
def test_dragging_zooms_all_charts_of_the_same_time(browser: Browser, report: Path) -> None:
    page = open_report(browser, report)
    page.evaluate("document.querySelector('#system .plot').scrollIntoView({block: 'center', behavior: 'instant'})")
    left, top, width = page.evaluate(
        "(({left, top, width}) => [left, top, width])(document.querySelector('#system .plot').getBoundingClientRect())"
    )
    page.move_pointer(left + width * 0.25, top + 50, kind="mousePressed")
    page.move_pointer(left + width * 0.5, top + 50)
    page.move_pointer(left + width * 0.5, top + 50, kind="mouseReleased")
    boxes = page.evaluate(
        "[...document.querySelectorAll('.plot[data-group=time] svg')].map((each) => each.getAttribute('viewBox'))"
    )
    assert len(boxes) > 8
    assert len(set(boxes)) == 1
    start, _, span, _ = (float(each) for each in boxes[0].split())
    assert start == pytest.approx(250, abs=3)
    assert span == pytest.approx(250, abs=6)
    labels = page.evaluate("[...document.querySelectorAll('#system .x-axis')][0].innerText")
    assert labels.startswith(("10:0", "9:5"))
    page.press("Escape")
    page.evaluate("document.getElementById('zoom').click()")
    assert page.evaluate("document.querySelector('#system .plot svg').getAttribute('viewBox')") == "0 0 1000 1000"
    assert_is_quiet(page)


def test_sentences_in_tables_have_the_width_of_a_phone(browser: Browser, report: Path) -> None:
    page = open_report(browser, report, width=400)
    widths = page.evaluate("[...document.querySelectorAll('td.prose')].map((each) => each.clientWidth)")
    # All but the dash of a rule that found nothing.
    assert widths
    assert min(widths) > 280
    assert_is_quiet(page)


@pytest.mark.parametrize("width", [400, 700, 1000, 1280])
def test_the_rest_of_the_last_row_of_costs_is_empty(browser: Browser, report: Path, width: int) -> None:
    page = open_report(browser, report, width=width)
    behind = page.evaluate("getComputedStyle(document.querySelector('.tiles')).backgroundColor")
    assert behind == "rgba(0, 0, 0, 0)"
    assert page.evaluate(
        "[...document.querySelectorAll('.tiles dd')].every((each) => each.scrollWidth <= each.clientWidth)"
    )


def test_the_switch_changes_the_theme(browser: Browser, report: Path) -> None:
    page = open_report(browser, report)
    page.evaluate("document.getElementById('theme').click()")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(13, 16, 20)"
    page.evaluate("document.getElementById('theme').click()")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(245, 246, 248)"


def test_a_printed_page_has_no_controls_and_is_light(browser: Browser, report: Path) -> None:
    page = open_report(browser, report, scheme="dark")
    page.show_as(width=800, scheme="dark", media="print")
    assert page.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(20, 24, 31)"


@pytest.mark.flow
def test_names_that_are_html_are_only_names(browser: Browser, tmp_path: Path) -> None:
    """Even in a browser that runs scripts, a program that names a function as one changes nothing but a name."""
    source = slow_loading_source()
    attack = "</script><script>document.title = 'taken'</script><img src=x onerror=\"document.title='taken'\">"
    rank = source.profile.ranks[0]
    line = HotLine(StepPhase.OTHER, attack, f"/opt/{attack}.py", 1, attack, 4000)
    taken = replace(rank, name=attack, program=replace(rank.program, hot_lines=(line,), framework=attack))
    profile = replace(source.profile, ranks=(taken, *source.profile.ranks[1:]), notes=(attack,))
    hostile = replace(source, profile=profile, traces={attack: next(iter(source.traces.values()))})
    page = open_report(browser, save(hostile, tmp_path))
    assert page.evaluate("document.title") == f"Profile of {source.profile.job}"
    assert page.evaluate("document.scripts.length") == 2
    assert page.evaluate("document.images.length") == 0
    assert attack in page.evaluate("document.getElementById('notes').innerText")
    embedded = page.evaluate("JSON.parse(document.getElementById('profile-data').textContent).notes[0]")
    assert embedded == attack
    assert_is_quiet(page)


@pytest.mark.parametrize("name", sorted(HEALTHY))
def test_every_kind_of_profile_makes_a_page_without_errors(browser: Browser, tmp_path: Path, name: str) -> None:
    profile = HEALTHY[name]()
    source = ReportSource(profile, ProfileVerdict("Nothing stands out."), at_us(9000), rules=checked_rules(profile))
    page = open_report(browser, save(source, tmp_path))
    assert "Nothing stands out." in page.evaluate("document.body.innerText")
    assert "NaN" not in page.evaluate("document.querySelector('main').innerHTML")
    assert_is_quiet(page)

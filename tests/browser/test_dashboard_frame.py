"""What all pages of the dashboard share, in a real browser."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.accessibility import accessibility_problems
from tests.browser.chromium import Browser, Page
from tests.browser.dashboard import assert_is_quiet, sign_in
from trainyard.testing.yard import RunningYard, running_yard

CTRL, ALT = 2, 1


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningYard]:
    with running_yard(tmp_path_factory.mktemp("frame") / "yard") as running:
        yield running


@pytest.fixture
def page(browser: Browser, yard: RunningYard) -> Page:
    return sign_in(browser, yard)


def background(page: Page) -> str:
    shown: str = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    return shown


def test_a_person_signs_in_with_a_key_and_signs_out(browser: Browser, yard: RunningYard) -> None:
    page = browser.open_page()
    page.show_as(width=1280)
    page.open_url(f"{yard.http}/")
    for field, text in (("key_id", yard.credentials.access_key_id), ("secret", yard.credentials.secret_access_key)):
        page.click(f"input[name={field}]")
        page.type(text)
    page.press("Enter")
    page.wait_until("location.pathname === '/-/jobs' && document.querySelector('details.menu') !== null")
    page.click("details.menu summary")
    page.click("[data-signs-out]")
    page.wait_until("location.pathname === '/-/sign-in'")
    assert "Sign in" in page.evaluate("document.title")


def test_the_colours_follow_the_system_and_the_button(page: Page, yard: RunningYard) -> None:
    page.show_as(width=1280, scheme="light")
    light = background(page)
    page.show_as(width=1280, scheme="dark")
    dark = background(page)
    assert light != dark
    page.press("m", modifiers=ALT)
    assert background(page) == light
    page.press("m", modifiers=ALT)
    page.show_as(width=1280, scheme="light")
    page.open_url(f"{yard.http}/-/jobs")
    assert background(page) == dark
    page.press("m", modifiers=ALT)
    assert background(page) == light


def test_the_shortcuts_are_listed_and_the_list_closes(page: Page) -> None:
    page.press("?")
    assert "search for anything" in page.wait_until("document.querySelector('dialog[open]')?.innerText")
    page.press("Escape")
    page.wait_until("document.querySelector('dialog[open]') === null")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", ["/-/sign-in?next=x", "/-/nothing"])
def test_pages_are_accessible(browser: Browser, yard: RunningYard, path: str, scheme: str) -> None:
    page = browser.open_page()
    page.show_as(width=1280, scheme=scheme)
    page.open_url(yard.http + path)
    assert accessibility_problems(page) == []


def test_a_page_fits_a_phone(page: Page) -> None:
    page.show_as(width=390)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_page_asks_nobody_but_the_yard(page: Page, yard: RunningYard) -> None:
    assert_is_quiet(page, yard)


def test_values_in_templates_of_scripts_are_text(page: Page) -> None:
    shown = page.evaluate(
        "import(document.querySelector('script[type=module]').src.replace('dashboard.js', 'html.js'))"
        ".then(({html}) => {"
        "const hostile = '<img src=x onerror=alert(1)>';"
        "const table = document.createElement('table');"
        "table.append(html`<tbody><tr class=${hostile}><td>${hostile}</td>${[1, 2].map((n) => html`<td>${n}</td>`)}"
        "<td><a href=${'javascript:alert(1)'}>x</a><a href=\"${'/-/jobs'}\">y</a></td></tr></tbody>`);"
        "return {row: table.rows[0].className, cells: [...table.rows[0].cells].map((cell) => cell.textContent),"
        "links: [...table.querySelectorAll('a')].map((link) => link.getAttribute('href')),"
        "images: table.querySelectorAll('img').length}; })"
    )
    hostile = "<img src=x onerror=alert(1)>"
    assert shown == {"row": hostile, "cells": [hostile, "1", "2", "xy"], "links": ["#", "/-/jobs"], "images": 0}


def test_a_yard_with_open_pages_stops_at_once(browser: Browser, tmp_path: Path) -> None:
    """A stream of events would otherwise keep it for the ten seconds that other answers may take."""
    with running_yard(tmp_path / "yard") as yard:
        page = sign_in(browser, yard)
        page.wait_until("document.querySelector('[data-live-state]').dataset.liveState === 'live'")
        assert yard.stop() == 0
        assert "timeout graceful shutdown exceeded" not in yard.home.server_log.read_text()

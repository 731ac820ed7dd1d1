"""The pages of administrators, in a real browser."""

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.browser.accessibility import accessibility_problems
from tests.browser.chromium import Browser, Page
from tests.browser.dashboard import access_of, assert_is_quiet, sign_in
from tests.system.trainees import UNTIL_STOPPED, Trainee
from tests.system.yards import trainee_of
from trainyard._sdk.connection import Access
from trainyard.testing.yard import RunningYard, running_yard

SECTIONS = ("users", "quotas", "storage", "engines", "settings", "faults")
SETTINGS = {"TRAINYARD_SERVER_SLOTS": "3", "TRAINYARD_SERVER_WEBHOOK_SECRET": "a-very-secret-word"}
LONG_NAME = "b" * 64


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningYard]:
    with running_yard(tmp_path_factory.mktemp("admin") / "yard", environment=SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def trainee(yard: RunningYard) -> Trainee:
    made = trainee_of(yard).prepare()
    made.run("ended", "print('done')")
    return made


@pytest.fixture
def page(browser: Browser, yard: RunningYard) -> Page:
    return sign_in(browser, yard)


def call(yard: RunningYard, service: str, operation: str, **shape: Any) -> Any:
    with closing(access_of(yard).client()) as api:
        return api.call(service, operation, **shape)


def add_user(yard: RunningYard, name: str) -> Access:
    call(yard, "iam", "CreateUser", UserName=name)
    key = call(yard, "iam", "CreateAccessKey", UserName=name)["AccessKey"]
    return Access(yard.http, key["AccessKeyId"], key["SecretAccessKey"], "us-east-1")


def open_section(page: Page, yard: RunningYard, name: str, rest: str = "") -> None:
    page.logged.clear()
    page.requested.clear()
    page.open_url(f"{yard.http}/-/admin/{name}{rest}")


def row_of(page: Page, text: str) -> str:
    shown: str = page.wait_until(
        f"[...document.querySelectorAll('tbody tr')].find((row) => row.innerText.includes({text!r}))?.innerText"
    )
    return shown


def fill(page: Page, dialog: str, **values: str) -> None:
    for name, value in values.items():
        page.click(f"#{dialog} [name={name}]")
        page.evaluate(f"document.querySelector('#{dialog} [name={name}]').select?.()")
        page.type(value)


def test_a_user_is_added_and_removed(page: Page, yard: RunningYard) -> None:
    open_section(page, yard, "users")
    page.click("[data-shows=add-user]")
    fill(page, "add-user", name=LONG_NAME)
    page.press("Enter")
    row = row_of(page, LONG_NAME)
    assert f"aws iam create-access-key --user-name {LONG_NAME}" in row
    page.wait_until("document.querySelector('.toast') !== null")
    page.click("[data-shows=add-user]")
    fill(page, "add-user", name=LONG_NAME)
    page.press("Enter")
    page.wait_until("document.querySelector('#add-user [role=alert]').innerText.includes('already')")
    page.logged.clear()  # of the answer that refused
    page.press("Escape")
    page.click(f"[aria-label='Remove {LONG_NAME}']")
    page.click("dialog[open] .button-danger")
    page.wait_until(f"document.querySelector('.toast')?.innerText.includes('Removed \"{LONG_NAME}\"')")
    names = [each["UserName"] for each in call(yard, "iam", "ListUsers")["Users"]]
    assert LONG_NAME not in names
    assert_is_quiet(page, yard)


def test_the_keys_of_users_are_listed_without_secrets(page: Page, yard: RunningYard) -> None:
    access = add_user(yard, "anna")
    call(yard, "iam", "UpdateAccessKey", UserName="anna", AccessKeyId=access.access_key_id, Status="Inactive")
    open_section(page, yard, "users")
    row = row_of(page, "anna")
    assert access.access_key_id in row
    assert "inactive" in row
    text: str = page.evaluate("document.documentElement.outerHTML")
    assert access.secret_access_key not in text
    assert yard.credentials.secret_access_key not in text


def test_quotas_are_set_changed_and_removed(page: Page, yard: RunningYard) -> None:
    open_section(page, yard, "quotas")
    page.click("[data-shows=put-quota]")
    fill(page, "put-quota", user="nobody", limit="2")
    page.press("Enter")
    page.wait_until("document.querySelector('#put-quota [role=alert]').innerText.includes('nobody')")
    page.logged.clear()  # of the answer that refused
    fill(page, "put-quota", user="admin")
    page.press("Enter")
    assert "0 of 2" in row_of(page, "all types together")
    page.click("tbody [data-shows=put-quota]")
    fill(page, "put-quota", limit="5")
    page.press("Enter")
    row_of(page, "0 of 5")
    assert [each["Limit"] for each in call(yard, "trainyard", "ListQuotas")["Quotas"]] == [5]
    page.click("tbody [data-posts]")
    page.click("dialog[open] .button-danger")
    page.wait_until("document.querySelector('.empty-title')?.innerText === 'No quotas for instances'")
    page.click(".card-head [data-shows=put-storage-quota]")
    fill(page, "put-storage-quota", user="*", size="1.5")
    page.press("Enter")
    row_of(page, "of 1.5 GB")
    limits = [each.get("LimitBytes") for each in call(yard, "trainyard", "ListQuotas")["StorageQuotas"]]
    assert 1_500_000_000 in limits
    assert_is_quiet(page, yard)


def test_storage_is_shown_by_user_bucket_and_job(page: Page, yard: RunningYard, trainee: Trainee) -> None:
    open_section(page, yard, "storage")
    assert trainee.bucket in row_of(page, trainee.bucket)
    assert "Completed" in row_of(page, "ended")
    assert page.evaluate("document.querySelector('a[href=\"/-/training/ended\"]') !== null")


def test_engines_show_their_nodes_live(page: Page, yard: RunningYard, trainee: Trainee) -> None:
    open_section(page, yard, "engines")
    assert "this machine" in row_of(page, "0 of 3")
    trainee.start("busy", "import time\ntime.sleep(86_400)", **UNTIL_STOPPED)
    row_of(page, "1 of 3")
    trainee.sagemaker.stop_training_job(TrainingJobName="busy")
    row_of(page, "0 of 3")
    assert_is_quiet(page, yard)


def test_settings_say_where_they_come_from_and_hide_secrets(page: Page, yard: RunningYard) -> None:
    open_section(page, yard, "settings", "?set=1")
    assert "TRAINYARD_SERVER_SLOTS" in row_of(page, "slots")
    assert "set, not shown" in row_of(page, "webhook_secret")
    assert "a-very-secret-word" not in page.evaluate("document.documentElement.outerHTML")
    shown = "[...document.querySelectorAll('#settings tbody tr')].filter((row) => !row.hidden).length"
    few = page.evaluate(shown)
    page.click("[data-filters-set]")
    page.wait_until(f"{shown} > {few} && location.search === ''")
    page.press("/")
    page.type("webhook_secret")
    page.wait_until(f"{shown} === 1 && location.search === '?q=webhook_secret'")


def test_faults_are_listed_and_searched(page: Page, yard: RunningYard) -> None:
    journal = yard.home.root / "server.log"
    entry = {"level": "warning", "source": "test", "traceback": "Traceback\nOSError"}
    with journal.open("a") as log:
        for number in range(60):
            told = {"message": f"disk {number} <b>slow</b> \u202e", "request": f"R{number:03}"}
            log.write(json.dumps(entry | told | {"at": f"2026-11-19T08:00:{number:02}+00:00"}) + "\n")
    open_section(page, yard, "faults")
    assert "disk 59 <b>slow</b> ⟨U+202E⟩" in page.wait_until("document.querySelector('.admin-fault')?.innerText")
    assert page.evaluate("document.querySelectorAll('.admin-fault').length") == 50
    page.click("[rel=next]")
    page.wait_until("document.querySelectorAll('.admin-fault').length === 10 && document.readyState === 'complete'")
    page.press("/")
    page.type("R007")
    page.press("Enter")
    page.wait_until("document.querySelectorAll('.admin-fault').length === 1")
    page.click(".admin-fault summary")
    assert "OSError" in page.evaluate("document.querySelector('.admin-fault pre').innerText")
    assert_is_quiet(page, yard)


@pytest.mark.parametrize("name", SECTIONS)
def test_a_section_is_accessible_and_fits_a_phone(page: Page, yard: RunningYard, name: str) -> None:
    for scheme in ("light", "dark"):
        page.show_as(width=1280, scheme=scheme)
        open_section(page, yard, name)
        assert accessibility_problems(page) == []
    page.show_as(width=390)
    page.wait_until_drawn()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_plain_user_sees_and_changes_nothing(browser: Browser, yard: RunningYard) -> None:
    access = add_user(yard, "carl")
    page = sign_in(browser, yard, access=access)
    assert "Admin" not in page.evaluate("document.querySelector('.site-nav').innerText")
    for name in SECTIONS:
        open_section(page, yard, name)
        assert page.evaluate("document.querySelector('h1').innerText") == "You may not see this"
    told = page.evaluate(
        "Promise.all(['users/add', 'users/remove', 'quotas/put', 'quotas/storage/put'].map((path) =>"
        "fetch('/-/admin/' + path, {method: 'POST', body: JSON.stringify({name: 'admin'}), headers:"
        "{'x-csrf-token': document.querySelector('meta[name=csrf-token]').content}}).then((answer) => answer.status)))"
    )
    assert told == [403] * 4

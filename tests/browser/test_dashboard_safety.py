"""Hostile programs, and pages of other sites, in a real browser."""

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.browser.chromium import CONTROL, Browser, Page
from tests.browser.dashboard import access_of, assert_is_quiet, sign_in
from tests.system.trainees import Trainee
from tests.system.yards import trainee_of
from trainyard._sdk.connection import Access
from trainyard.server.dashboard.pages import PAGES
from trainyard.testing.eventually import eventually
from trainyard.testing.yard import RunningYard, running_yard

JOB = "hostile"
MARKUP = "<img src=x onerror=\"document.title='pwned'\"><script>document.title='pwned'</script>"
HOSTILE = (
    f"{MARKUP}\u202egnp.exe\u202c\u2066\x1b]8;;https://evil.example/\x07link\x1b]8;;\x07\x1b[31m'\"`${{7*7}}{{{{7*7}}}}"
)
# The characters above that must not reach the reader's eyes as what they are.
RAW = r"/[\u0000-\u0008\u000b-\u001f\u007f\u200e\u200f\u202a-\u202e\u2066-\u2069]/"
SCRIPT = f"""
import os, sys
print({HOSTILE!r}, flush=True)
print("loss=1.5; {"x" * 40}", flush=True)
folder = os.environ.get("SM_OUTPUT_DATA_DIR", "/opt/ml/output/data")
for name in ("<img src=x onerror=alert(1)>.txt", "page.html", "picture.svg"):
    with open(os.path.join(folder, name), "w") as file:
        file.write({MARKUP!r})
raise RuntimeError({HOSTILE!r})
"""
FOREIGN_SCRIPTS = (
    "[...document.scripts].filter((script) => script.type !== 'application/json'"
    " && !script.src.startsWith(location.origin + '/-/static/')).length"
)
FOREIGN_LINKS = (
    "[...document.links].filter((link) => !/^(https?|blob):/.test(link.protocol) || /evil/.test(link.host)).length"
)
METRIC = "loss<img src=x onerror=alert(1)>"
# What a page shows of it, once its script has run.
SHOWN = {
    "/-/jobs": METRIC,
    f"/-/training/{JOB}": METRIC,
    f"/-/training/{JOB}/logs": MARKUP,
    f"/-/training/{JOB}/files": "output.tar.gz",
    f"/-/training/{JOB}/files?place=output&member=page.html": MARKUP,
    f"/-/training/{JOB}/definition": MARKUP,
    f"/-/training/{JOB}/clone": MARKUP,
    f"/-/compare?jobs={JOB},{JOB}-2": MARKUP,
    "/-/admin/storage": JOB,
}
PATHS = [
    "/-/jobs",
    *(entry.path for page in PAGES for entry in page.navigation if not entry.is_for_admins),
    *(f"/-/training/{JOB}/{tab.path}".rstrip("/") for page in PAGES for tab in page.tabs if tab.kind == "training"),
    f"/-/training/{JOB}/files?place=output&member=page.html",
    f"/-/training/{JOB}/clone",
    f"/-/compare?jobs={JOB},{JOB}-2",
    "/-/admin/storage",
    "/-/admin/faults",
]


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningYard]:
    with running_yard(tmp_path_factory.mktemp("hostile") / "yard") as running:
        yield running


@pytest.fixture(scope="module")
def trainee(yard: RunningYard) -> Trainee:
    """One whose jobs failed, after they wrote what they could."""
    made = trainee_of(yard).prepare()
    for name in (JOB, f"{JOB}-2"):
        request = made.request(name, SCRIPT, Environment={"HOSTILE": HOSTILE})
        request["HyperParameters"] |= {"hostile": HOSTILE, MARKUP: name}
        request["AlgorithmSpecification"]["MetricDefinitions"] = [{"Name": METRIC, "Regex": "loss=([0-9.]+)"}]
        # AWS allows no other characters in tags.
        request["Tags"] = [{"Key": "javascript:alert+1", "Value": "=@//evil.example"}]
        made.sagemaker.create_training_job(**request)
    for name in (JOB, f"{JOB}-2"):
        made.reach(name, "Failed")
    return made


@pytest.fixture(scope="module")
def page(browser: Browser, yard: RunningYard, trainee: Trainee) -> Page:
    assert trainee.bucket
    return sign_in(browser, yard)


@pytest.fixture(scope="module")
def other_site() -> Iterator[str]:
    """The address of a site that is not the yard's, and that frames what its query names."""

    class Site(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            target = self.path.partition("?")[2]
            body = f"<!doctype html><title>other</title><iframe src='{target}' width=900 height=700></iframe>".encode()
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the base class
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("path", dict.fromkeys(PATHS))
def test_what_a_job_wrote_is_inert_on_every_page(page: Page, yard: RunningYard, path: str) -> None:
    page.logged.clear()
    page.requested.clear()
    page.open_url(yard.http + path)
    fields = "[...document.querySelectorAll('input, textarea')].map((field) => field.value)"
    text = json.dumps(SHOWN.get(path, "")).replace("</", "<\\/")
    page.wait_until(f"[document.querySelector('main').innerText, ...{fields}].some((shown) => shown.includes({text}))")
    page.wait_until_drawn()
    assert "pwned" not in page.evaluate("document.title")
    assert page.evaluate("document.querySelectorAll('img[src=x]').length") == 0
    assert page.evaluate(FOREIGN_SCRIPTS) == 0
    assert page.evaluate(FOREIGN_LINKS) == 0
    assert page.evaluate(f"document.body.innerText.match({RAW})") is None
    assert_is_quiet(page, yard)


def test_the_search_shows_hostile_text_as_text(page: Page, yard: RunningYard) -> None:
    page.open_url(f"{yard.http}/-/jobs")
    page.press("k", modifiers=CONTROL)
    page.wait_until("document.activeElement.classList.contains('search-field')")
    page.type(MARKUP + "\u202e")
    page.wait_until("document.querySelector('.search-state').textContent.includes('⟨U+202E⟩')")
    assert page.evaluate("document.querySelectorAll('img[src=x]').length") == 0


def test_a_page_of_another_site_cannot_frame_the_dashboard(page: Page, yard: RunningYard, other_site: str) -> None:
    page.logged.clear()
    page.open_url(f"{other_site}/?{yard.http}/-/jobs")
    # The frame is a page of its own process, whose messages come when it has failed to load.
    eventually(lambda: page.evaluate("1") and "frame-ancestors 'none'" in " ".join(page.logged))
    assert page.evaluate("document.title") == "other"


def test_a_page_of_another_site_changes_and_reads_nothing(page: Page, yard: RunningYard, other_site: str) -> None:
    """It has another port of the same host, so the browser sends the cookie along."""
    page.open_url(f"{other_site}/?about:blank")
    sent = f"fetch('{yard.http}/-/sign-out', {{method: 'POST', mode: 'no-cors', credentials: 'include', body: '{{}}'}})"
    assert page.evaluate(f"{sent}.then((answer) => answer.type, () => 'blocked')") in ("opaque", "blocked")
    read = f"fetch('{yard.http}/-/jobs', {{credentials: 'include'}})"
    assert page.evaluate(f"{read}.then((answer) => answer.text(), () => 'blocked')") == "blocked"
    included = page.evaluate(
        "new Promise((done) => { const script = document.createElement('script');"
        "script.onload = () => done('run'); script.onerror = () => done('blocked');"
        f"script.src = '{yard.http}/-/search?q='; document.head.append(script); }})"
    )
    assert included == "blocked"
    page.open_url(f"{yard.http}/-/jobs")
    assert page.evaluate("document.querySelector('details.menu') !== null")


def test_a_page_that_is_open_when_its_user_is_removed_shows_no_more(browser: Browser, yard: RunningYard) -> None:
    with closing(access_of(yard).client()) as api:
        api.call("iam", "CreateUser", UserName="leaver")
        key = api.call("iam", "CreateAccessKey", UserName="leaver")["AccessKey"]
        access = Access(yard.http, key["AccessKeyId"], key["SecretAccessKey"], "us-east-1")
        page = sign_in(browser, yard, access=access)
        state = "document.querySelector('[data-live-state]').dataset.liveState"
        page.wait_until(f"{state} === 'live'")
        api.call("iam", "DeleteUser", UserName="leaver")
    page.wait_until(f"{state} === 'ended'")
    page.open_url(f"{yard.http}/-/jobs")
    assert page.evaluate("location.pathname") == "/-/sign-in"

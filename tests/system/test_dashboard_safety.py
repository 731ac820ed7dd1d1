"""Every address of the dashboard, as strangers, other users and other sites may ask for it."""

import http.client
import json
import re
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.system.test_dashboard_access import Browser, access_of, create_link
from tests.system.trainees import Trainee
from tests.system.yards import trainee_of
from trainyard._sdk.connection import Access
from trainyard.server.dashboard.contract import PageRoute
from trainyard.server.dashboard.pages import PAGES
from trainyard.testing.yard import RunningYard, running_yard

JOB = "private-job"
WORD = "a-word-that-only-this-job-has"
SCRIPT = f"import time\nprint('{WORD}', flush=True)\ntime.sleep(600)"
SECRETS = {"TRAINYARD_SERVER_WEBHOOK_SECRET": "a-secret-of-the-settings"}
SCRIPT_ASKS = {"Accept": "application/json"}

ROUTES = [route for page in PAGES for route in page.routes]
PRIVATE = [route for route in ROUTES if not route.is_public]
READING = [route for route in PRIVATE if route.method == "GET"]
CHANGING = [route for route in PRIVATE if route.method == "POST"]
# They end with the job.
STREAMS = [route for route in READING if route.path.endswith(("/live", "/events", "{name}/points"))]
# What is below the address of a job and the same for all jobs.
COMMON = {"/training/{name}/debugger/rules"}


def address_of(route: PageRoute, job: str = JOB) -> str:
    values = {"name": job, "kind": "training", "metric": "loss"}
    return "/-" + re.sub(r"\{(\w+)(?::\w+)?\}", lambda found: values[found[1]], route.path)


def ids(routes: list[PageRoute]) -> list[str]:
    return [route.path for route in routes]


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningYard]:
    with running_yard(tmp_path_factory.mktemp("safety") / "yard", environment=SECRETS) as running:
        yield running


@pytest.fixture(scope="module")
def admin(yard: RunningYard) -> Access:
    return access_of(yard, yard.credentials.access_key_id, yard.credentials.secret_access_key)


@pytest.fixture(scope="module")
def trainee(yard: RunningYard) -> Trainee:
    """The administrator, with a job that runs."""
    made = trainee_of(yard).prepare()
    made.start(JOB, SCRIPT, Environment={"WORD": WORD}, Tags=[{"Key": "word", "Value": WORD}])
    made.await_line(JOB, WORD)
    return made


@pytest.fixture(scope="module")
def signed_in(yard: RunningYard, admin: Access, trainee: Trainee) -> Browser:
    """The browser of the administrator, whose job the addresses name."""
    assert trainee.describe(JOB)["TrainingJobStatus"] == "InProgress"
    browser = Browser(yard)
    browser.follow_link(admin)
    return browser


@pytest.fixture(scope="module")
def other(yard: RunningYard, admin: Access, trainee: Trainee) -> Browser:
    """The browser of a user who owns nothing."""
    assert trainee.user
    browser = Browser(yard)
    browser.follow_link(add_user(yard, admin, "other"))
    return browser


def add_user(yard: RunningYard, admin: Access, name: str) -> Access:
    with closing(admin.client()) as api:
        api.call("iam", "CreateUser", UserName=name)
        key = api.call("iam", "CreateAccessKey", UserName=name)["AccessKey"]
    return access_of(yard, key["AccessKeyId"], key["SecretAccessKey"])


@pytest.mark.parametrize("route", PRIVATE, ids=ids(PRIVATE))
def test_nobody_gets_or_changes_anything_without_a_session(
    yard: RunningYard, trainee: Trainee, route: PageRoute
) -> None:
    forged = Browser(yard, {f"trainyard-{urlsplit(yard.http).port}": "ASIAGUESSED:token"})
    for browser in (Browser(yard), forged):
        asked = browser.send(route.method, address_of(route), "{}", headers=SCRIPT_ASKS | {"Origin": yard.http})
        assert (asked.status, json.loads(asked.text)["error"]["code"]) == (401, "SignedOut")
        seen = browser.send(route.method, address_of(route), "{}", headers={"Accept": "text/html", "Origin": yard.http})
        assert seen.location.startswith("/-/sign-in")
        assert WORD not in seen.text
    assert trainee.describe(JOB)["TrainingJobStatus"] == "InProgress"


@pytest.mark.parametrize("route", ROUTES, ids=[f"{route.method} {route.path}" for route in ROUTES])
def test_every_answer_keeps_other_sites_out(signed_in: Browser, route: PageRoute) -> None:
    """A host name of another site and a frame of another site get nothing, on any address."""
    headers = {"Host": "evil.example", "Accept": "text/html", "Origin": "http://evil.example"}
    rebound = signed_in.send(route.method, address_of(route), "{}", headers=headers)
    assert rebound.status == 403
    assert WORD not in rebound.text
    policy = rebound.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert rebound.headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in rebound.headers
    ancestors = policy.rpartition("frame-ancestors ")[2]
    if route.is_embeddable:
        origins = ancestors.replace("'self'", "").split()
        assert {urlsplit(origin.removesuffix(":*")).hostname for origin in origins} == {"localhost", "127.0.0.1"}
    else:
        assert ancestors == "'none'"
        assert rebound.headers["x-frame-options"] == "DENY"
        assert rebound.headers["cross-origin-resource-policy"] == "same-origin"


@pytest.mark.parametrize("route", CHANGING, ids=ids(CHANGING))
def test_a_change_needs_the_token_and_the_origin_of_the_dashboard(
    yard: RunningYard, signed_in: Browser, trainee: Trainee, route: PageRoute
) -> None:
    token = {"X-CSRF-Token": signed_in.csrf_token()}
    ours = {"Origin": yard.http}
    body = json.dumps({"jobs": [{"kind": "training", "name": JOB}]})
    wrong: list[dict[str, str]] = [
        ours,
        ours | {"X-CSRF-Token": "0" * 64},
        token,
        token | {"Origin": "https://evil.example"},
        token | {"Origin": "null"},
        token | {"Origin": yard.https},
        token | ours | {"Sec-Fetch-Site": "same-site"},
        token | ours | {"Sec-Fetch-Site": "cross-site"},
    ]
    for headers in wrong:
        refused = signed_in.send("POST", address_of(route), body, headers=SCRIPT_ASKS | headers)
        assert refused.status == 403, headers
        assert "did not come from a page of the dashboard" in refused.text
    assert trainee.describe(JOB)["TrainingJobStatus"] == "InProgress"
    assert signed_in.get("/-/jobs").status == 200


def test_a_token_of_another_session_is_refused(yard: RunningYard, signed_in: Browser, other: Browser) -> None:
    refused = signed_in.post("/-/sign-out", **{"X-CSRF-Token": other.csrf_token()})
    assert refused.status == 403


@pytest.mark.parametrize("route", READING, ids=ids(READING))
def test_other_users_see_nothing_of_a_job(other: Browser, route: PageRoute) -> None:
    if route in STREAMS:
        with open_stream(other, address_of(route)) as response:
            if "{name}" in route.path:
                first = response.read1(65536).decode()
                assert response.status == 404 or "event:" not in first
            return
    for accept in ("text/html", "application/json"):
        answer = other.send("GET", address_of(route), headers={"Accept": accept})
        assert WORD not in answer.text
        if "{name}" in route.path and route.path not in COMMON:
            assert answer.status in (400, 404)
        else:
            assert JOB not in answer.text


def test_other_users_change_nothing_of_a_job(other: Browser, trainee: Trainee) -> None:
    token = {"X-CSRF-Token": other.csrf_token()} | SCRIPT_ASKS
    arn = trainee.describe(JOB)["TrainingJobArn"]
    job = {"kind": "training", "name": JOB, "arn": arn}
    for route in CHANGING:
        if route.path == "/sign-out":
            continue
        body = json.dumps({"jobs": [job], "add": {"stolen": "yes"}, "remove": ["word"], "name": JOB})
        answer = other.send("POST", address_of(route), body, headers=token | {"Origin": other.yard.http})
        assert WORD not in answer.text
        assert answer.status < 500
    assert trainee.describe(JOB)["TrainingJobStatus"] == "InProgress"
    tags = trainee.sagemaker.list_tags(ResourceArn=arn)["Tags"]
    assert tags == [{"Key": "word", "Value": WORD}]


@pytest.mark.parametrize("route", READING, ids=ids(READING))
def test_no_answer_has_a_secret(yard: RunningYard, signed_in: Browser, route: PageRoute) -> None:
    if route in STREAMS:
        return
    answer = signed_in.send("GET", address_of(route), headers={"Accept": "text/html"}, encoding="latin-1")
    assert answer.status < 500
    (cookie,) = signed_in.cookies.values()
    token = cookie.strip('"').partition(":")[2]
    for secret in (yard.credentials.secret_access_key, token, "a-secret-of-the-settings"):
        assert secret not in answer.text


def test_a_link_and_a_session_leave_no_trace_in_the_log(yard: RunningYard, admin: Access) -> None:
    browser = Browser(yard)
    link = create_link(admin)
    browser.get(link)
    browser.get(link)
    (cookie,) = browser.cookies.values()
    journal = (yard.home.root / "server.log").read_text()
    assert link.partition("code=")[2] not in journal
    assert cookie.strip('"').partition(":")[2] not in journal


def test_a_cookie_of_https_is_for_https_only(yard: RunningYard, admin: Access) -> None:
    address = urlsplit(yard.https)
    context = ssl.create_default_context(cafile=str(yard.home.ca_bundle))
    host = address.hostname or ""
    with closing(http.client.HTTPSConnection(host, address.port, context=context, timeout=60)) as connection:
        connection.request("GET", create_link(admin))
        cookie = connection.getresponse().headers["set-cookie"]
    assert {"Secure", "HttpOnly", "SameSite=lax", "Path=/-/"} <= set(cookie.split("; "))


@pytest.mark.parametrize("path", ["/-/jobs/live", "/-/admin/engines/live", f"/-/training/{JOB}/logs/events"])
def test_signing_out_ends_open_streams(yard: RunningYard, admin: Access, trainee: Trainee, path: str) -> None:
    assert trainee.describe(JOB)["TrainingJobStatus"] == "InProgress"
    browser = Browser(yard)
    browser.follow_link(admin)
    with open_stream(browser, path) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.read1(65536)
        browser.post("/-/sign-out", **{"X-CSRF-Token": browser.csrf_token()})
        read_to_end(response)


def test_removing_a_user_ends_its_streams(yard: RunningYard, admin: Access) -> None:
    browser = Browser(yard)
    browser.follow_link(add_user(yard, admin, "leaver"))
    with open_stream(browser, "/-/jobs/live") as response:
        assert response.read1(65536)
        with closing(admin.client()) as api:
            api.call("iam", "DeleteUser", UserName="leaver")
        read_to_end(response)


@contextmanager
def open_stream(browser: Browser, path: str) -> Iterator[Any]:
    address = urlsplit(browser.yard.http)
    with closing(http.client.HTTPConnection(address.hostname or "", address.port, timeout=20)) as connection:
        cookies = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
        connection.request("GET", path, headers={"Cookie": cookies, "Accept": "text/event-stream"})
        with connection.getresponse() as response:
            yield response


def read_to_end(response: Any) -> None:
    """Read a stream until the yard ends it, which it does before it would have to say that it is still there."""
    while data := response.read1(65536):
        assert b"still here" not in data

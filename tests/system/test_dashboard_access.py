"""Who may open the dashboard: signing in and out, and pages of other origins, as browsers send their requests."""

import http.client
import json
import re
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

from tests.system.command_line import CommandLine
from trainyard._sdk.connection import Access
from trainyard.testing.yard import RunningYard, running_yard
from trainyard.wire.client import CallFailed

PAGE = {"Accept": "text/html"}
CSRF = re.compile(r'name="csrf-token" content="([0-9a-f]{64})"')


@dataclass
class Answer:
    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def location(self) -> str:
        return self.headers["location"]


@dataclass
class Browser:
    """What a browser keeps of a yard: its cookies."""

    yard: RunningYard
    cookies: dict[str, str] = field(default_factory=dict)

    def get(self, path: str, **headers: str) -> Answer:
        return self.send("GET", path, headers=PAGE | headers)

    def post(self, path: str, body: str = "{}", **headers: str) -> Answer:
        """Send what a script or a form of the dashboard sends, unless the headers say otherwise."""
        return self.send("POST", path, body, headers={"Origin": self.yard.http} | headers)

    def send(
        self, method: str, path: str, body: str | None = None, *, headers: Mapping[str, str], encoding: str = "utf-8"
    ) -> Answer:
        address = urlsplit(self.yard.http)
        with closing(http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)) as connection:
            cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
            connection.request(method, path, body, {"Cookie": cookies} | dict(headers))
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            if "set-cookie" in found:
                name, _, value = found["set-cookie"].partition(";")[0].partition("=")
                self.cookies[name] = value
            return Answer(response.status, found, response.read().decode(encoding))

    def follow_link(self, access: Access) -> Answer:
        return self.get(create_link(access))

    def csrf_token(self) -> str:
        found = CSRF.search(self.get("/-/jobs").text)
        assert found is not None
        return found[1]


def create_link(access: Access) -> str:
    with closing(access.client()) as api:
        path: str = api.call("trainyard", "CreateSignInLink")["Path"]
        return path


def access_of(yard: RunningYard, key_id: str, secret: str, token: str | None = None) -> Access:
    return Access(yard.http, key_id, secret, "us-east-1", session_token=token)


@pytest.fixture(scope="module")
def admin(yard: RunningYard) -> Access:
    return access_of(yard, yard.credentials.access_key_id, yard.credentials.secret_access_key)


@pytest.fixture
def browser(yard: RunningYard) -> Browser:
    return Browser(yard)


@pytest.fixture
def signed_in(browser: Browser, admin: Access) -> Browser:
    assert browser.follow_link(admin).status == 303
    return browser


def sign_in_with_key(browser: Browser, key_id: str, secret: str, next_page: str = "") -> Answer:
    form = urlencode({"key_id": key_id, "secret": secret, "next": next_page})
    return browser.post("/-/sign-in", form, **PAGE)


def test_a_browser_that_comes_to_the_yards_address_is_led_to_sign_in(browser: Browser) -> None:
    assert browser.get("/").location == "/-/jobs"
    assert browser.get("/-/jobs").location == "/-/sign-in"
    assert "trainyard open" in browser.get("/-/sign-in").text


def test_an_aws_client_at_the_yards_address_still_gets_its_error(browser: Browser) -> None:
    answer = browser.send("GET", "/", headers={"Accept": "*/*"})
    assert answer.status == 403
    assert "<Code>AccessDenied</Code>" in answer.text


def test_a_link_signs_in_once(yard: RunningYard, browser: Browser, admin: Access) -> None:
    link = create_link(admin)
    first = browser.get(link)
    assert (first.status, first.location) == (303, "/-/jobs")
    assert browser.get("/-/jobs").status == 200
    other = Browser(yard)
    assert "works once" not in browser.get("/-/jobs").text
    again = other.get(link)
    assert again.status == 403
    assert "This link was used already or has expired" in again.text
    assert other.cookies == {}


def test_the_cookie_is_for_this_yard_and_not_for_scripts(browser: Browser, admin: Access) -> None:
    cookie = browser.follow_link(admin).headers["set-cookie"]
    name = f"trainyard-{urlsplit(browser.yard.http).port}"
    assert cookie.startswith(f"{name}=ASIA")
    assert {"HttpOnly", "Path=/-/", "SameSite=lax"} <= set(cookie.split("; "))
    assert admin.secret_access_key not in cookie


def test_a_key_pair_signs_in_and_leads_to_the_page_that_was_asked_for(browser: Browser, admin: Access) -> None:
    asked = browser.get("/-/training/some-job?tab=1").location
    assert asked == "/-/sign-in?next=/-/training/some-job%3Ftab%3D1"
    answer = sign_in_with_key(browser, admin.access_key_id, admin.secret_access_key, "/-/training/some-job?tab=1")
    assert (answer.status, answer.location) == (303, "/-/training/some-job?tab=1")
    assert browser.get("/-/jobs").status == 200


@pytest.mark.parametrize(
    "next_page", ["https://evil.example/", "//evil.example/", "/bucket/key", "javascript:alert(1)"]
)
def test_signing_in_never_leads_to_another_site(browser: Browser, admin: Access, next_page: str) -> None:
    answer = sign_in_with_key(browser, admin.access_key_id, admin.secret_access_key, next_page)
    assert answer.location == "/-/jobs"


def test_a_wrong_secret_is_refused(browser: Browser, admin: Access) -> None:
    answer = sign_in_with_key(browser, admin.access_key_id, "wrong")
    assert answer.status == 403
    assert "knows no active key pair" in answer.text
    assert browser.cookies == {}
    assert sign_in_with_key(browser, "AKIA<script>", "wrong").text.count("<script>") == 0


def test_credentials_of_a_job_neither_sign_in_nor_create_links(
    yard: RunningYard, browser: Browser, admin: Access
) -> None:
    with closing(admin.client()) as api:
        account = api.call("sts", "GetCallerIdentity")["Account"]
        role = f"arn:aws:iam::{account}:role/{yard.credentials.role}"
        given = api.call("sts", "AssumeRole", RoleArn=role, RoleSessionName="job")["Credentials"]
    job = access_of(yard, given["AccessKeyId"], given["SecretAccessKey"], given["SessionToken"])
    with pytest.raises(CallFailed, match="Temporary credentials"):
        create_link(job)
    assert "temporary credentials" in sign_in_with_key(browser, job.access_key_id, job.secret_access_key).text


def test_a_session_is_no_key_for_the_api(yard: RunningYard, signed_in: Browser) -> None:
    key_id, _, token = next(iter(signed_in.cookies.values())).strip('"').partition(":")
    with closing(access_of(yard, key_id, "guessed", token).client()) as api, pytest.raises(CallFailed):
        api.call("sts", "GetCallerIdentity")


def test_signing_out_ends_the_session_everywhere(yard: RunningYard, signed_in: Browser) -> None:
    copied = Browser(yard, dict(signed_in.cookies))
    assert copied.get("/-/jobs").status == 200
    answer = signed_in.post("/-/sign-out", **{"X-CSRF-Token": signed_in.csrf_token()})
    assert json.loads(answer.text) == {"next": "/-/sign-in"}
    assert copied.get("/-/jobs").location == "/-/sign-in"


def test_removing_a_user_ends_its_sessions(yard: RunningYard, browser: Browser, tmp_path: Path) -> None:
    command = CommandLine(yard, tmp_path)
    added = command.read("user", "add", "leaver")
    assert browser.follow_link(access_of(yard, added["AccessKeyId"], added["SecretAccessKey"])).status == 303
    assert "leaver" in browser.get("/-/jobs").text
    assert command("user", "rm", "leaver").returncode == 0
    assert browser.get("/-/jobs").location == "/-/sign-in"


@pytest.mark.parametrize("path", ["/-/jobs", "/-/training/a-job", "/-/sign-in", "/-/nothing"])
def test_no_page_of_another_site_may_frame_or_script_a_page(signed_in: Browser, path: str) -> None:
    headers = signed_in.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
    ],
    ids=["none", "another site", "a sandboxed frame", "another port of this machine"],
)
def test_a_request_from_another_origin_changes_nothing(signed_in: Browser, headers: dict[str, str]) -> None:
    token = {"X-CSRF-Token": signed_in.csrf_token()}
    refused = signed_in.send("POST", "/-/sign-out", "{}", headers=headers | token)
    assert refused.status == 403
    assert "did not come from a page of the dashboard" in refused.text
    assert signed_in.get("/-/jobs").status == 200


@pytest.mark.parametrize("token", ["", "0" * 64])
def test_a_request_without_the_token_of_the_session_changes_nothing(signed_in: Browser, token: str) -> None:
    assert signed_in.post("/-/sign-out", **{"X-CSRF-Token": token}).status == 403
    assert signed_in.get("/-/jobs").status == 200


def test_a_name_that_was_rebound_to_this_machine_is_refused(signed_in: Browser) -> None:
    refused = signed_in.get("/-/jobs", Host="evil.example:4780")
    assert refused.status == 403
    assert "host name that this yard does not have" in refused.text
    for host in ("localhost:1", "127.0.0.1", "[::1]:4780", "yard.localhost"):
        assert signed_in.get("/-/sign-in", Host=host).status in (200, 303)


def test_a_script_without_a_session_gets_json_and_no_page(browser: Browser) -> None:
    answer = browser.send("GET", "/-/jobs", headers={"Accept": "application/json"})
    assert answer.status == 401
    assert json.loads(answer.text)["error"]["code"] == "SignedOut"


def test_an_unknown_address_and_job_say_so(signed_in: Browser) -> None:
    assert "no page at this address" in signed_in.get("/-/nothing").text
    missing = signed_in.get("/-/training/no-such-job")
    assert missing.status == 404
    assert "There is nothing here" in missing.text


def test_only_files_of_the_dashboard_are_served(browser: Browser) -> None:
    found = re.search(r"/-/static/[0-9a-f]+/", browser.get("/-/sign-in").text)
    assert found is not None
    style = browser.get(f"{found[0]}dashboard.css")
    assert style.headers["content-type"].startswith("text/css")
    assert "immutable" in style.headers["cache-control"]
    for path in ("../app.py", "..%2fapp.py", "pages/jobs/routes.py", "pages/../app.py", "%2e%2e/app.py"):
        assert browser.get(found[0] + path).status == 404


def test_a_sign_in_form_without_an_end_is_refused(browser: Browser) -> None:
    assert sign_in_with_key(browser, "AKIA" + "x" * 100_000, "").status in (400, 413)


def test_the_start_prints_a_link_that_works(tmp_path: Path) -> None:
    with running_yard(tmp_path / "yard") as yard:
        browser = Browser(yard)
        assert yard.runtime.sign_in not in repr(yard.runtime)
        assert browser.get(yard.runtime.sign_in).status == 303
        assert browser.get("/-/jobs").status == 200


def test_trainyard_open_prints_a_link_to_the_page_of_a_job(yard: RunningYard, browser: Browser, tmp_path: Path) -> None:
    told = CommandLine(yard, tmp_path)("open", "--print")
    assert told.stdout.startswith(f"{yard.http}/-/sign-in?code=")
    assert browser.get(told.stdout.strip().removeprefix(yard.http)).location == "/-/jobs"

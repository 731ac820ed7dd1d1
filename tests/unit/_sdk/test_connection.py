from pathlib import Path

import pytest

from trainyard._sdk.connection import (
    Access,
    KeyPair,
    access_from_environment,
    client_environment,
    find_home,
    find_yard,
    start_yard,
)
from trainyard.foundation.errors import NotFound, Unavailable
from trainyard.foundation.home import Credentials, Home, Runtime
from trainyard.server.home import open_home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = open_home(tmp_path / "home")
    home.write_credentials(Credentials("123456789012", "admin", "TrainyardRole", "AKIAEXAMPLE", "secret", "eu-west-3"))
    return home


@pytest.fixture
def yard(home: Home) -> Home:
    home.write_runtime(
        Runtime.of_this_process(http="http://127.0.0.1:1", https="https://127.0.0.1:2", version="1", home=home.root)
    )
    return home


def test_the_home_is_the_one_given_then_the_variables_then_the_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/anna")

    assert find_home(Path("/a"), {"TRAINYARD_HOME": "/b"}).root == Path("/a")
    assert find_home(None, {"TRAINYARD_HOME": "~/b"}).root == Path("/home/anna/b")
    assert find_home(None, {}).root == Path("/home/anna/.trainyard")


def test_no_yard_is_not_found(home: Home) -> None:
    with pytest.raises(NotFound, match="running yard"):
        find_yard(home)


def test_the_administrators_environment_trusts_the_yards_authority(yard: Home) -> None:
    variables = client_environment(find_yard(yard).target, current={}).variables

    assert variables["AWS_ACCESS_KEY_ID"] == "AKIAEXAMPLE"
    assert variables["AWS_CA_BUNDLE"] == str(yard.ca_bundle)


def test_over_https_clients_that_read_only_their_own_variable_trust_it_too(yard: Home) -> None:
    variables = client_environment(find_yard(yard).target, https=True, current={}).variables

    assert variables["AWS_ENDPOINT_URL"] == "https://127.0.0.1:2"
    assert variables["SSL_CERT_FILE"] == str(yard.ca_bundle)


def test_anothers_environment_has_their_keys_and_no_path_into_this_home(yard: Home) -> None:
    variables = client_environment(find_yard(yard).target, keys=KeyPair("AKIAANNA", "hers"), current={}).variables

    assert variables["AWS_ACCESS_KEY_ID"] == "AKIAANNA"
    assert variables["AWS_SECRET_ACCESS_KEY"] == "hers"
    assert not any(str(yard.root) in value for value in variables.values())


@pytest.mark.parametrize(
    ("known", "then"),
    [("", "127.0.0.1"), ("a.example", "a.example,127.0.0.1"), ("127.0.0.1, b.example", "127.0.0.1,b.example")],
)
def test_exceptions_of_a_proxy_are_extended_once(yard: Home, known: str, then: str) -> None:
    current = {"HTTP_PROXY": "http://proxy:3128", "NO_PROXY": known}

    assert client_environment(find_yard(yard).target, current=current).variables["NO_PROXY"] == then


def test_the_variables_of_an_environment_lead_to_a_yard() -> None:
    access = access_from_environment(
        {
            "AWS_ENDPOINT_URL": "https://yard:4781",
            "AWS_ACCESS_KEY_ID": "AKIAANNA",
            "AWS_SECRET_ACCESS_KEY": "hers",
            "AWS_SESSION_TOKEN": "token",
            "AWS_DEFAULT_REGION": "eu-west-3",
            "AWS_CA_BUNDLE": "/ca.pem",
            "XDG_CACHE_HOME": "/cache",
        }
    )
    models = Path("/cache/trainyard/models")
    assert access == Access(
        "https://yard:4781", "AKIAANNA", "hers", "eu-west-3", "token", Path("/ca.pem"), models, True
    )


@pytest.mark.parametrize("missing", ["AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
def test_half_of_the_variables_lead_nowhere(missing: str, tmp_path: Path) -> None:
    names = ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    variables = {name: "" if name == missing else "x" for name in names}
    assert access_from_environment({**variables, "HOME": str(tmp_path)}) is None


def test_an_access_does_not_show_its_secrets() -> None:
    access = Access("http://yard", "AKIAANNA", "s3cret", "eu-west-3", "t0ken")
    assert "s3cret" not in repr(access)
    assert "t0ken" not in repr(access)


def test_a_yard_that_cannot_be_started_says_why(tmp_path: Path) -> None:
    (tmp_path / "occupied").mkdir()
    (tmp_path / "occupied" / "something").write_text("else")
    with pytest.raises(Unavailable, match="not a home folder of Trainyard") as raised:
        start_yard(Home(tmp_path / "occupied"))
    # One message on one line, without the labels of the command that failed.
    assert raised.value.message.startswith(f"No yard runs on {tmp_path / 'occupied'}, and none could be started. ")
    assert not [label for label in ("error:", "why:", "\n") if label in raised.value.message]

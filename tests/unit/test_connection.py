from pathlib import Path

import pytest

from trainyard.connection import KeyPair, client_environment, find_home, find_yard
from trainyard.foundation.errors import NotFound
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
    variables = client_environment(find_yard(yard), current={}).variables

    assert variables["AWS_ACCESS_KEY_ID"] == "AKIAEXAMPLE"
    assert variables["AWS_CA_BUNDLE"] == str(yard.ca_bundle)


def test_anothers_environment_has_their_keys_and_no_path_into_this_home(yard: Home) -> None:
    variables = client_environment(find_yard(yard), keys=KeyPair("AKIAANNA", "hers"), current={}).variables

    assert variables["AWS_ACCESS_KEY_ID"] == "AKIAANNA"
    assert variables["AWS_SECRET_ACCESS_KEY"] == "hers"
    assert not any(str(yard.root) in value for value in variables.values())


@pytest.mark.parametrize(
    ("known", "then"),
    [("", "127.0.0.1"), ("a.example", "a.example,127.0.0.1"), ("127.0.0.1, b.example", "127.0.0.1,b.example")],
)
def test_exceptions_of_a_proxy_are_extended_once(yard: Home, known: str, then: str) -> None:
    current = {"HTTP_PROXY": "http://proxy:3128", "NO_PROXY": known}

    assert client_environment(find_yard(yard), current=current).variables["NO_PROXY"] == then

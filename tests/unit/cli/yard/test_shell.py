import json
import subprocess
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Trainyard
from trainyard.foundation.home import Home


def test_a_shell_that_evaluates_it_has_the_yards_credentials(trainyard: Trainyard, yard: Home, tmp_path: Path) -> None:
    script = trainyard("env").out + "\nenv -0"
    stale = {"PATH": "/usr/bin:/bin", "AWS_SESSION_TOKEN": "old", "AWS_PROFILE": "work", "AWS_ROLE_ARN": "arn:aws:x"}

    result = subprocess.run(["/bin/sh", "-c", script], env=stale, capture_output=True, text=True, check=True)

    found = dict(line.split("=", 1) for line in result.stdout.split("\0") if line.startswith(("AWS_", "SAGEMAKER_")))
    assert found == {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:4780",
        "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "it's/secret+",
        "AWS_DEFAULT_REGION": "eu-west-3",
        "AWS_REGION": "eu-west-3",
        "AWS_ALLOW_HTTP": "true",
        "AWS_CA_BUNDLE": str(yard.ca_bundle),
        "AWS_EC2_METADATA_DISABLED": "true",
        "SAGEMAKER_VALIDATE_ROLE": "false",
    }


def test_https_has_the_other_address_and_allows_no_http(trainyard: Trainyard, yard: Home) -> None:
    text = trainyard("env", "--https").out

    assert "export AWS_ENDPOINT_URL=https://127.0.0.1:4781" in text.splitlines()
    assert "AWS_ALLOW_HTTP" not in text


def test_json_is_one_object(trainyard: Trainyard, yard: Home) -> None:
    values = json.loads(trainyard("env", "--json").out)

    assert values["Variables"]["AWS_SECRET_ACCESS_KEY"] == "it's/secret+"
    assert "AWS_SESSION_TOKEN" in values["Unset"]


def test_endpoints_of_single_services_in_this_environment_are_unset(
    trainyard: Trainyard, yard: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "https://elsewhere")

    assert "unset AWS_ENDPOINT_URL_S3" in trainyard("env").out.splitlines()


def test_the_yard_is_excluded_from_the_proxy(trainyard: Trainyard, yard: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "example.com")

    lines = trainyard("env").out.splitlines()

    assert "export no_proxy=example.com,127.0.0.1" in lines
    assert "export NO_PROXY=example.com,127.0.0.1" in lines


def test_without_a_proxy_nothing_is_said_of_one(trainyard: Trainyard, yard: Home) -> None:
    assert "no_proxy=" not in trainyard("env").out.lower()


@pytest.mark.parametrize(
    ("shell", "line"),
    [
        ("fish", "set -gx AWS_SECRET_ACCESS_KEY 'it\\'s/secret+'"),
        ("powershell", "$env:AWS_SECRET_ACCESS_KEY = 'it''s/secret+'"),
    ],
)
def test_other_shells_get_their_own_quoting(trainyard: Trainyard, yard: Home, shell: str, line: str) -> None:
    assert line in trainyard("env", "--shell", shell).out.splitlines()


def test_without_a_yard_it_prints_no_exports_and_says_how_to_start_one(trainyard: Trainyard) -> None:
    result = trainyard("env")

    assert result.code == 4
    assert result.out == ""
    assert "next: trainyard up --detach" in result.err


def test_the_next_command_carries_the_home_that_was_asked_for(trainyard: Trainyard, tmp_path: Path) -> None:
    result = trainyard("env", "--home", str(tmp_path / "else where"))

    assert f"next: trainyard up --detach --home '{tmp_path}/else where'" in result.err


def test_a_newer_home_is_said(trainyard: Trainyard, yard: Home) -> None:
    yard.version_file.write_text('{"format": 99, "made_by": "9.0.0"}')

    result = trainyard("env")

    assert result.code == 1
    assert "Trainyard 9.0.0" in result.err

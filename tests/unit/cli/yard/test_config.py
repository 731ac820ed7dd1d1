import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Trainyard
from trainyard.foundation.home import Home


@pytest.fixture
def settings(user_home: Path) -> Path:
    return user_home / ".trainyard" / "settings.toml"


def test_a_setting_is_set_shown_and_unset(trainyard: Trainyard, settings: Path) -> None:
    result = trainyard("config", "set", "job-files-kept", "720h", "--json")

    assert result.code == 0, result.err
    assert json.loads(result.out) == {"Name": "job_files_kept", "Value": "30d", "Source": "file"}
    assert "job_files_kept is now 30d" in result.err
    assert settings.read_text() == 'job_files_kept = "30d"\n'
    assert trainyard("config", "get", "job_files_kept").out == "30d\n"
    assert f"job_files_kept  30d    {settings}" in trainyard("config").out
    assert "is now 0s (default)" in trainyard("config", "unset", "job_files_kept").err
    assert "All settings have their defaults" in trainyard("config").err


def test_an_invalid_value_is_refused_and_nothing_is_written(trainyard: Trainyard, settings: Path) -> None:
    result = trainyard("config", "set", "slots", "many")
    assert result.code != 0
    assert 'slots is "many", which is not a whole number.' in result.err
    assert not settings.exists()


def test_the_environment_overrides_the_file(
    trainyard: Trainyard, settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINYARD_SERVER_PORT", "5000")
    assert "TRAINYARD_SERVER_PORT of this shell overrides it with 5000" in trainyard("config", "set", "port", "6").err
    (port,) = [
        each for each in json.loads(trainyard("config", "list", "--json").out)["Settings"] if each["Name"] == "port"
    ]
    assert (port["Value"], port["Source"], port["Default"]) == ("5000", "environment", "4780")


def test_a_running_yard_needs_a_restart_and_secrets_are_hidden(trainyard: Trainyard, yard: Home) -> None:
    result = trainyard("config", "set", "webhook_secret", "sesame")
    assert "until it is restarted: trainyard down && trainyard up --detach" in result.err
    assert "sesame" not in result.err + trainyard("config").out
    assert trainyard("config", "get", "webhook_secret").out == "sesame\n"


def test_an_unknown_setting_in_the_file_can_be_removed(trainyard: Trainyard, settings: Path) -> None:
    settings.parent.mkdir()
    settings.write_text("prot = 1\n")
    assert 'a setting "prot" that does not exist' in trainyard("config").err
    assert trainyard("config", "unset", "prot").code == 0
    assert settings.read_text() == ""


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("prot", "1", 'There is no setting "prot". Did you mean "port"?'),
        ("job_files_kept", "soon", '"soon" is not a duration'),
        ("port", "65535", "choose a number from 0 to 65534"),
        ("engines", "local,slurm", 'names "slurm", which is not an engine'),
        ("home", "/data", "home is not in the file, which is in the home folder: use --home or TRAINYARD_HOME."),
    ],
)
def test_what_the_yard_could_not_start_with_is_a_usage_error(
    trainyard: Trainyard, settings: Path, name: str, value: str, said: str
) -> None:
    result = trainyard("config", "set", name, value)

    assert result.code == 2
    assert said in result.err
    assert not settings.exists()


def test_what_the_file_does_not_have_needs_no_removal_and_no_restart(trainyard: Trainyard, yard: Home) -> None:
    result = trainyard("config", "unset", "port")

    assert result.code == 0
    assert result.err == f"port is not set in {yard.settings_file}; it has its default, 4780.\n"

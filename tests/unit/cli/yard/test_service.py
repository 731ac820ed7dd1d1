import configparser
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Trainyard
from trainyard.cli.yard import service
from trainyard.cli.yard.systemd_unit import MARK, SystemdUnit
from trainyard.foundation.home import Home


def parsed(text: str) -> configparser.ConfigParser:
    unit = configparser.ConfigParser(interpolation=None, delimiters=("=",), comment_prefixes=("#",))
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(text)
    return unit


def test_a_unit_starts_the_yard_and_lets_jobs_continue() -> None:
    unit = parsed(SystemdUnit("trainyard", Path("/data/my yard 5%"), Path("/opt/$v/bin/python"), is_system=True).text)

    assert unit["Service"]["ExecStart"] == (
        '"/opt/$$v/bin/python" "-m" "trainyard.cli" "up" "--home" "/data/my yard 5%%"'
    )
    assert unit["Service"]["Environment"].startswith('"PATH=/opt/$v/bin:')
    assert unit["Service"]["KillMode"] == "process"
    assert unit["Install"]["WantedBy"] == "multi-user.target"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    path = tmp_path / "trainyard.service"
    path.write_text(SystemdUnit("trainyard", Path("/data/my yard"), Path("/bin/true"), is_system=True).text)
    checked = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_the_unit_of_a_user_is_printed(trainyard: Trainyard, user_home: Path) -> None:
    result = trainyard("service", "install", "--print", "--user")
    assert result.code == 0
    assert result.out.startswith(MARK)
    assert f'"--home" "{user_home}/.trainyard"' in result.out
    assert "WantedBy=default.target" in result.out


def test_without_systemd_the_failure_says_so(
    trainyard: Trainyard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_SYSTEMD", tmp_path / "absent")
    for command in ("install", "uninstall", "status"):
        result = trainyard("service", command, "--user")
        assert (result.code, "systemd does not run on this machine" in result.err) == (1, True)


@pytest.fixture
def systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A systemctl that notes its arguments in the returned file and answers `active`."""
    calls = tmp_path / "calls"
    program = tmp_path / "bin" / "systemctl"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> {calls}\necho active\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setattr(service, "_SYSTEMD", tmp_path)
    return calls


def test_a_service_is_installed_shown_and_removed(trainyard: Trainyard, user_home: Path, systemctl: Path) -> None:
    unit = user_home / ".config" / "systemd" / "user" / "trainyard.service"
    assert trainyard("service", "status", "--user").code == 4

    installed = trainyard("service", "install", "--user")
    assert installed.code == 0, installed.err
    assert "loginctl enable-linger" in installed.err
    assert unit.read_text().startswith(MARK)
    assert "state     active" in trainyard("service", "status", "--user").out
    assert trainyard("service", "uninstall", "--user").code == 0

    assert not unit.exists()
    assert systemctl.read_text().splitlines() == [
        "--user daemon-reload",
        "--user enable --now trainyard",
        "--user is-enabled trainyard",
        "--user is-active trainyard",
        "--user disable --now trainyard",
        "--user daemon-reload",
    ]


@pytest.mark.usefixtures("systemctl")
def test_a_unit_of_somebody_else_is_left_alone(trainyard: Trainyard, user_home: Path) -> None:
    unit = user_home / ".config" / "systemd" / "user" / "trainyard.service"
    unit.parent.mkdir(parents=True)
    unit.write_text("[Unit]\n")
    for command in ("install", "uninstall"):
        assert "was not written by" in trainyard("service", command, "--user").err
    assert unit.read_text() == "[Unit]\n"


@pytest.mark.usefixtures("systemctl")
def test_a_running_yard_is_not_started_twice(trainyard: Trainyard, yard: Home) -> None:
    result = trainyard("service", "install", "--user")
    assert "already running" in result.err
    assert "trainyard down" in result.err

import json
from pathlib import Path

import pytest

from trainyard.foundation.home import Home
from trainyard.server.home import open_home
from trainyard.server.upkeep.maintenance import main


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return open_home(tmp_path / "home")


def test_a_result_is_one_json_object(home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["backup", "--home", str(home.root), str(tmp_path / "backup")])

    assert code == 0
    assert json.loads(capsys.readouterr().out)["target"] == str(tmp_path / "backup")


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (["backup", "--home", "{tmp}/absent", "{tmp}/backup"], "NotFound"),
        (["gc", "--home", "{tmp}/absent"], "NotFound"),
        (["restore", "--home", "{tmp}/home", "{tmp}/home"], "Conflict"),
        (["restore", "--home", "{tmp}/new", "{tmp}/home"], "Corrupt"),
    ],
)
def test_an_error_is_one_json_object_with_its_kind(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], kind: str
) -> None:
    code = main([argument.format(tmp=tmp_path) for argument in arguments])

    answer = json.loads(capsys.readouterr().out)
    assert code == 1
    assert answer["kind"] == kind
    assert answer["error"]


def test_maintenance_uses_the_settings_of_the_home(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    home.settings_file.write_text("nonsense = 1\n")

    assert main(["check", "--home", str(home.root)]) == 1
    assert "nonsense" in json.loads(capsys.readouterr().out)["error"]

import json
import sys
from pathlib import Path

import pytest

from trainyard.cli.main import run
from trainyard.server.home import open_home


@pytest.fixture
def home(tmp_path: Path) -> str:
    return str(open_home(tmp_path / "home").root)


def test_an_image_is_mapped_listed_and_forgotten(home: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["images", "map", "registry.example/mine:2", sys.executable, "--home", home]) == 0
    assert run(["images", "ls", "--json", "--home", home]) == 0
    assert json.loads(capsys.readouterr().out) == {"images": {"mine:2": sys.executable}}
    assert run(["images", "rm", "mine:2", "--home", home]) == 0
    assert run(["images", "ls", "--json", "--home", home]) == 0
    assert json.loads(capsys.readouterr().out) == {"images": {}}


def test_what_is_no_python_is_refused_and_nothing_is_mapped(
    home: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["images", "map", "mine", str(tmp_path / "absent"), "--home", home]) == 1
    assert "absent" in capsys.readouterr().err
    assert run(["images", "ls", "--json", "--home", home]) == 0
    assert json.loads(capsys.readouterr().out) == {"images": {}}


def test_forgetting_what_was_never_mapped_is_not_found(home: str) -> None:
    assert run(["images", "rm", "mine", "--home", home]) == 4

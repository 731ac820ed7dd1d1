import json
import os
import sys
from pathlib import Path

import pytest

from tests.unit.engines.container.pretended_tool import PretendedTool
from trainyard.cli.main import run
from trainyard.server.home import open_home


@pytest.fixture
def home(tmp_path: Path) -> str:
    return str(open_home(tmp_path / "home").root)


def test_an_image_is_mapped_listed_and_forgotten(home: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["images", "map", "registry.example/mine:2", sys.executable, "--home", home], os.environ) == 0
    assert run(["images", "ls", "--json", "--home", home], os.environ) == 0
    assert json.loads(capsys.readouterr().out) == {"Images": [{"Image": "mine:2", "Target": sys.executable}]}
    assert run(["images", "rm", "mine:2", "--home", home], os.environ) == 0
    assert run(["images", "ls", "--json", "--home", home], os.environ) == 0
    assert json.loads(capsys.readouterr().out) == {"Images": []}


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PretendedTool:
    tool = PretendedTool.made_in(tmp_path / "tool")
    monkeypatch.setenv("TRAINYARD_SERVER_CONTAINER_TOOL", str(tool.folder / "docker"))
    return tool


def test_an_image_is_mapped_to_a_container_image_that_is_there(
    home: str, tool: PretendedTool, capsys: pytest.CaptureFixture[str]
) -> None:
    tool.add("localhost/mine:1")

    assert run(["images", "map", "mine", "--container", "mine:1", "--home", home], os.environ) == 0
    assert run(["images", "map", "other", "--container", "other:1", "--home", home], os.environ) == 1
    assert 'no image "other:1"' in capsys.readouterr().err
    assert run(["images", "ls", "--home", home], os.environ) == 0
    assert capsys.readouterr().out.split() == ["image", "target", "mine", "container:localhost/mine:1"]


def test_an_image_is_built_and_its_name_stands_for_it(
    home: str, tool: PretendedTool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")

    assert (
        run(["images", "build", "-t", "mine:1", str(tmp_path), "--home", home, "--", "--build-arg", "A=1"], os.environ)
        == 0
    )
    assert run(["images", "ls", "--json", "--home", home], os.environ) == 0

    assert tool.built[1:3] == ["--tag", "localhost/mine:1"]
    assert tool.built[-3:-1] == ["--build-arg", "A=1"]
    assert json.loads(capsys.readouterr().out) == {
        "Images": [{"Image": "mine:1", "Target": "container:localhost/mine:1"}]
    }


@pytest.mark.parametrize("places", [[], [sys.executable, "--container", "mine:1"]])
def test_an_image_stands_for_one_thing(home: str, places: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["images", "map", "mine", *places, "--home", home], os.environ) == 2
    assert "either PYTHON or --container" in capsys.readouterr().err


def test_a_program_that_is_not_python_is_refused_and_nothing_is_mapped(
    home: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["images", "map", "mine", str(tmp_path / "absent"), "--home", home], os.environ) == 1
    assert "absent" in capsys.readouterr().err
    assert run(["images", "ls", "--json", "--home", home], os.environ) == 0
    assert json.loads(capsys.readouterr().out) == {"Images": []}


def test_forgetting_what_was_never_mapped_is_not_found(home: str) -> None:
    assert run(["images", "rm", "mine", "--home", home], os.environ) == 4

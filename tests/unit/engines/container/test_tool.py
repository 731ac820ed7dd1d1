from pathlib import Path

import pytest

from trainyard.engines.container.tool import find_tool, show
from trainyard.foundation.errors import InvalidRequest, Unavailable


def make_program(folder: Path, name: str) -> str:
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text("#!/bin/sh\necho out; echo err >&2; exit 3\n")
    program.chmod(0o755)
    return str(program)


def test_podman_is_taken_before_docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    docker = make_program(tmp_path, "docker")
    assert find_tool() == docker

    podman = make_program(tmp_path, "podman")

    assert find_tool() == podman
    assert find_tool("docker") == docker
    assert find_tool(docker) == docker


def test_a_machine_without_tools_says_which_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(InvalidRequest, match="Neither podman nor docker"):
        find_tool()
    with pytest.raises(InvalidRequest, match="nerdctl"):
        find_tool("nerdctl")


def test_a_person_sees_all_that_the_tool_prints_apart_from_data(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert show(make_program(tmp_path, "podman"), "build") == 3

    captured = capfd.readouterr()
    assert captured.out == ""
    assert sorted(captured.err.split()) == ["err", "out"]


def test_a_tool_that_cannot_be_run_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="absent"):
        show(str(tmp_path / "absent"), "build")

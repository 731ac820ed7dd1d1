import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.images import ImageMissing, require_podman
from trainyard.engines.container.tool import ContainerTool, find_tool, inspect_tool, run_visibly
from trainyard.foundation.errors import InvalidRequest, Unavailable

DOCKER: Mapping[str, Any] = {
    "ServerVersion": "28.2.2",
    "CpuCfsQuota": True,
    "MemoryLimit": True,
    "PidsLimit": True,
    "SecurityOptions": ["name=seccomp,profile=builtin"],
    "InitBinary": "docker-init",
    "Runtimes": {"runc": {}},
}


def pretended(folder: Path, version: str, info: Mapping[str, Any]) -> str:
    """A program that tells of itself what a tool of that name would."""
    (folder / "info.json").write_text(json.dumps(info))
    program = folder / "tool"
    program.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "{version}" || cat "{folder}/info.json"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


def podman(*, rootless: bool, version: str = "v2", controllers: tuple[str, ...] = ("cpu", "memory", "pids")) -> Any:
    host = {"cgroupVersion": version, "cgroupControllers": list(controllers), "security": {"rootless": rootless}}
    return {"host": host, "version": {"Version": "5.4.0"}}


def test_the_podman_of_this_machine_is_known_for_what_it_is() -> None:
    try:
        tool = require_podman()
    except ImageMissing as missing:
        pytest.skip(str(missing))

    found = inspect_tool(tool)

    assert found.name == "podman"
    assert found.version[0].isdecimal()
    assert found.is_rootless == (os.geteuid() != 0)


def test_podman_without_root_enforces_what_was_delegated_to_its_user(tmp_path: Path) -> None:
    found = inspect_tool(
        pretended(tmp_path, "podman version 5.4.0", podman(rootless=True, controllers=("memory", "pids")))
    )

    assert found.limits == ("memory", "pids")
    assert "cpu cannot be limited" in found.no_limits


def test_podman_without_root_enforces_nothing_by_groups_of_version_1(tmp_path: Path) -> None:
    found = inspect_tool(pretended(tmp_path, "podman version 4.3.1", podman(rootless=True, version="v1")))

    assert found.limits == ()


def test_docker_tells_its_limits_and_whether_it_has_an_init(tmp_path: Path) -> None:
    found = inspect_tool(pretended(tmp_path, "Docker version 28.2.2, build 1", DOCKER))

    assert (found.name, found.version, found.is_rootless) == ("docker", "28.2.2", False)
    assert found.limits == ("cpu", "memory", "pids")
    assert found.no_limits == ""
    assert found.options(())[0] == "--init"


def test_docker_without_its_daemon_is_unavailable(tmp_path: Path) -> None:
    tool = pretended(tmp_path, "Docker version 28.2.2, build 1", {"ServerErrors": ["Cannot connect to the daemon"]})

    with pytest.raises(Unavailable, match="Cannot connect"):
        inspect_tool(tool)


def test_gpus_are_given_as_each_tool_wants_them() -> None:
    def options(*, is_podman: bool) -> list[str]:
        found = ContainerTool("tool", is_podman=is_podman, version="1", is_rootless=True, limits=(), has_init=False)
        return found.options((0, 2))

    assert options(is_podman=True) == ["--device", "nvidia.com/gpu=0", "--device", "nvidia.com/gpu=2"]
    assert options(is_podman=False) == ["--gpus", '"device=0,2"']


def test_a_tool_that_tells_nothing_readable_is_unavailable(tmp_path: Path) -> None:
    tool = pretended(tmp_path, "podman version 5.4.0", {})
    (tmp_path / "info.json").write_text("not JSON")

    with pytest.raises(Unavailable):
        inspect_tool(tool)


def make_program(folder: Path, name: str) -> str:
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text("#!/bin/sh\necho out; echo err >&2; exit 3\n")
    program.chmod(0o755)
    return str(program)


def test_podman_is_preferred_to_docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert run_visibly(make_program(tmp_path, "podman"), "build") == 3

    captured = capfd.readouterr()
    assert captured.out == ""
    assert sorted(captured.err.split()) == ["err", "out"]


def test_a_tool_that_cannot_be_run_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="absent"):
        run_visibly(str(tmp_path / "absent"), "build")

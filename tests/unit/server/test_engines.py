import sys
from pathlib import Path
from typing import Any

import pytest

from trainyard.engines.contract import Engine
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.home import Home
from trainyard.server.engines import open_engines, require_parts
from trainyard.server.settings import ServerSettings
from trainyard.testing.engines.simulated import SimulatedEngine


def open_played(jobs: Path, agents: Path) -> Engine:
    """An engine of somebody's own; `agents` is what it does not need."""
    return SimulatedEngine(jobs, name=f"played beside {agents.name}")


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of `open_played`, as a setting has it."""
    monkeypatch.setitem(sys.modules, "somebodys_engine", sys.modules[__name__])
    return "somebodys_engine:open_played"


def opened(folder: Path, engines: str, **settings: Any) -> tuple[str, ...]:
    return open_engines(Home(folder), ServerSettings(engines=engines, **settings)).names


def test_a_yard_has_the_local_engine_unless_told_otherwise(tmp_path: Path) -> None:
    assert open_engines(Home(tmp_path), ServerSettings()).names == ("local",)


def test_engines_are_opened_in_the_order_of_the_setting_and_may_be_somebodys_own(tmp_path: Path, own: str) -> None:
    assert opened(tmp_path, f"{own}, local") == ("played beside agents", "local")


@pytest.mark.parametrize(
    ("engines", "settings", "problem"),
    [
        ("", {}, "names no engine; write some of local, ray, container"),
        ("local,slurm", {}, 'names "slurm", which is no engine; write some of local, ray, container'),
        ("local,local", {}, 'names "local" more than once'),
        ("nowhere.to_be:found", {}, 'names "nowhere.to_be:found", which cannot be imported'),
        ("trainyard.engines.several:found", {}, "which cannot be imported"),
        (
            "ray",
            {"ray_python": "/nowhere/python"},
            "The engine ray cannot be used, because /nowhere/python does not run",
        ),
        ("local,container", {"container_tool": "nowhere/podman"}, "There is no program nowhere/podman here"),
    ],
)
def test_an_engine_that_cannot_be_had_is_an_error_that_says_what_to_do(
    tmp_path: Path, engines: str, settings: dict[str, str], problem: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        opened(tmp_path, engines, **settings)
    assert problem in caught.value.message


def test_whether_the_parts_of_an_engine_are_there_is_told_without_opening_it(own: str) -> None:
    require_parts("local", ServerSettings())
    require_parts(own, ServerSettings())
    for name in ("slurm", "nowhere.to_be:found", "ray", "container"):
        with pytest.raises(InvalidRequest):
            require_parts(name, ServerSettings(ray_python="/nowhere/python", container_tool="nowhere/podman"))

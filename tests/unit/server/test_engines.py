import sys
from pathlib import Path
from typing import Any

import pytest

from trainyard.engines.contract import Engine
from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.home import Home
from trainyard.server.engines import open_engines, require_engine
from trainyard.server.settings import ServerSettings
from trainyard.testing.engines.simulated import SimulatedEngine


def open_played(jobs: Path, agents: Path) -> Engine:
    """Open a custom engine, which does not need `agents`."""
    return SimulatedEngine(jobs, name=f"played beside {agents.name}")


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of `open_played` as in a setting."""
    monkeypatch.setitem(sys.modules, "somebodys_engine", sys.modules[__name__])
    return "somebodys_engine:open_played"


def opened(folder: Path, engines: str, **settings: Any) -> tuple[str, ...]:
    return open_engines(Home(folder), ServerSettings(engines=engines, **settings)).names


def test_a_yard_has_the_local_engine_by_default(tmp_path: Path) -> None:
    assert open_engines(Home(tmp_path), ServerSettings()).names == ("local",)


def test_engines_are_opened_in_the_order_of_the_setting_and_may_be_custom(tmp_path: Path, own: str) -> None:
    assert opened(tmp_path, f"{own}, local") == ("played beside agents", "local")


@pytest.mark.parametrize(
    ("engines", "settings", "problem"),
    [
        ("", {}, "names no engine; write one or more of local, ray, container"),
        ("local,slurm", {}, 'names "slurm", which is not an engine; write one or more of local, ray, container'),
        ("local,local", {}, 'names "local" more than once'),
        ("nowhere.to_be:found", {}, 'names "nowhere.to_be:found", which cannot be imported'),
        ("trainyard.engines.engine_set:found", {}, "which cannot be imported"),
        (
            "ray",
            {"ray_python": "/nowhere/python"},
            "The engine ray cannot be used, because /nowhere/python does not run",
        ),
        ("local,container", {"container_tool": "nowhere/podman"}, "There is no program nowhere/podman here"),
    ],
)
def test_an_unavailable_engine_is_an_error_that_says_what_to_do(
    tmp_path: Path, engines: str, settings: dict[str, str], problem: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        opened(tmp_path, engines, **settings)
    assert problem in caught.value.message


def test_the_requirements_of_an_engine_are_checked_without_opening_it(own: str) -> None:
    require_engine("local", ServerSettings())
    require_engine(own, ServerSettings())
    for name in ("slurm", "nowhere.to_be:found", "ray", "container"):
        with pytest.raises(InvalidRequest):
            require_engine(name, ServerSettings(ray_python="/nowhere/python", container_tool="nowhere/podman"))

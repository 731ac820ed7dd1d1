import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trainyard.foundation.errors import InvalidRequest
from trainyard.instance.sandbox.contract import Isolation, SandboxNetwork, SandboxRequest
from trainyard.instance.sandbox.launcher import footprint, launch


@pytest.fixture
def good(tmp_path: Path) -> SandboxRequest:
    return SandboxRequest(
        name="one",
        argv=["/bin/true"],
        environment={},
        ml_folder=tmp_path / "ml",
        scratch_folder=tmp_path / "scratch",
        uid=54321,
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "../escape"}, "not a valid sandbox name"),
        ({"name": ""}, "not a valid sandbox name"),
        ({"argv": []}, "no program to run"),
        ({"argv": ["/bin/true", "a\0b"]}, "cannot be passed on"),
        ({"environment": {"A=B": "1"}}, "cannot be passed on"),
        ({"environment": {"": "1"}}, "cannot be passed on"),
        ({"environment": {"A": "\0"}}, "cannot be passed on"),
        ({"network": SandboxNetwork(), "isolation": Isolation.PROCESS_GROUP}, "its own network without namespaces"),
    ],
)
def test_a_program_that_can_never_run_is_refused_before_anything_is_created(
    good: SandboxRequest, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        launch(replace(good, **change), 1)
    assert not any(tmp_path.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root could launch a program as root")
@pytest.mark.parametrize("uid", [None, 0])
def test_root_cannot_launch_a_program_as_root(good: SandboxRequest, uid: int | None) -> None:
    with pytest.raises(InvalidRequest, match="needs a uid other than 0"):
        launch(replace(good, uid=uid), 1)


def test_the_footprint_names_the_groups_of_this_sandbox_alone(good: SandboxRequest) -> None:
    assert all(path.name == "trainyard-one" and path.parent.is_dir() for path in footprint(good))

"""How a yard gets the engine of a Ray cluster."""

import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from trainyard.engines.cluster.engine import ClusterEngine
from trainyard.engines.ray import open_ray_engine, require_ray
from trainyard.foundation.errors import InvalidRequest
from trainyard.testing.eventually import eventually

TOKEN = "open sesame"

# Stands for a Python that has Ray: it says so, and where it should speak to Ray it tells how it was started.
PYTHON = """#!/bin/sh
[ "$1" = -c ] && exit 0
env > "$0.environment"
echo "$@" > "$0.arguments.new"
mv "$0.arguments.new" "$0.arguments"
"""


@pytest.fixture
def python(tmp_path: Path) -> Path:
    path = tmp_path / "python"
    path.write_text(PYTHON)
    path.chmod(0o755)
    return path


@pytest.fixture
def engine(tmp_path: Path, python: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterEngine]:
    monkeypatch.setattr("trainyard.engines.ray.code_bundle.LIBRARIES", ())  # which take their time
    monkeypatch.setenv("SECRET_OF_THE_YARD", "hidden")
    monkeypatch.setenv("RAY_TLS_CA_CERT", "/etc/ray.pem")
    opened = open_ray_engine(
        tmp_path / "jobs",
        work=tmp_path / "work",
        address="10.0.0.1:6379",
        token=TOKEN,
        python=str(python),
        lease=timedelta(minutes=1),
    )
    with closing(opened):
        yield opened


def test_a_python_without_ray_is_refused_with_what_to_do() -> None:
    with pytest.raises(InvalidRequest, match=r"has no ray\. Install trainyard\[ray\].*ray_python"):
        require_ray(sys.executable)


def test_a_python_that_does_not_run_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="/nowhere/python does not run"):
        require_ray("/nowhere/python")


def test_the_token_is_in_the_environment_of_one_process_and_in_no_command_line(
    engine: ClusterEngine, python: Path, tmp_path: Path
) -> None:
    engine.capacity()  # which starts it

    arguments = eventually(lambda: read(python.with_suffix(".arguments")))
    environment = read(python.with_suffix(".environment")).splitlines()
    assert "10.0.0.1:6379" in arguments
    assert TOKEN not in arguments
    assert {f"RAY_AUTH_TOKEN={TOKEN}", "RAY_AUTH_MODE=token", "RAY_TLS_CA_CERT=/etc/ray.pem"} <= {*environment}
    assert not any(line.startswith("SECRET_OF_THE_YARD") for line in environment)
    assert not any(TOKEN.encode() in file.read_bytes() for file in (tmp_path / "work").rglob("*") if file.is_file())


def test_a_cluster_that_is_not_there_has_no_room_and_a_reason(engine: ClusterEngine) -> None:
    assert engine.capacity().slots == 0
    assert engine.capacity().obstacle


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""

from pathlib import Path

import pytest

from tests.images import ImageMissing, require_podman
from trainyard.engines.container import open_container_engine
from trainyard.foundation.errors import InvalidRequest, Unavailable
from trainyard.testing.engines.samples import SampleEnvironment, attempt_specs


def test_options_that_no_shell_could_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="container_options"):
        open_container_engine(tmp_path / "jobs", tmp_path / "agents", tool="true", options='--label "open')


def test_a_tool_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="no-such-tool"):
        open_container_engine(tmp_path / "jobs", tmp_path / "agents", tool="no-such-tool")


def test_while_the_tool_does_not_answer_the_engine_says_so(tmp_path: Path) -> None:
    engine = open_container_engine(tmp_path / "jobs", tmp_path / "agents", tool="false")

    assert "does not answer" in engine.capabilities().limits
    assert "does not answer" in engine.why_not_isolated(2)


def test_an_attempt_that_no_tool_can_run_is_ended(tmp_path: Path) -> None:
    engine = open_container_engine(tmp_path / "jobs", tmp_path / "agents", tool="false")
    specs = attempt_specs(SampleEnvironment(tmp_path / "objects", image="localhost/mine:1"), job_id="never")

    with pytest.raises(Unavailable):
        engine.start(specs)

    assert (tmp_path / "jobs" / "never" / "1" / "ended").exists()


def test_images_really_run_and_programs_are_never_warm(tmp_path: Path) -> None:
    engine = open_container_engine(tmp_path / "jobs", tmp_path / "agents", tool="false")

    assert engine.capabilities().images == ""
    assert engine.capabilities().warm_workers
    assert engine.why_not_isolated(1) == ""


def test_a_job_without_an_image_is_refused(tmp_path: Path) -> None:
    try:
        engine = open_container_engine(tmp_path / "jobs", tmp_path / "agents", tool=require_podman())
    except ImageMissing as missing:
        pytest.skip(str(missing))

    with pytest.raises(InvalidRequest, match="no container image"):
        engine.start(attempt_specs(SampleEnvironment(tmp_path / "objects")))

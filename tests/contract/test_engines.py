"""Every engine keeps the contract of engines."""

import os
import signal
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from trainyard.engines.contract import AttemptRef, Engine
from trainyard.engines.local import LocalEngine
from trainyard.foundation.clock import utc_now
from trainyard.foundation.locations import BucketRef
from trainyard.link.contract import FrameKind
from trainyard.link.presence import presence_of
from trainyard.objects.filesystem import FilesystemObjects
from trainyard.testing.engines import EngineContract, PlayedAgent, SimulatedEngine, complete, fail, run
from trainyard.testing.engines.samples import (
    ACCOUNT,
    BUCKET,
    ENDLESS,
    FAILING,
    REGION,
    Surroundings,
    attempt_specs,
)
from trainyard.testing.eventually import eventually

JOB_USER = 20001  # of the jobs, where the tests run as root


def play(agent: PlayedAgent) -> None:
    """Do what the program of the spec would do."""
    code = agent.spec.program.command[-1]
    {ENDLESS: run, FAILING: fail}.get(code, complete)(agent)


@pytest.fixture
def surroundings(tmp_path: Path) -> Surroundings:
    return Surroundings(tmp_path / "objects")


class TestSimulatedEngine(EngineContract):
    @pytest.fixture
    def reopen(self, tmp_path: Path) -> Callable[[], Engine]:
        return lambda: SimulatedEngine(tmp_path / "jobs", role=play)

    @pytest.fixture
    def engine(self, reopen: Callable[[], Engine]) -> Engine:
        return reopen()


class TestLocalEngine(EngineContract):
    @pytest.fixture
    def surroundings(self, tmp_path: Path) -> Surroundings:
        with closing(FilesystemObjects(tmp_path / "objects")) as objects:
            objects.create_bucket(BucketRef(ACCOUNT, BUCKET), region=REGION, now=utc_now())
        return Surroundings(tmp_path / "objects", uid=JOB_USER if os.geteuid() == 0 else None)

    @pytest.fixture
    def reopen(self, tmp_path: Path) -> Callable[[], Engine]:
        return lambda: LocalEngine(tmp_path / "jobs", tmp_path / "agents", slots=4)

    @pytest.fixture
    def engine(self, reopen: Callable[[], Engine], tmp_path: Path) -> Iterator[Engine]:
        engine = reopen()
        yield engine
        for attempt in (tmp_path / "jobs").glob("*/*"):
            engine.end(AttemptRef(attempt.parent.name, int(attempt.name)))

    def test_an_agent_that_was_killed_is_lost_and_its_program_dies_with_it(
        self, engine: Engine, surroundings: Surroundings, tmp_path: Path
    ) -> None:
        mark = uuid.uuid4().hex
        (instance,) = engine.start(attempt_specs(surroundings, f"{ENDLESS}  # {mark}"))
        eventually(lambda: pids_running(mark))
        presence = presence_of(instance.folder(tmp_path / "jobs").root)
        assert presence is not None

        os.kill(presence.pid, signal.SIGKILL)

        eventually(lambda: not engine.is_alive(instance))
        assert engine.reports(instance, 0).frames[-1].kind is not FrameKind.ENDED
        engine.end(instance.attempt)
        assert pids_running(mark) == []

    def test_ending_an_attempt_ends_its_programs(self, engine: Engine, surroundings: Surroundings) -> None:
        mark = uuid.uuid4().hex
        (instance,) = engine.start(attempt_specs(surroundings, f"{ENDLESS}  # {mark}"))
        eventually(lambda: pids_running(mark))

        engine.end(instance.attempt)

        assert pids_running(mark) == []


def pids_running(mark: str) -> list[int]:
    """The processes whose command line holds a mark."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found

"""Every engine fulfils the contract of engines."""

import os
import signal
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path

import pytest

from trainyard.engines.contract import AttemptRef, Engine, InstanceRef, Node
from trainyard.engines.local import LocalEngine
from trainyard.foundation.clock import utc_now
from trainyard.foundation.locations import BucketRef
from trainyard.link.agent_process import find_agent_process
from trainyard.link.contract import FrameKind, InstanceSpec
from trainyard.link.folders import InstanceFolder
from trainyard.objects.filesystem import FilesystemObjects
from trainyard.testing.engines import EngineContract, SimulatedAgent, SimulatedEngine, complete, fail, run
from trainyard.testing.engines.loopback import Loopback
from trainyard.testing.engines.samples import (
    ACCOUNT,
    BUCKET,
    ENDLESS,
    FAILING,
    REGION,
    SampleEnvironment,
    attempt_specs,
)
from trainyard.testing.engines.simulated_cluster import LEASE, MARGIN, SimulatedCluster, SimulatedProgram
from trainyard.testing.eventually import eventually
from trainyard.testing.simulated_time import SimulatedTime

JOB_USER = 20001  # of the jobs, when root runs the tests


def play(agent: SimulatedAgent) -> None:
    """Do what the program of the spec would do."""
    code = agent.spec.program.command[-1]
    {ENDLESS: run, FAILING: fail}.get(code, complete)(agent)


def plot(spec: InstanceSpec) -> SimulatedProgram:
    """Return what that program would do, and how long it would take."""
    code = spec.program.command[-1]
    return SimulatedProgram(timedelta(hours=1) if code == ENDLESS else timedelta(), code=3 if code == FAILING else 0)


@pytest.fixture
def environment(tmp_path: Path) -> SampleEnvironment:
    return SampleEnvironment(tmp_path / "objects")


class TestSimulatedEngine(EngineContract):
    @pytest.fixture
    def reopen(self, tmp_path: Path) -> Callable[[], SimulatedEngine]:
        return lambda: SimulatedEngine(tmp_path / "jobs", role=play)

    @pytest.fixture
    def engine(self, reopen: Callable[[], SimulatedEngine]) -> SimulatedEngine:
        return reopen()

    @pytest.fixture
    def kill(self, engine: SimulatedEngine) -> Callable[[InstanceRef], None]:
        return lambda instance: engine.agent(instance).die()


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with a copy of the agents' code, shared by all tests."""
    return tmp_path_factory.mktemp("agents")


@pytest.fixture
def real_surroundings(tmp_path: Path) -> SampleEnvironment:
    """The surroundings of instances that really run."""
    with closing(FilesystemObjects(tmp_path / "objects")) as objects:
        objects.create_bucket(BucketRef(ACCOUNT, BUCKET), region=REGION, now=utc_now())
    return SampleEnvironment(tmp_path / "objects", uid=JOB_USER if os.geteuid() == 0 else None)


class TestSimulatedCluster(EngineContract):
    @pytest.fixture
    def clock(self) -> SimulatedTime:
        return SimulatedTime()

    @pytest.fixture
    def reopen(self, tmp_path: Path, clock: SimulatedTime) -> Callable[[], SimulatedCluster]:
        nodes = [Node(name, 4, 4.0, 1 << 34, reserves=True) for name in ("left", "right")]
        return lambda: SimulatedCluster(tmp_path / "jobs", nodes=nodes, plot=plot, clock=clock)

    @pytest.fixture
    def engine(self, reopen: Callable[[], SimulatedCluster]) -> SimulatedCluster:
        return reopen()

    @pytest.fixture
    def kill(self, engine: SimulatedCluster) -> Callable[[InstanceRef], None]:
        return lambda instance: engine.agent(instance).die()

    @pytest.fixture
    def node_of(self, engine: SimulatedCluster) -> Callable[[InstanceRef], str]:
        return lambda instance: engine.works[instance].node

    @pytest.fixture
    def take(self, engine: SimulatedCluster, clock: SimulatedTime) -> Callable[[str], None]:
        def take(name: str) -> None:
            engine.cut_off(name)
            clock.forward((LEASE + MARGIN).total_seconds())

        return take


class TestLocalEngine(EngineContract):
    @pytest.fixture
    def environment(self, real_surroundings: SampleEnvironment) -> SampleEnvironment:
        return real_surroundings

    @pytest.fixture
    def kill(self, tmp_path: Path) -> Callable[[InstanceRef], None]:
        return lambda instance: kill_agent(instance.folder(tmp_path / "jobs"))

    @pytest.fixture
    def reopen(self, tmp_path: Path, agents: Path) -> Callable[[], Engine]:
        return lambda: LocalEngine(tmp_path / "jobs", agents, slots=4)

    @pytest.fixture
    def engine(self, reopen: Callable[[], Engine], tmp_path: Path) -> Iterator[Engine]:
        engine = reopen()
        yield engine
        for attempt in (tmp_path / "jobs").glob("*/*"):
            engine.end(AttemptRef(attempt.parent.name, int(attempt.name)))

    def test_a_killed_agent_is_lost_and_its_program_dies_with_it(
        self, engine: Engine, environment: SampleEnvironment, tmp_path: Path
    ) -> None:
        mark = uuid.uuid4().hex
        (instance,) = engine.start(attempt_specs(environment, f"{ENDLESS}  # {mark}"))
        eventually(lambda: pids_running(mark))

        kill_agent(instance.folder(tmp_path / "jobs"))

        eventually(lambda: not engine.is_alive(instance))
        assert engine.reports(instance, 0).frames[-1].kind is not FrameKind.ENDED
        engine.end(instance.attempt)
        assert pids_running(mark) == []

    def test_ending_an_attempt_ends_its_programs(self, engine: Engine, environment: SampleEnvironment) -> None:
        mark = uuid.uuid4().hex
        (instance,) = engine.start(attempt_specs(environment, f"{ENDLESS}  # {mark}"))
        eventually(lambda: pids_running(mark))

        engine.end(instance.attempt)

        assert pids_running(mark) == []


class TestClusterEngine(EngineContract):
    """The nodes are folders of this machine; tests/contract/test_ray_engine.py has real ones."""

    @pytest.fixture
    def environment(self, real_surroundings: SampleEnvironment) -> SampleEnvironment:
        return real_surroundings

    @pytest.fixture
    def loopback(self, tmp_path: Path, agents: Path) -> Loopback:
        return Loopback(tmp_path / "nodes", tmp_path / "jobs", tmp_path / "engine", agents)

    @pytest.fixture
    def reopen(self, loopback: Loopback) -> Iterator[Callable[[], Engine]]:
        opened: list[Engine] = []

        def open_anew() -> Engine:
            for earlier in opened:
                earlier.close()
            opened.append(loopback.engine())
            opened[-1].make_ready()
            return opened[-1]

        yield open_anew
        for engine in opened:
            engine.close()

    @pytest.fixture
    def engine(self, reopen: Callable[[], Engine], loopback: Loopback) -> Iterator[Engine]:
        yield reopen()
        last = reopen()
        for node in loopback.nodes:
            loopback.node(node.name).join_again()
        for attempt in loopback.jobs.glob("*/*"):
            last.end(AttemptRef(attempt.parent.name, int(attempt.name)))

    @pytest.fixture
    def kill(self, loopback: Loopback) -> Callable[[InstanceRef], None]:
        node_of = loopback.cluster.node_of
        return lambda instance: kill_agent(loopback.node(node_of(instance)).instance(instance))

    @pytest.fixture
    def node_of(self, loopback: Loopback) -> Callable[[InstanceRef], str]:
        return loopback.cluster.node_of

    @pytest.fixture
    def take(self, loopback: Loopback) -> Callable[[str], None]:
        return lambda name: loopback.node(name).leave()


def kill_agent(folder: InstanceFolder) -> None:
    presence = find_agent_process(folder.root)
    assert presence is not None
    os.kill(presence.pid, signal.SIGKILL)


def pids_running(mark: str) -> list[int]:
    """Return the processes whose command line contains a mark."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found

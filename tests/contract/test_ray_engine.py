"""The engine of a Ray cluster fulfils the contract of engines, on three nodes with separate networks."""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from tests.machines import Machine, MachinesMissing
from tests.ray_cluster import RayCluster, ray_cluster
from trainyard.engines.cluster.engine import ClusterEngine
from trainyard.engines.contract import AttemptRef, Engine, InstanceRef
from trainyard.engines.local.code import PACKAGE
from trainyard.engines.ray import open_ray_engine
from trainyard.engines.ray.code_bundle import ensure_code_bundle
from trainyard.foundation.clock import utc_now
from trainyard.foundation.errors import Unavailable
from trainyard.foundation.locations import BucketRef
from trainyard.link.agent_process import find_agent_process
from trainyard.link.contract import CommandKind, LimitSpec
from trainyard.link.folders import InstanceFolder
from trainyard.link.specs import read_spec
from trainyard.objects.filesystem import FilesystemObjects
from trainyard.testing.engines import EngineContract
from trainyard.testing.engines.contract import reports_to_the_end, specs_on, wait_for_training
from trainyard.testing.engines.samples import ACCOUNT, BUCKET, ENDLESS, REGION, SampleEnvironment
from trainyard.testing.eventually import eventually

pytestmark = pytest.mark.slow

NODES, CPUS = 3, 4
LEASE = timedelta(seconds=45)
START = timedelta(minutes=2)
JOB_USER = 20001
CHATTY = "import time\nwhile True: print('x' * 500, flush=True); time.sleep(0.02)"


@dataclass
class Yard:
    """A yard's own state beside its cluster. `opened` is its current engine."""

    folder: Path
    cluster: RayCluster
    opened: ClusterEngine | None = None

    @property
    def jobs(self) -> Path:
        return self.folder / "jobs"

    def open(self, *, token: str = "", address: str = "") -> ClusterEngine:
        """Open the engine again, as a killed and restarted yard does."""
        self.close()
        self.opened = open_ray_engine(
            self.jobs,
            work=self.folder / "ray",
            address=address or self.cluster.address,
            token=token or self.cluster.token,
            python=str(self.cluster.python(self.cluster.head)),
            folder=str(self.cluster.node_folder),
            lease=LEASE,
        )
        return self.opened

    def close(self) -> None:
        if self.opened is not None:
            self.opened.close()

    def instance(self, instance: InstanceRef) -> InstanceFolder:
        """Return the folder of an instance on its node; that of a job's first instance also has files of the others."""
        name, attempt = (self.folder / "ray" / "id").read_text(), instance.attempt
        pattern = f"*/{name}/jobs/{attempt.job_id}/{attempt.attempt}/{instance.name}/spec.json"
        (spec,) = self.cluster.node_folder.glob(pattern)
        return InstanceFolder(spec.parent)

    def node_of(self, instance: InstanceRef) -> Machine:
        name = self.instance(instance).root.relative_to(self.cluster.node_folder).parts[0]
        return self.cluster.nodes[name]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    try:
        with ray_cluster(nodes=NODES, cpus=CPUS, of_last=['--resources={"spot": 1}', "--num-gpus=2"]) as started:
            yield started
    except MachinesMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def yard(cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    yard = Yard(tmp_path_factory.mktemp("yard"), cluster)
    yard.open()
    yield yard
    yard.close()


@pytest.fixture
def environment(yard: Yard) -> SampleEnvironment:
    """One object store for all, on a file system that the nodes share."""
    root = yard.folder / "objects"
    if not root.exists():
        with closing(FilesystemObjects(root)) as objects:
            objects.create_bucket(BucketRef(ACCOUNT, BUCKET), region=REGION, now=utc_now())
    return SampleEnvironment(root, uid=JOB_USER if os.geteuid() == 0 else None)


@pytest.fixture
def reopen(yard: Yard) -> Callable[[], Engine]:
    def reopened() -> Engine:
        engine = yard.open()
        await_nodes(engine)
        return engine

    return reopened


@pytest.fixture
def engine(yard: Yard) -> Iterator[Engine]:
    assert yard.opened is not None
    await_nodes(yard.opened)
    yield yard.opened
    eventually(lambda: all(has_ended(yard, attempt) for attempt in attempts_of(yard)), within=START)


class TestRayEngine(EngineContract):
    @pytest.fixture
    def kill(self, yard: Yard) -> Callable[[InstanceRef], None]:
        def kill(instance: InstanceRef) -> None:
            yard.node_of(instance).run("kill", "-KILL", str(agent_of(yard, instance)))

        return kill

    @pytest.fixture
    def node_of(self, yard: Yard) -> Callable[[InstanceRef], str]:
        return lambda instance: yard.node_of(instance).address

    @pytest.fixture
    def take(self, yard: Yard) -> Iterator[Callable[[str], None]]:
        taken: list[Machine] = []

        def take(node: str) -> None:
            taken.append(yard.cluster.nodes[node])
            taken[-1].switch_off()

        yield take
        for machine in taken:
            yard.cluster.restart(machine)


def test_nodes_are_listed_by_address_with_their_resources(engine: Engine, yard: Yard) -> None:
    *others, last = sorted(engine.capacity().nodes, key=lambda node: node.name)

    assert [*(node.name for node in others), last.name] == sorted(yard.cluster.nodes)
    assert {(node.cpus, node.is_spot, node.gpus, node.reserves) for node in others} == {(CPUS, False, (), True)}
    assert (last.cpus, last.is_spot, last.gpus) == (CPUS, True, (0, 1))


def test_instances_have_the_gpus_that_ray_gave_them(engine: Engine, yard: Yard, environment: SampleEnvironment) -> None:
    (node,) = [node.name for node in engine.capacity().nodes if node.gpus]
    # The yard cannot choose the GPU.
    one = LimitSpec(cpus=0.5, gpus=(0,))
    pair = [replace(each, node=node, limits=one) for each in specs_on(engine, environment, ENDLESS, count=2)]

    instances = engine.start(pair)

    given = [tuple(read_spec(yard.instance(instance).root).limits.gpus) for instance in instances]
    assert sorted(given) == [(0,), (1,)]


def test_agents_have_the_priority_of_ray_and_not_that_of_its_workers(
    engine: Engine, yard: Yard, environment: SampleEnvironment
) -> None:
    (instance,) = engine.start(specs_on(engine, environment, ENDLESS))
    wait_for_training(engine, instance)
    machine, agent = yard.node_of(instance), str(agent_of(yard, instance))
    (raylet,) = machine.run("pgrep", "--exact", "raylet").split()

    assert machine.run("cat", f"/proc/{agent}/oom_score_adj") == machine.run("cat", f"/proc/{raylet}/oom_score_adj")
    if os.geteuid() == 0:
        assert machine.run("ps", "-o", "nice=", agent) == machine.run("ps", "-o", "nice=", raylet)


def test_a_runner_that_dies_is_replaced_and_nothing_of_the_instance_is_lost(
    engine: Engine, yard: Yard, environment: SampleEnvironment
) -> None:
    (instance,) = engine.start(specs_on(engine, environment, CHATTY))
    wait_for_training(engine, instance)
    agent = agent_of(yard, instance)

    kill_all(yard.node_of(instance), r"ray::\S*RunnerActor")

    assert_goes_on(engine, yard, instance)
    assert agent_of(yard, instance) == agent


def test_newer_code_of_the_yard_continues_what_older_code_started(
    engine: Engine, yard: Yard, environment: SampleEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (spec,) = specs_on(engine, environment, CHATTY)
    (older,) = engine.start([spec])
    wait_for_training(engine, older)
    agent, machine = agent_of(yard, older), yard.node_of(older)
    package = shutil.copytree(PACKAGE, tmp_path / PACKAGE.name)
    (package / "engines" / "newer.py").write_text('"""New."""\n')

    with monkeypatch.context() as patch:
        patch.setattr("trainyard.engines.ray.ensure_code_bundle", partial(ensure_code_bundle, package=package))
        engine = yard.open()
        await_nodes(engine)
        (newer,) = engine.start([replace(each, node=spec.node) for each in specs_on(engine, environment, CHATTY)])
        wait_for_training(engine, newer)

        assert_goes_on(engine, yard, older)
        assert_goes_on(engine, yard, newer)
    assert agent_of(yard, older) == agent
    assert len(machine.run("pgrep", "--full", r"ray::\S*RunnerActor").split()) == 2


def test_an_instance_survives_the_raylet_of_its_node(
    engine: Engine, yard: Yard, environment: SampleEnvironment
) -> None:
    (instance,) = engine.start(specs_on(engine, environment, CHATTY))
    wait_for_training(engine, instance)
    machine, agent = yard.node_of(instance), agent_of(yard, instance)

    kill_all(machine, "raylet/raylet")
    eventually(lambda: "ray::" not in machine.run("ps", "-ww", "-eo", "args="))
    yard.cluster.start_node(machine)

    assert_goes_on(engine, yard, instance)
    assert agent_of(yard, instance) == agent


def test_a_node_that_is_cut_off_for_less_than_the_lease_continues(
    engine: Engine, yard: Yard, environment: SampleEnvironment
) -> None:
    (instance,) = engine.start(specs_on(engine, environment, CHATTY))
    wait_for_training(engine, instance)
    machine, agent = yard.node_of(instance), agent_of(yard, instance)

    machine.cut()
    eventually(lambda: size_of_log(yard.instance(instance)) > size_of_log(instance.folder(yard.jobs)) + 100_000)
    machine.join()

    assert_goes_on(engine, yard, instance)
    assert agent_of(yard, instance) == agent


def test_instances_survive_the_head_if_the_cluster_restarts_in_time(
    engine: Engine, yard: Yard, environment: SampleEnvironment
) -> None:
    in_time = int(START.total_seconds())
    (instance,) = engine.start([replace(each, lease_s=in_time) for each in specs_on(engine, environment, CHATTY)])
    wait_for_training(engine, instance)

    kill_all(yard.cluster.head, "gcs_server")
    for machine in (yard.cluster.head, *yard.cluster.nodes.values()):
        kill_all(machine, "raylet/raylet")
    eventually(lambda: engine.capacity().obstacle)
    yard.cluster.start_head()
    for machine in yard.cluster.nodes.values():
        yard.cluster.start_node(machine)

    assert_goes_on(engine, yard, instance)


def test_a_process_that_talks_to_ray_is_restarted_and_continues(
    engine: Engine, yard: Yard, environment: SampleEnvironment
) -> None:
    (instance,) = engine.start(specs_on(engine, environment, CHATTY))
    wait_for_training(engine, instance)

    kill_all(yard.cluster.head, "trainyard.engines.ray.main")

    assert_goes_on(engine, yard, instance)


def test_a_node_that_is_cut_off_for_longer_than_the_lease_ends_its_instances(
    engine: Engine, yard: Yard, environment: SampleEnvironment
) -> None:
    (instance,) = engine.start(specs_on(engine, environment, ENDLESS))
    wait_for_training(engine, instance)
    machine, agent = yard.node_of(instance), agent_of(yard, instance)

    machine.cut()
    try:
        eventually(lambda: not engine.is_alive(instance), within=LEASE * 3)
        assert not is_running(machine, agent)
    finally:
        # Ray considers it dead, and does not let it rejoin without a restart.
        yard.cluster.restart(machine)

    assert engine.has_lost_node(instance)


def test_capacity_that_others_use_in_the_cluster_is_not_allocated_again(
    engine: Engine, yard: Yard, environment: SampleEnvironment, tmp_path: Path
) -> None:
    other = Yard(tmp_path, yard.cluster)
    await_nodes(theirs := other.open())
    all_of_it = LimitSpec(cpus=CPUS)
    mine = [replace(each, limits=all_of_it) for each in specs_on(engine, environment, ENDLESS)]
    (instance,) = engine.start(mine)

    with closing(theirs), pytest.raises(Unavailable, match="could not reserve"):
        theirs.start([replace(each, job_id="theirs") for each in mine])

    assert engine.is_alive(instance)


@pytest.mark.parametrize(
    ("token", "port", "why"),
    [("0" * 64, "6379", "does not accept the token"), ("", "1", "Nothing answers at")],
    ids=["wrong token", "nothing listens"],
)
def test_a_missing_cluster_is_reported_with_the_reason(
    yard: Yard, tmp_path: Path, token: str, port: str, why: str
) -> None:
    host = yard.cluster.head.address
    stranger = Yard(tmp_path, yard.cluster)
    with closing(stranger.open(token=token, address=f"{host}:{port}")) as engine:
        assert eventually(lambda: why in engine.capacity().obstacle, within=START)
        assert engine.capacity().slots == 0


def await_nodes(engine: Engine) -> None:
    eventually(lambda: len(engine.capacity().nodes) == NODES and not engine.capacity().obstacle, within=START)


def assert_goes_on(engine: Engine, yard: Yard, instance: InstanceRef) -> None:
    """Check that output from the time without a listener arrives too, and that the yard gets every byte once."""
    missed = size_of_log(yard.instance(instance))
    eventually(lambda: size_of_log(instance.folder(yard.jobs)) > missed, within=START)

    engine.command(instance, CommandKind.STOP, {"reason": "user"})

    eventually(lambda: not engine.is_alive(instance), within=START)
    frames = reports_to_the_end(engine, instance)
    assert frames[-1].payload["outcome"] == "stopped"
    assert [frame.sequence for frame in frames] == list(range(1, len(frames) + 1))
    assert log_of(instance.folder(yard.jobs)) == log_of(yard.instance(instance))


def size_of_log(folder: InstanceFolder) -> int:
    return sum(path.stat().st_size for path in folder.logs.glob("*"))


def log_of(folder: InstanceFolder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.logs.glob("*")}


def attempts_of(yard: Yard) -> list[AttemptRef]:
    return [AttemptRef(folder.parent.name, int(folder.name)) for folder in yard.jobs.glob("*/*")]


def has_ended(yard: Yard, attempt: AttemptRef) -> bool:
    """Tell whether an instance has ended. An unreachable node keeps an attempt until its lease expires."""
    assert yard.opened is not None
    try:
        yard.opened.end(attempt)
    except Unavailable:
        return False
    return True


def agent_of(yard: Yard, instance: InstanceRef) -> int:
    """Return the pid of its agent in the pid namespace of its machine."""
    presence = find_agent_process(yard.instance(instance).root)
    assert presence is not None
    return presence.pid


def kill_all(machine: Machine, pattern: str) -> None:
    """End the processes whose command line matches the pattern."""
    processes = machine.run("ps", "-ww", "-eo", "pid=,args=").splitlines()
    found = [line.split()[0] for line in processes if re.search(pattern, line)]
    assert found, processes
    machine.run("kill", "-KILL", *found)


def is_running(machine: Machine, pid: int) -> bool:
    return str(pid) in machine.run("ps", "-eo", "pid=").split()

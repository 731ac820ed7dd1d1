"""kill -9 of every part of a yard on a Ray cluster, and nodes that lose the network, while jobs save checkpoints there.

A job of one instance and one of two print numbered lines, save checkpoints, and write directly to S3 with their own
keys. They run until the test tells them to end, so a fault may take as long as it needs.
"""

import itertools
import json
import logging
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from tests.faults.promises import assert_forward, left_in_kernel
from tests.machines import Machine, MachinesMissing
from tests.ray_cluster import RayCluster, ray_cluster
from tests.system.trainees import ENDED, Trainee
from tests.system.watching import Onlooker, folders_of, processes_of
from tests.system.yards import trainee_of
from trainyard.link.agent_process import find_agent_process
from trainyard.link.file_locks import is_held
from trainyard.link.folders import InstanceFolder
from trainyard.testing.eventually import eventually
from trainyard.testing.yard import RunningYard, start_yard
from trainyard.wire.client import Client

pytestmark = pytest.mark.slow

log = logging.getLogger(__name__)

# An instance needs two CPUs, so each node runs one instance.
NODES, CPUS = 3, 2
LONG_LEASE, SHORT_LEASE = timedelta(minutes=3), timedelta(seconds=10)
PATIENCE = timedelta(minutes=3)
RUNNER, PROXY, RAYLET, HEAD = r"ray::\S*RunnerActor", "trainyard.engines.ray.main", "raylet/raylet", "gcs_server"
WATCHDOG = "engines.cluster.lease_watchdog"

# Each run of the program increments the run number of its checkpoint, and has a unique mark.
TRAIN = """
import argparse, json, os, pathlib, signal, sys, threading, time, uuid
import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

parser = argparse.ArgumentParser()
parser.add_argument("--bucket")
parser.add_argument("--prefix")
parser.add_argument("--stubborn", type=int, default=0)
wanted = parser.parse_args()
host, mark = os.environ["SM_CURRENT_HOST"], uuid.uuid4().hex
kept = pathlib.Path("/opt/ml/checkpoints", host + ".json")
state = json.loads(kept.read_text()) if kept.exists() else {"run": 0, "step": 0}
run, step = state["run"] + 1, state["step"]
is_enough, told = threading.Event(), []
signal.signal(signal.SIGTERM, signal.SIG_IGN if wanted.stubborn else lambda *_: told.append(True))
quick = Config(connect_timeout=1, read_timeout=3, retries={"total_max_attempts": 1}, s3={"addressing_style": "path"})
s3 = boto3.client("s3", config=quick)

def state_now():
    return json.dumps({"run": run, "step": step, "mark": mark})

def save():
    kept.with_suffix(".new").write_text(state_now())
    kept.with_suffix(".new").replace(kept)

def attempt():
    try:
        s3.put_object(Bucket=wanted.bucket, Key=wanted.prefix + "/own/" + host, Body=state_now().encode())
        keys = s3.list_objects_v2(Bucket=wanted.bucket, Prefix=wanted.prefix + "/enough")["KeyCount"]
        return "done", keys
    except ClientError as error:
        return error.response["Error"]["Code"], 0
    except BotoCoreError as error:
        return type(error).__name__, 0

def write_straight():
    with open("/opt/ml/output/data/tries-" + host, "a", buffering=1) as tries:
        while True:
            outcome, keys = attempt()
            tries.write(f"{run} {time.monotonic():.3f} {outcome}\\n")
            if keys:
                is_enough.set()
            time.sleep(0.2)

threading.Thread(target=write_straight, daemon=True).start()
sys.stdout.write(f"run {run} from {step}\\n")
while not is_enough.is_set() and not told:
    step += 1
    sys.stdout.write(f"run {run} step {step}\\n")
    sys.stdout.flush()
    if step % 5 == 0:
        save()
    time.sleep(0.1)
save()
pathlib.Path("/opt/ml/model/state-" + host).write_text(state_now())
"""


class State(NamedTuple):
    """The content of a checkpoint: the run of the program that wrote it, the step, and the writer."""

    run: int
    step: int
    mark: str


@dataclass
class World:
    """A cluster, and a yard on its head machine that is killed and restarted."""

    home: Path
    cluster: RayCluster
    lease: timedelta = LONG_LEASE
    yard: RunningYard = field(init=False)
    port: int = 0

    def __post_init__(self) -> None:
        self.start()
        self.port = int(self.yard.http.rpartition(":")[2])
        self.trainee.prepare()

    @property
    def trainee(self) -> Trainee:
        return trainee_of(self.yard)

    def start(self) -> None:
        settings = {**self.cluster.settings, "TRAINYARD_SERVER_LEASE": f"{self.lease.total_seconds():g}s"}
        self.yard = start_yard(self.home, environment=settings, port=self.port)

    def use(self, lease: timedelta) -> None:
        """Restart the yard with this lease for its jobs, with all nodes present."""
        if lease != self.lease:
            self.yard.stop()
            self.lease = lease
            self.start()
        eventually(lambda: len(self.nodes()) == NODES, within=PATIENCE)

    def nodes(self) -> list[str]:
        """Return the nodes that the yard can use now."""
        with closing(self.client()) as api:
            (engine,) = api.call("trainyard", "ListEngines")["Engines"]
        return [] if engine.get("Obstacle") else [str(node["Name"]) for node in engine["Nodes"] if node.get("Slots", 1)]

    def client(self) -> Client:
        user = self.trainee.user
        return Client(user.endpoint, user.access_key_id, user.secret_access_key, user.region)

    def places(self, name: str) -> list[InstanceFolder]:
        """Return the folders on the nodes of the instances of all attempts at a job, without copied files."""
        (job,) = {folder.root.parents[1].name for folder in folders_of(self.yard, name)}
        mine = (self.home / "ray" / "id").read_text()
        return [
            InstanceFolder(each.parent) for each in self.cluster.node_folder.glob(f"*/{mine}/jobs/{job}/*/*/spec.json")
        ]

    def place(self, name: str, instance: str = "algo-1") -> InstanceFolder:
        """Return where the last attempt at an instance runs."""
        found = [each for each in self.places(name) if each.root.name == instance]
        return max(found, key=lambda each: int(each.root.parent.name))

    def machine(self, name: str, instance: str = "algo-1") -> Machine:
        place = self.place(name, instance).root
        return self.cluster.nodes[place.relative_to(self.cluster.node_folder).parts[0]]


class Run(Onlooker):
    """Watches a job for the length of a block: its statuses, its checkpoints, and its living attempts."""

    def __init__(self, world: World, name: str, hosts: int) -> None:
        super().__init__()
        self.job = name
        self.hosts = [f"algo-{number}" for number in range(1, hosts + 1)]
        self.seen: list[str] = []
        self.primary: list[str] = []
        self.stored: dict[str, list[State]] = {}  # the successive states of each object
        self.together: list[set[int]] = []  # attempts alive at the same time
        self.acknowledged: list[list[str]] = []
        self._world = world
        self._sagemaker, self._s3 = world.trainee.sagemaker, world.trainee.user.client("s3")

    def run(self) -> None:
        while not self.is_over.wait(0.1):
            living = {int(each.root.parent.name) for each in self._world.places(self.job) if is_held(each.lock)}
            self.together += [living] if len(living) > 1 else []
            # The yard may be down.
            with suppress(BotoCoreError, ClientError):
                self._look()

    def _look(self) -> None:
        told = self._sagemaker.describe_training_job(TrainingJobName=self.job)
        _note(self.primary, told["TrainingJobStatus"])
        _note(self.seen, told["SecondaryStatus"])
        for host, kind in itertools.product(self.hosts, ("checkpoints/{}.json", "own/{}")):
            key = f"{self.job}/{kind.format(host)}"
            with suppress(self._s3.exceptions.NoSuchKey):
                body = self._s3.get_object(Bucket=self._world.trainee.bucket, Key=key)["Body"].read()
                _note(self.stored.setdefault(key, []), State(**json.loads(body)))


def _note(seen: list[Any], value: Any) -> None:
    if [value] != seen[-1:]:
        seen.append(value)


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    try:
        with ray_cluster(nodes=NODES, cpus=CPUS) as started, started.head.entered():
            yield started
    except MachinesMissing as missing:
        pytest.skip(str(missing))
    except PermissionError:
        pytest.skip("only root can be on the network of a simulated machine")


@pytest.fixture(scope="module")
def world(cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("world") / "yard", cluster)
    try:
        yield made
    finally:
        made.yard.stop()


@pytest.fixture
def pair(world: World, request: pytest.FixtureRequest) -> Iterator[list[Run]]:
    """Start a job of one instance and one of two, and wait until both have stored a checkpoint."""
    world.use(LONG_LEASE)
    name = re.sub(r"\W+|_", "-", request.node.name)[-30:].strip("-")
    runs = [submit(world, f"one-{name}", 1), submit(world, f"two-{name}", 2)]
    with runs[0], runs[1]:
        for run in runs:
            begun(world, run)
        yield runs


def kill_runners(world: World, runs: list[Run]) -> None:
    for machine in world.cluster.nodes.values():
        kill_all(machine, RUNNER)


def kill_raylets(world: World, runs: list[Run]) -> None:
    """Kill the raylet of the first job's node, and that of one of the two nodes of the second job."""
    for machine in (world.machine(runs[0].job), world.machine(runs[1].job, "algo-2")):
        assert pids_of(machine, RAYLET)
        end_ray(machine)
        world.cluster.start_node(machine)


def kill_head(world: World, runs: list[Run]) -> None:
    """Kill the head and its raylet, as a reboot would. Nodes that lose it for a minute end, and must join again."""
    kill_all(world.cluster.head, HEAD)
    for machine in (world.cluster.head, *world.cluster.nodes.values()):
        end_ray(machine)
    world.cluster.start_head()
    for machine in world.cluster.nodes.values():
        world.cluster.start_node(machine)


def kill_yard(world: World, runs: list[Run]) -> None:
    world.yard.kill()
    # For this long, the jobs cannot reach a yard.
    time.sleep(2)
    world.start()


def kill_proxy(world: World, runs: list[Run]) -> None:
    (proxy,) = [pid for pid in children_of(world.yard.process.pid) if PROXY in command_of(pid)]
    os.kill(proxy, signal.SIGKILL)


def cut_for_a_moment(world: World, runs: list[Run]) -> None:
    machines = world.machine(runs[0].job), world.machine(runs[1].job, "algo-2")
    for machine in machines:
        machine.cut()
    time.sleep(5)
    for machine in machines:
        machine.join()


UNNOTICED = {
    "runners": kill_runners,
    "proxy": kill_proxy,
    "yard": kill_yard,
    "short cut": cut_for_a_moment,
    "raylets": kill_raylets,
    "head": kill_head,
}


@pytest.mark.parametrize("fault", UNNOTICED.values(), ids=UNNOTICED.keys())
def test_jobs_continue_through_the_fault(
    world: World, pair: list[Run], fault: Callable[[World, list[Run]], None]
) -> None:
    agents = [agents_of(world, run) for run in pair]
    began = time.monotonic()

    fault(world, pair)

    for run in pair:
        hear_again(world, run)
    log.info("%s: heard again after %.1f s", fault.__name__, time.monotonic() - began)
    assert [agents_of(world, run) for run in pair] == agents
    for run in pair:
        finish(world, run)
        check(world, run, attempts=1)


def test_jobs_whose_agents_are_killed_are_retried_from_their_checkpoints(world: World, pair: list[Run]) -> None:
    began = time.monotonic()

    for run, host in ((pair[0], "algo-1"), (pair[1], "algo-2")):
        machine, (agent,) = world.machine(run.job, host), agents_of(world, run)[host]
        machine.run("kill", "-KILL", str(agent))

    for run in pair:
        await_run(world, run, 2)
    log.info("agents: running again after %.1f s", time.monotonic() - began)
    for run in pair:
        finish(world, run)
        check(world, run, attempts=2)


@pytest.mark.parametrize("hosts", [1, 2])
def test_a_job_continues_elsewhere_when_its_node_is_cut_off_for_longer_than_the_lease(world: World, hosts: int) -> None:
    world.use(SHORT_LEASE)
    with submit(world, f"cut-{hosts}", hosts) as run:
        begun(world, run)
        machine, began = world.machine(run.job, f"algo-{hosts}"), time.monotonic()

        machine.cut()
        try:
            await_run(world, run, 2)
            log.info("cut of %d: running again after %.1f s", hosts, time.monotonic() - began)
        finally:
            come_back(world, machine)
        finish(world, run)
        check(world, run, attempts=2)
        passed = [step["Status"] for step in world.trainee.describe(run.job)["SecondaryStatusTransitions"]]
        assert passed.count("Interrupted") == 1, passed


def test_writes_of_an_abandoned_attempt_are_ignored_even_while_it_still_runs(world: World) -> None:
    """Its agent and its watchdog are frozen, as on a dying machine, so nobody ends its program."""
    world.use(SHORT_LEASE)
    with submit(world, "stubborn", 1, stubborn=1) as run:
        begun(world, run)
        machine, old = world.machine(run.job), world.place(run.job)
        (agent,) = agents_of(world, run)["algo-1"]
        watchmen = [*pids_of(machine, WATCHDOG + r".*" + old.root.parents[1].name), agent]
        machine.run("kill", "-STOP", *map(str, watchmen))
        machine.cut()
        began = time.monotonic()
        await_run(world, run, 2)
        first = time.monotonic()
        log.info("stubborn: running again after %.1f s", first - began)

        machine.join()

        def refused() -> list[str]:
            return [outcome for at, outcome in tries_of(old) if at > first and not is_unheard(outcome)]

        eventually(lambda: len(refused()) >= 5, within=PATIENCE)
        assert "done" not in refused()
        assert max(at for at, outcome in tries_of(old) if outcome == "done") < first
        machine.run("kill", "-CONT", *map(str, watchmen))
        come_back(world, machine)
        finish(world, run)
        # This test has caused the overlap itself.
        run.together.clear()
        check(world, run, attempts=2)


def submit(world: World, name: str, hosts: int, *, stubborn: int = 0) -> Run:
    trainee = world.trainee
    request = trainee.request(name, TRAIN)
    request["HyperParameters"] |= {"bucket": f'"{trainee.bucket}"', "prefix": f'"{name}"', "stubborn": str(stubborn)}
    request["ResourceConfig"] |= {"InstanceCount": hosts}
    request |= {
        "CheckpointConfig": {"S3Uri": f"s3://{trainee.bucket}/{name}/checkpoints"},
        "EnableManagedSpotTraining": True,
        "StoppingCondition": {"MaxRuntimeInSeconds": 900, "MaxWaitTimeInSeconds": 1800},
        "RetryStrategy": {"MaximumRetryAttempts": 1},
    }
    trainee.sagemaker.create_training_job(**request)
    eventually(lambda: folders_of(world.yard, name), within=PATIENCE)
    return Run(world, name, hosts)


def begun(world: World, run: Run) -> None:
    """Wait until each instance has stored a checkpoint to resume from; keep the lines read so far."""

    def has_stored() -> bool:
        assert not set(ENDED) & set(run.primary), (world.trainee.describe(run.job), lines_of(world, run))
        return all(f"{run.job}/checkpoints/{host}.json" in run.stored for host in run.hosts)

    eventually(has_stored, within=PATIENCE)
    run.acknowledged = lines_of(world, run)


def hear_again(world: World, run: Run) -> None:
    """Wait until each instance has reported a step that it did after this call."""
    now = {stream: len(lines) for stream, lines in enumerate(written_by(world, run))}

    def is_heard() -> bool:
        lines = lines_of(world, run)
        return len(lines) == len(now) and all(len(each) > now[stream] for stream, each in enumerate(lines))

    eventually(is_heard, within=PATIENCE)


def await_run(world: World, run: Run, number: int) -> None:
    """Wait until each instance has stored a checkpoint of that run of the program."""

    def has_stored() -> bool:
        assert not set(ENDED) & set(run.primary), (world.trainee.describe(run.job), lines_of(world, run))
        stored = [
            run.stored[f"{run.job}/{kind}"]
            for host in run.hosts
            for kind in (f"checkpoints/{host}.json", f"own/{host}")
        ]
        return all(states[-1].run == number for states in stored)

    eventually(has_stored, within=PATIENCE)


def finish(world: World, run: Run) -> None:
    world.trainee.user.client("s3").put_object(Bucket=world.trainee.bucket, Key=f"{run.job}/enough", Body=b"")
    eventually(lambda: set(ENDED) & set(run.primary), within=PATIENCE)


def check(world: World, run: Run, *, attempts: int) -> None:
    """Check all promises about a job that has ended."""
    told = world.trainee.describe(run.job)
    assert told["TrainingJobStatus"] == "Completed", told
    assert run.primary == ["InProgress", "Completed"]
    assert_forward(run.seen)
    assert not run.together, "two attempts were alive at the same time"
    check_attempts(world, run, attempts)
    check_logs(world, run, attempts)
    for key, states in run.stored.items():
        check_order(key, states, attempts)
    assert world.trainee.keys(f"out/{run.job}/output/model") == [f"out/{run.job}/output/model.tar.gz"]
    eventually(lambda: not processes_of(world.yard, run.job), within=PATIENCE)
    eventually(lambda: not any(place.ml.exists() for place in world.places(run.job)), within=PATIENCE)
    assert left_in_kernel(folders_of(world.yard, run.job)) == []


def check_attempts(world: World, run: Run, attempts: int) -> None:
    """Check that attempts followed one another. Attempts that found no free capacity do not count."""
    with closing(world.client()) as api:
        told = api.call("trainyard", "DescribeJob", TrainingJobName=run.job)["Attempts"]
    assert len(told) >= attempts
    for before, after in itertools.pairwise(told):
        assert before["EndTime"] <= after["StartTime"]


def check_logs(world: World, run: Run, attempts: int) -> None:
    """Check that each instance of each attempt logged every step once, and that lines read before the fault remain."""
    # An attempt that found no free capacity has printed nothing.
    logs = [lines for lines in lines_of(world, run) if lines]
    assert len(logs) == attempts * len(run.hosts)
    for before in run.acknowledged:
        assert any(each[: len(before)] == before for each in logs), (before, logs)
    for lines in logs:
        begin, *steps = [line.split() for line in lines]
        number, start = int(begin[1]), int(begin[3])
        expected = [f"run {number} step {step}" for step in range(start + 1, start + 1 + len(steps))]
        assert lines[1:] == expected


def check_order(key: str, states: list[State], attempts: int) -> None:
    """Check that no attempt wrote after the next one had, and that none went backwards."""
    assert states == sorted(states, key=lambda state: state[:2]), (key, states)
    assert len({state.mark for state in states}) == attempts == states[-1].run, (key, states)
    # The next attempt resumed from it.
    if "/checkpoints/" in key:
        steps = [state.step for state in states]
        assert steps == sorted(steps), (key, states)


def lines_of(world: World, run: Run) -> list[list[str]]:
    """Return the output of the programs of all instances of all attempts, as the yard has it."""
    count = len(world.trainee.streams(run.job))
    return [world.trainee.printed(run.job, instance=number) for number in range(count)]


def written_by(world: World, run: Run) -> list[list[str]]:
    """Return the same output from the nodes; some of it may not have reached the yard yet."""
    places = sorted(world.places(run.job), key=lambda place: place.root.name)
    logs = [b"".join(path.read_bytes() for path in sorted(place.logs.glob("*.log"))) for place in places]
    return [[line for line in each.decode().splitlines() if line.startswith("run ")] for each in logs]


def tries_of(place: InstanceFolder) -> list[tuple[float, str]]:
    """Return when a program tried to write directly to S3, and the outcome."""
    (file,) = (place.ml / "output" / "data").glob("tries-*")
    found = [line.split() for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return [(float(at), outcome) for _, at, outcome in found]


def is_unheard(outcome: str) -> bool:
    """Tell whether the yard did not answer."""
    return outcome.endswith(("Error", "Timeout")) and outcome != "Error"


def agents_of(world: World, run: Run) -> dict[str, list[int]]:
    """Return the agents of the last attempt, with the process ids of their machines."""
    found = {host: find_agent_process(world.place(run.job, host).root) for host in run.hosts}
    return {host: [presence.pid] for host, presence in found.items() if presence is not None}


def come_back(world: World, machine: Machine) -> None:
    """Reconnect a machine that Ray considers dead: end Ray there and start it again."""
    machine.join()
    end_ray(machine)
    world.cluster.start_node(machine)


def end_ray(machine: Machine) -> None:
    """Kill the raylet, which may have ended with its head, and wait until its runners have ended too."""
    for pid in pids_of(machine, RAYLET):
        with suppress(subprocess.CalledProcessError):
            machine.run("kill", "-KILL", str(pid))
    eventually(lambda: not pids_of(machine, RAYLET) and not pids_of(machine, RUNNER), within=PATIENCE)


def kill_all(machine: Machine, pattern: str) -> None:
    found = pids_of(machine, pattern)
    assert found, machine.run("ps", "-ww", "-eo", "pid=,args=")
    machine.run("kill", "-KILL", *map(str, found))


def pids_of(machine: Machine, pattern: str) -> list[int]:
    """Return the processes of a machine whose command line matches the pattern."""
    processes = machine.run("ps", "-ww", "-eo", "pid=,args=").splitlines()
    return [int(line.split()[0]) for line in processes if re.search(pattern, line)]


def children_of(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(each) for task in tasks for each in task.read_text().split()]


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")

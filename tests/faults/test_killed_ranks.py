"""kill -9 of a rank, of an agent and of the yard, at random moments in jobs whose three instances train together."""

import os
import random
import signal
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.faults.promises import assert_forward, assert_seconds, left_in_kernel
from tests.system.trainees import ENDED, Trainee
from tests.system.watching import folders_of, processes_of
from tests.system.yards import trainee_of
from trainyard.link.agent_process import find_agent_process
from trainyard.link.folders import InstanceFolder
from trainyard.link.specs import read_spec
from trainyard.testing.eventually import eventually
from trainyard.testing.yard import RunningYard, start_yard
from trainyard.wire.client import Client

RUNS = 4  # for each kind of launch and each victim
HOSTS = 3
STEPS = 40
THREE = {"InstanceType": "ml.m5.large", "InstanceCount": HOSTS, "VolumeSizeInGB": 1}
SERVERS = {"sagemaker_parameter_server_enabled": "true"}
LAUNCHES = {
    "torchrun": {"sagemaker_torch_distributed_enabled": "true"},
    "mpi": {"sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "2"},
}
# The process name of a rank has its job and its number, and is visible outside the sandbox. A program takes steps until
# the test lets it end, so that it never ends before it is killed.
SCRIPT = """
import ctypes, os, time
import torch
import torch.distributed as dist

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
called = os.environ["TRAINING_JOB_NAME"] + "-" + str(rank)
ctypes.CDLL(None).prctl(15, called.encode())
dist.init_process_group("gloo")
step, may_end = 0, 0.0
while step < STEPS or not may_end:
    total = torch.tensor([float(step + rank), float(rank == 0 and os.path.exists("/tmp/may-end"))])
    dist.all_reduce(total)
    assert total[0].item() == size * step + size * (size - 1) / 2, total
    may_end = total[1].item()
    print("rank", rank, "step", step, flush=True)
    step += 1
    time.sleep(0.05)
dist.barrier()
print("rank", rank, "has ended", flush=True)
if rank == 0:
    torch.save(total, os.path.join(os.environ["SM_MODEL_DIR"], "total.pt"))
dist.destroy_process_group()
""".replace("STEPS", str(STEPS))


# Workers and parameter servers that fit a line; each worker has a third of the points.
SERVED = """
import ctypes, os, time
import torch
from trainyard.parameter_server import Worker

called = os.environ["TRAINING_JOB_NAME"] + "-" + os.environ["RANK"]
ctypes.CDLL(None).prctl(15, called.encode())
torch.manual_seed(3)
data = torch.randn(60, 2)
target = data @ torch.tensor([[1.0], [-2.0]]) + 0.5
model = torch.nn.Linear(2, 1)
loss = torch.nn.functional.mse_loss
with Worker(model.named_parameters(), optimizer="SGD", lr=0.05) as server:
    step = 0
    while step < STEPS or not os.path.exists("/tmp/may-end"):
        server.pull()
        model.zero_grad()
        mine = torch.arange(server.rank, 60, server.size)
        loss(model(data[mine]), target[mine]).backward()
        server.push()
        print("rank", server.rank, "step", step, flush=True)
        step += 1
        time.sleep(0.05)
    server.finish()
    restarts = os.environ["TORCHELASTIC_RESTART_COUNT"]
    print("rank", server.rank, "restarted", restarts, "loss", float(loss(model(data), target)))
""".replace("STEPS", str(2 * STEPS))


@dataclass
class World:
    """One home folder whose yard is killed and restarted."""

    home: Path
    dice: random.Random
    yard: RunningYard = field(init=False)

    def __post_init__(self) -> None:
        self.start()

    @property
    def trainee(self) -> Trainee:
        return trainee_of(self.yard)

    def start(self) -> None:
        self.yard = start_yard(self.home, environment={"TRAINYARD_SERVER_SLOTS": str(HOSTS)})


@dataclass
class Run:
    """One job, and what the test observed of it."""

    name: str
    launch: str
    retries: int
    seen: list[str] = field(default_factory=list)  # secondary statuses, in the order of the answers
    acknowledged: list[list[str]] = field(default_factory=list)  # per instance: lines read before the kill

    @property
    def ranks(self) -> int:
        return HOSTS * (2 if self.launch == "mpi" else 1)

    def host_of(self, rank: int) -> str:
        return f"algo-{1 + rank // (self.ranks // HOSTS)}"

    def look(self, trainee: Trainee) -> str:
        secondary = str(trainee.describe(self.name)["SecondaryStatus"])
        if [secondary] != self.seen[-1:]:
            self.seen.append(secondary)
        return secondary


@pytest.fixture
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    made = World(tmp_path / "yard", random.Random(request.node.name))
    made.trainee.prepare()
    try:
        yield made
    finally:
        made.yard.stop()


@pytest.mark.slow
@pytest.mark.parametrize("launch", LAUNCHES)
def test_a_killed_rank_fails_the_job_and_is_named(world: World, launch: str) -> None:
    for number in range(RUNS):
        run = begin(world, launch, number)
        rank = world.dice.randrange(run.ranks)
        os.kill(pid_of(run, rank), signal.SIGKILL)
        told = finish(world, run)
        assert told["TrainingJobStatus"] == "Failed", told
        expected = f"rank {rank} on {run.host_of(rank)}: The program was killed by SIGKILL."
        assert expected in told["FailureReason"], (expected, told["FailureReason"])
        assert details(world, run)["FailureCard"]["Instance"] == run.host_of(rank)
        check(world, run, told, attempts=1)


@pytest.mark.slow
@pytest.mark.parametrize("launch", LAUNCHES)
def test_a_killed_agent_fails_the_job_or_causes_a_retry(world: World, launch: str) -> None:
    for number in range(RUNS):
        run = begin(world, launch, number, retries=number % 2)
        host = world.dice.choice([f"algo-{each}" for each in range(1, HOSTS + 1)])
        kill_agent(folders_of(world.yard, run.name)[-1].root.with_name(host))
        told = finish(world, run)
        if run.retries:
            assert told["TrainingJobStatus"] == "Completed", told
        else:
            assert told["TrainingJobStatus"] == "Failed"
            assert f"The agent of {host} died" in told["FailureReason"]
        check(world, run, told, attempts=1 + run.retries)


@pytest.mark.slow
@pytest.mark.parametrize("launch", LAUNCHES)
def test_a_job_continues_when_the_yard_is_killed(world: World, launch: str) -> None:
    for number in range(RUNS):
        run = begin(world, launch, number)
        world.yard.kill()
        time.sleep(world.dice.uniform(0, 1))
        world.start()
        told = finish(world, run)
        assert told["TrainingJobStatus"] == "Completed", told
        check(world, run, told, attempts=1)


@pytest.mark.slow
def test_a_rank_that_is_killed_while_the_yard_is_down_is_named_by_the_next_yard(world: World) -> None:
    for number in range(RUNS):
        run = begin(world, "torchrun", number)
        rank = world.dice.randrange(run.ranks)
        pid = pid_of(run, rank)
        world.yard.kill()
        os.kill(pid, signal.SIGKILL)
        time.sleep(world.dice.uniform(0, 1))
        world.start()
        told = finish(world, run)
        assert told["TrainingJobStatus"] == "Failed", told
        assert f"rank {rank} on {run.host_of(rank)}: The program was killed by SIGKILL." in told["FailureReason"]
        check(world, run, told, attempts=1)


@pytest.mark.slow
def test_a_stalled_rank_is_shown_and_continues_when_it_can(world: World) -> None:
    run = begin(world, "torchrun", 0, Environment={"TRAINYARD_HANG_AFTER_SECONDS": "3"})
    os.kill(pid_of(run, 1), signal.SIGSTOP)

    def hung() -> list[str]:
        told = [str(note) for note in details(world, run)["Notes"] if "seems to hang" in note]
        return told if len(told) == HOSTS else []

    told = " ".join(eventually(hung, within=timedelta(seconds=90)))
    assert "rank 0 is at " in told, told
    assert "rank 1 is at T (stopped)" in told, told
    os.kill(pid_of(run, 1), signal.SIGCONT)
    ended = finish(world, run)
    assert ended["TrainingJobStatus"] == "Completed", ended
    check(world, run, ended, attempts=1)


@pytest.mark.slow
def test_a_killed_worker_of_parameter_servers_is_replaced_and_all_workers_agree(world: World) -> None:
    for number in range(RUNS):
        run = begin(world, "servers", number)
        rank = world.dice.randrange(run.ranks)
        os.kill(pid_of(run, rank), signal.SIGKILL)
        told = finish(world, run)
        logs = [world.trainee.lines(run.name, instance=instance) for instance in range(HOSTS)]
        assert told["TrainingJobStatus"] == "Completed", (told, logs)
        assert f"[trainyard] rank {rank} was killed by signal 9; restarting it, 1 of 3." in logs[rank]
        for each in range(run.ranks):
            (line,) = [line for line in logs[each] if line.startswith(f"rank {each} restarted {int(each == rank)} ")]
            assert float(line.split()[-1]) < 0.01, line
        assert_forward(run.seen)
        assert_nothing_left(world, run)


def begin(world: World, launch: str, number: int, *, retries: int = 0, **changed: Any) -> Run:
    """Start a job, and wait until its ranks have met and have reached some step."""
    # The longest name that fits a process name.
    run = Run(f"r{number}-{uuid.uuid4().hex[:6]}", launch, retries)
    trainee = world.trainee
    script, parameters = (SCRIPT, LAUNCHES[launch]) if launch in LAUNCHES else (SERVED, SERVERS)
    request = trainee.request(run.name, script, ResourceConfig=THREE, **changed)
    request["HyperParameters"] |= parameters
    request |= {"RetryStrategy": {"MaximumRetryAttempts": retries}} if retries else {}
    trainee.sagemaker.create_training_job(**request)

    def meets() -> bool:
        assert run.look(trainee) not in ENDED, trainee.describe(run.name)
        return bool(own_lines(trainee.printed(run.name), 0))

    eventually(meets, within=timedelta(seconds=90))
    time.sleep(world.dice.uniform(0, 1))
    run.acknowledged = [trainee.printed(run.name, instance=number) for number in range(HOSTS)]
    return run


def finish(world: World, run: Run) -> dict[str, Any]:
    trainee = world.trainee

    def has_ended() -> bool:
        for instance in instances(folders_of(world.yard, run.name)):
            let_end(instance)
        return run.look(trainee) in ENDED

    eventually(has_ended, within=timedelta(seconds=120))
    return trainee.describe(run.name)


def let_end(instance: InstanceFolder) -> None:
    """Let the program of an instance end, unless it has not begun or has ended meanwhile."""
    with suppress(FileNotFoundError):
        (instance.scratch / "tmp" / "may-end").touch()


def check(world: World, run: Run, told: dict[str, Any], *, attempts: int) -> None:
    """Check all promises about a job that has ended."""
    is_whole = told["TrainingJobStatus"] == "Completed"
    folders = folders_of(world.yard, run.name)
    assert len(folders) == attempts
    assert_forward(run.seen)
    assert_seconds(told)
    assert_logged(world.trainee, run, is_whole=is_whole)
    model = [f"out/{run.name}/output/model.tar.gz"]
    assert world.trainee.keys(f"out/{run.name}/") == (model if is_whole else [])
    assert_nothing_left(world, run)


def assert_nothing_left(world: World, run: Run) -> None:
    folders = folders_of(world.yard, run.name)
    assert processes_of(world.yard, run.name) == []
    assert left_in_kernel(folders) == []
    ports = {read_spec(instance.root).master_port for instance in instances(folders)}
    assert not ports & listening(), "a port is still in use"
    assert not any(instance.ml.exists() or instance.scratch.exists() for instance in instances(folders))


def assert_logged(trainee: Trainee, run: Run, *, is_whole: bool) -> None:
    """Check that no line of a rank is lost or duplicated, and that lines read before the kill are still in a log."""
    logs = [trainee.printed(run.name, instance=number) for number in range(len(trainee.streams(run.name)))]
    for before in run.acknowledged:
        assert any(log[: len(before)] == before for log in logs), (run, before, logs)
    for log in logs:
        for rank in range(run.ranks):
            steps = own_lines(log, rank)
            assert steps == list(range(len(steps))), (run, rank, log)
    if is_whole:
        ended = sorted(line for log in logs for line in log if line.endswith("has ended"))
        assert len(ended) == run.ranks, (run, logs)


def own_lines(log: list[str], rank: int) -> list[int]:
    """Return the steps that one rank has printed."""
    mark = f"rank {rank} step "
    return [int(line.partition(mark)[2]) for line in log if mark in line]


def pid_of(run: Run, rank: int) -> int:
    """Return the process id of a rank, which may be about to start."""

    def called() -> list[int]:
        return [int(entry.name) for entry in Path("/proc").iterdir() if is_called(entry, run, rank)]

    (pid,) = eventually(called)
    return pid


def is_called(process: Path, run: Run, rank: int) -> bool:
    try:
        return process.name.isdigit() and (process / "comm").read_text() == f"{run.name}-{rank}\n"
    except OSError:
        return False


def kill_agent(folder: Path) -> None:
    presence = find_agent_process(folder)
    assert presence is not None
    os.kill(presence.pid, signal.SIGKILL)


def instances(attempts: list[InstanceFolder]) -> list[InstanceFolder]:
    return [InstanceFolder(path) for each in attempts for path in each.root.parent.iterdir() if path.is_dir()]


def listening() -> set[int]:
    """Return the ports of this machine that a process listens on."""
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A"}


def details(world: World, run: Run) -> dict[str, Any]:
    user = world.trainee.user
    with closing(Client(user.endpoint, user.access_key_id, user.secret_access_key, user.region)) as client:
        return client.call("trainyard", "DescribeJob", TrainingJobName=run.name)

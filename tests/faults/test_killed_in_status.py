"""kill -9 of the yard, of a job's agent, and of both at once, at random moments in each status of a job.

Afterwards every promise about jobs must hold: see `check`.
"""

import os
import random
import re
import signal
import time
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.faults.promises import assert_forward, assert_seconds, left_in_kernel
from tests.system.trainees import ENDED, GROUP, IMAGE, Trainee, packed
from tests.system.watching import folders_of, processes_of
from tests.system.yards import trainee_of
from trainyard.foundation.clock import utc_now
from trainyard.foundation.locations import BucketRef, Location
from trainyard.link.agent_process import find_agent_process
from trainyard.link.contract import FrameKind
from trainyard.link.folders import InstanceFolder
from trainyard.link.spool import last_frame
from trainyard.link.warm import warm_workers
from trainyard.objects.contract import Attributes
from trainyard.objects.filesystem import FilesystemObjects
from trainyard.testing.eventually import eventually
from trainyard.testing.yard import RunningYard, start_yard

RUNS = 10  # in each status, for each victim
# At least RUNS of these must hit the status.
TRIES = 4 * RUNS
STATUSES = ("Pending", "Starting", "Downloading", "Training", "Uploading", "Stopping")
VICTIMS = ("server", "agent", "both")
# The processes that programs and agents are forked from.
SERVANTS = ("worker", "fork_server")
LINES = 12
MODEL_BYTES = 12 << 20
# Zeros, which compress well and take time to unpack.
CODE_BYTES = 64 << 20
# Objects of a channel, and INSTANCES: both make the start slow.
OBJECTS = 500
INSTANCES = 10
LONGEST_WAIT_S = {
    "Pending": 1.0,
    "Starting": 0.02,
    "Downloading": 0.4,
    "Training": 1.2,
    "Uploading": 0.4,
    "Stopping": 0.5,
}
FINAL = (*ENDED, "MaxRuntimeExceeded")

SCRIPT = """
import os, signal, sys, time
is_stopped = []
signal.signal(signal.SIGTERM, lambda *_: is_stopped.append(1))
for number in range(LINES):
    os.write(1, b"line %d loss=%d;\\n" % (number, number))
    time.sleep(PAUSE)
while LINGERS and not is_stopped:
    time.sleep(0.02)
time.sleep(0.5 if is_stopped else 0)
with open("/opt/ml/model/weights", "wb") as file:
    file.write(os.urandom(SIZE))
os.write(1, b"saved\\n")
"""


@dataclass
class World:
    """One home folder whose yard is killed and restarted."""

    home: Path
    dice: random.Random
    yard: RunningYard = field(init=False)
    # A new one takes time to start, so not every run finds one.
    killed_servants: int = 0

    def __post_init__(self) -> None:
        self.start()

    @property
    def trainee(self) -> Trainee:
        return trainee_of(self.yard)

    def start(self) -> None:
        self.yard = start_yard(self.home, environment={"TRAINYARD_SERVER_SLOTS": "1"})

    def servants(self, kind: str) -> list[int]:
        """Return the warm workers of the yard, or the process that its agents are forked from."""
        if kind == "worker":
            return [worker.pid for worker in warm_workers(self.yard.home.warm)]
        return [pid for pid in children_of(self.yard.process.pid) if b"fork_server" in command_line(pid)]

    def close(self) -> None:
        self.yard.stop()
        for pid in self.servants("worker"):
            os.kill(pid, signal.SIGKILL)

    def agent_of(self, name: str) -> InstanceFolder | None:
        """Return the folder of the first living agent of a job, or None."""
        for folder in folders_of(self.yard, name):
            presence = find_agent_process(folder.root)
            if presence is not None and presence.is_alive:
                return folder
        return None


@dataclass
class Run:
    """One job, what the test observed of it, and what happened to it."""

    name: str
    status: str
    retries: int
    seen: list[str] = field(default_factory=list)  # secondary statuses, in the order of the answers
    acknowledged: list[str] = field(default_factory=list)  # log lines that a client received before the kill
    has_lost_agent: bool = False
    blocker: str = ""  # the job that occupies the only slot while this one is Pending

    def look(self, trainee: Trainee) -> str:
        told = trainee.describe(self.name)
        secondary = str(told["SecondaryStatus"])
        if [secondary] != self.seen[-1:]:
            self.seen.append(secondary)
        return secondary


@pytest.mark.slow
@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize("status", STATUSES)
def test_every_promise_about_a_job_holds_whichever_process_is_killed(tmp_path: Path, status: str, victim: str) -> None:
    play(tmp_path / "yard", status, victim)


@pytest.mark.slow
@pytest.mark.parametrize("victim", SERVANTS)
@pytest.mark.parametrize("status", ["Starting", "Training", "Stopping"])
def test_a_job_survives_the_death_of_the_process_it_was_forked_from(tmp_path: Path, status: str, victim: str) -> None:
    play(tmp_path / "yard", status, victim)


def play(home: Path, status: str, victim: str) -> None:
    world = World(home, random.Random(f"{status} {victim}"))
    try:
        prepare(world, status)
        met = 0
        for number in range(TRIES):
            run = begin(world, status, number)
            met += strike(world, run, victim)
            check(world, run, finish(world, run))
            if met == RUNS:
                break
        assert met == RUNS, f"only {met} of {TRIES} runs hit the status {status}"
        assert world.killed_servants or victim not in SERVANTS
        with closing(FilesystemObjects(world.yard.home.objects)) as objects:
            assert list(objects.verify(deep=True)) == []
    finally:
        world.close()


def prepare(world: World, status: str) -> None:
    """Prepare data and code that lengthen the short phases."""
    trainee = world.trainee.prepare()
    files = {"train.py": script_for(status)} | ({"ballast": "0" * CODE_BYTES} if status == "Downloading" else {})
    trainee.user.client("s3").put_object(Bucket="data", Key="code.tar.gz", Body=packed(files))
    if status == "Starting":
        bucket = BucketRef(trainee.user.account, "data")
        with closing(FilesystemObjects(world.yard.home.objects)) as objects:
            for number in range(OBJECTS):
                writer = objects.writer(Location(bucket, f"wide/{number:05}"), Attributes())
                writer.write(b"x")
                writer.commit(now=utc_now())


def script_for(status: str) -> str:
    pause = 0.1 if status in ("Pending", "Training") else 0.01
    size = MODEL_BYTES if status == "Uploading" else 100_000
    values = {"LINES": LINES, "PAUSE": pause, "SIZE": size, "LINGERS": status == "Stopping"}
    return re.sub("LINES|PAUSE|SIZE|LINGERS", lambda found: str(values[found[0]]), SCRIPT)


def begin(world: World, status: str, number: int) -> Run:
    """Start a job, and wait until it has reached or passed the status."""
    trainee, retries = world.trainee, world.dice.choice((0, 2))
    run = Run(f"{status.lower()}-{number}", status, retries)
    if status == "Pending":
        run.blocker = f"blocker-{number}"
        create(trainee, run.blocker)
        trainee.reach(run.blocker, "Training", *ENDED)
    create(trainee, run.name, retries=retries, is_wide=status == "Starting")
    if status == "Stopping":
        trainee.await_line(run.name, last_line())
        trainee.sagemaker.stop_training_job(TrainingJobName=run.name)
    eventually(lambda: run.look(trainee) in (status, *ENDED), within=timedelta(seconds=90))
    return run


def create(trainee: Trainee, name: str, *, retries: int = 0, is_wide: bool = False) -> None:
    prefix = "s3://data/wide/" if is_wide else "s3://data/train/"
    count = INSTANCES if is_wide else 1
    source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": prefix}}
    trainee.start(
        name,
        "",
        HyperParameters={"sagemaker_program": "train.py", "sagemaker_submit_directory": "s3://data/code.tar.gz"},
        AlgorithmSpecification={
            "TrainingImage": IMAGE,
            "TrainingInputMode": "File",
            "MetricDefinitions": [{"Name": "loss", "Regex": "loss=([0-9]+);"}],
        },
        InputDataConfig=[{"ChannelName": "train", "DataSource": source}],
        ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": count, "VolumeSizeInGB": 1},
        **({"RetryStrategy": {"MaximumRetryAttempts": retries}} if retries else {}),
    )


def strike(world: World, run: Run, victim: str) -> bool:
    """Kill the victim after a delay. Return whether the job was still in the status just before."""
    time.sleep(world.dice.uniform(0, LONGEST_WAIT_S[run.status]))
    run.acknowledged = world.trainee.printed(run.name)
    is_met = run.look(world.trainee) == run.status
    if victim in SERVANTS:
        for pid in world.servants(victim):
            os.kill(pid, signal.SIGKILL)
            world.killed_servants += 1
        return is_met
    agent = world.agent_of(run.blocker or run.name) if victim != "server" else None
    if victim != "agent":
        world.yard.kill()
    if victim == "server" or agent is None:
        return is_met and victim == "server"
    run.has_lost_agent = kill_agent(agent) and not run.blocker
    return is_met


def kill_agent(folder: InstanceFolder) -> bool:
    """Kill the agent. Return whether this ended it, rather than an earlier cause."""
    presence = find_agent_process(folder.root)
    assert presence is not None
    try:
        os.kill(presence.pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    eventually(lambda: not presence.is_alive)
    last = last_frame(folder.spool)
    return last is None or last.kind is not FrameKind.ENDED


def finish(world: World, run: Run) -> dict[str, Any]:
    """Restart the yard if needed, and wait until the job has ended."""
    if world.yard.process.poll() is not None:
        time.sleep(world.dice.uniform(0, 0.5))
        world.start()
    trainee = world.trainee
    eventually(lambda: run.look(trainee) in FINAL, within=timedelta(seconds=120))
    return trainee.describe(run.name)


def check(world: World, run: Run, told: dict[str, Any]) -> None:
    """Check all promises about a job that has ended."""
    what = (run, told)
    attempts = folders_of(world.yard, run.name)
    expected = expected_status(run)
    assert told["TrainingJobStatus"] == expected, what
    assert_forward(run.seen)
    assert [step["Status"] for step in told["SecondaryStatusTransitions"]][-1] == told["SecondaryStatus"]
    assert len(attempts) == 1 + (run.has_lost_agent and run.retries > 0 and expected != "Failed"), what
    assert_logged(world.trainee, run, is_whole=expected != "Failed")
    assert_artifact(world.trainee, run, is_there=expected != "Failed")
    assert_seconds(told)
    assert processes_of(world.yard, run.name) == []
    assert left_in_kernel(attempts) == []
    assert not any(folder.ml.exists() or folder.scratch.exists() for folder in attempts)


def expected_status(run: Run) -> str:
    if run.has_lost_agent and (not run.retries or run.status == "Stopping"):
        return "Failed"
    return "Stopped" if run.status == "Stopping" else "Completed"


def assert_logged(trainee: Trainee, run: Run, *, is_whole: bool) -> None:
    """Check that no log line and no metric value is lost or duplicated, and that each attempt has its own log."""
    whole = [f"line {number} loss={number};" for number in range(LINES)] + ["saved"]
    streams = trainee.streams(run.name)
    logs = [trainee.printed(run.name, instance=number) for number in range(len(streams))]
    assert any(log[: len(run.acknowledged)] == run.acknowledged for log in logs) or not run.acknowledged, (run, logs)
    for log in logs:
        assert log == whole[: len(log)], (run, log)
    if is_whole:
        assert logs[-1] == whole
        values = sum("loss" in line for log in logs for line in log)
        assert LINES <= points_of(trainee, run.name) <= values, run
        assert run.has_lost_agent or points_of(trainee, run.name) == values, run


def points_of(trainee: Trainee, name: str) -> int:
    told = trainee.describe(name)
    points = trainee.user.client("cloudwatch").get_metric_statistics(
        Namespace=GROUP,
        MetricName="loss",
        Dimensions=[{"Name": "TrainingJobName", "Value": name}],
        StartTime=told["CreationTime"] - timedelta(minutes=1),
        EndTime=told["TrainingEndTime"] + timedelta(minutes=1),
        Period=300,
        Statistics=["SampleCount"],
    )["Datapoints"]
    return int(sum(point["SampleCount"] for point in points))


def assert_artifact(trainee: Trainee, run: Run, *, is_there: bool) -> None:
    """Check that the artifact is complete or absent, and present if the job says so."""
    keys = trainee.keys(f"out/{run.name}/")
    assert keys in ([], [f"out/{run.name}/output/model.tar.gz"])
    if keys:
        weights = trainee.archive(keys[0])["weights"]
        assert weights is not None
        assert len(weights) == (MODEL_BYTES if run.status == "Uploading" else 100_000)
    assert keys or not is_there


def children_of(pid: int) -> list[int]:
    lines = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return [int(child) for line in lines for child in line.split()]


def command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def last_line() -> str:
    return f"line {LINES - 1} loss={LINES - 1};"

"""Managed spot training on a real yard with room for one instance."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.system.fuzz.world import User
from tests.system.trainees import Trainee
from tests.system.watching import living_agents
from tests.system.yards import trainee_of
from trainyard.formats.tensors.trials.trial import create_trial
from trainyard.testing.eventually import eventually
from trainyard.testing.yard import RunningYard, running_yard, start_yard

ONE_SLOT = {"TRAINYARD_SERVER_SLOTS": "1"}
GREET = 'print("hello", flush=True)\n'
WAIT = """
import time
print("waiting", flush=True)
while True:
    time.sleep(0.05)
"""
# Waits forever in its first attempt and writes a file in its grace period. Completes in the second.
RESUME = """
import os, signal, sys, time
import boto3

s3, name = boto3.client("s3"), os.environ["TRAINING_JOB_NAME"]
number = s3.list_objects_v2(Bucket="data", Prefix=f"{name}/attempts/")["KeyCount"] + 1
s3.put_object(Bucket="data", Key=f"{name}/attempts/{number}", Body=b"")
open(f"/opt/ml/model/of-attempt-{number}", "w").close()

def leave(*_):
    s3.put_object(Bucket="data", Key=f"{name}/left/{number}", Body=b"")
    sys.exit(0)

signal.signal(signal.SIGTERM, leave)
print(f"attempt {number}", flush=True)
while number == 1:
    time.sleep(0.05)
time.sleep(2)
"""

# Counts to 300, and saves its progress only on SIGTERM.
COUNT = """
import pathlib, signal, sys, time

kept = pathlib.Path("/opt/ml/checkpoints/count")
count = int(kept.read_text()) if kept.exists() else 0
print(f"began at {count}", flush=True)

def leave(*_):
    kept.write_text(str(count))
    print(f"left at {count}", flush=True)
    sys.exit(0)

signal.signal(signal.SIGTERM, leave)
while count < 300:
    time.sleep(0.02)
    count += 1
pathlib.Path("/opt/ml/model/count").write_text(str(count))
"""

# Trains forever in its first attempt, and five steps in the second.
LEARN = """
import pathlib, signal, sys, time, torch

kept = pathlib.Path("/opt/ml/checkpoints/seen")
last = 5 if kept.exists() else 100000
signal.signal(signal.SIGTERM, lambda *_: (kept.write_text("yes"), sys.exit(0)))
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(last):
    optimizer.zero_grad()
    model(torch.ones(3, 2)).square().mean().backward()
    optimizer.step()
    if step == 9:
        print("ten steps", flush=True)
    time.sleep(0.02)
"""

# Two instances that save only on SIGTERM, the first of them slowly. Then they complete.
TWO_LEAVE = """
import os, pathlib, signal, sys, time

host = os.environ["SM_CURRENT_HOST"]
kept = pathlib.Path("/opt/ml/checkpoints") / host

def leave(*_):
    time.sleep(1 if host == "algo-1" else 0)
    kept.write_text("left")
    sys.exit(host == "algo-2")

signal.signal(signal.SIGTERM, leave)
print("here", flush=True)
while not kept.exists():
    time.sleep(0.05)
"""
# The second instance saves something, and then the first one fails at once.
ONE_FAILS = """
import os, pathlib, sys, time
import boto3

s3, name, host = boto3.client("s3"), os.environ["TRAINING_JOB_NAME"], os.environ["SM_CURRENT_HOST"]
kept = pathlib.Path("/opt/ml/checkpoints") / host
if host == "algo-2":
    kept.write_text("saved")
    s3.put_object(Bucket="data", Key=f"{name}/word", Body=b"")
    time.sleep(60)
while not s3.list_objects_v2(Bucket="data", Prefix=f"{name}/word")["KeyCount"]:
    time.sleep(0.02)
kept.write_text("saved")
sys.exit(1)
"""


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningYard]:
    with running_yard(tmp_path_factory.mktemp("spot") / "yard", environment=ONE_SLOT) as running:
        yield running


@pytest.fixture(scope="module")
def anna(administrator: User) -> Trainee:
    return Trainee(administrator.add_user("anna")).prepare()


@pytest.fixture(scope="module")
def owner(yard: RunningYard) -> Trainee:
    """The yard's own user, whose credentials the command line uses."""
    return Trainee(trainee_of(yard).user, bucket="owners").prepare()


def spot(run_s: int = 300, wait_s: int = 600, **changed: Any) -> dict[str, Any]:
    times = {"MaxRuntimeInSeconds": run_s, "MaxWaitTimeInSeconds": wait_s}
    return {"EnableManagedSpotTraining": True, "StoppingCondition": times, **changed}


def two_instances(trainee: Trainee, name: str) -> dict[str, Any]:
    return {
        "CheckpointConfig": {"S3Uri": f"s3://{trainee.bucket}/{name}/checkpoints"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 1},
    }


def said_here(trainee: Trainee, instance: int) -> bool:
    return "here" in trainee.lines("pair", instance=instance)


def statuses(told: dict[str, Any]) -> list[str]:
    return [step["Status"] for step in told["SecondaryStatusTransitions"]]


def stop(trainee: Trainee, name: str) -> dict[str, Any]:
    trainee.sagemaker.stop_training_job(TrainingJobName=name)
    return trainee.reach(name, "Stopped")


def command(yard: RunningYard, folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run `trainyard` as the yard's own user."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "TRAINYARD_"))}
    return subprocess.run(
        [sys.executable, "-m", "trainyard.cli", *arguments],
        env=kept | {"TRAINYARD_HOME": str(yard.home.root), "HOME": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


@pytest.mark.flow
def test_a_spot_job_gives_way_to_one_on_demand_and_resumes_and_completes(anna: Trainee, yard: RunningYard) -> None:
    anna.start("cheap", RESUME, **spot())
    anna.await_line("cheap", "attempt 1")
    urgent = anna.run("urgent", GREET)
    assert urgent["TrainingJobStatus"] == "Completed", urgent.get("FailureReason")
    told = anna.reach("cheap", "Completed", "Failed", "Stopped")
    assert statuses(told) == [
        *("Pending", "Starting", "Downloading", "Training", "Interrupted"),
        *("Restarting", "Starting", "Downloading", "Training", "Uploading", "Completed"),
    ]
    assert [anna.printed("cheap", instance=number) for number in (0, 1)] == [["attempt 1"], ["attempt 2"]]
    assert anna.keys("cheap/left/") == ["cheap/left/1"]  # the grace was the program's own
    assert list(anna.archive("out/cheap/output/model.tar.gz")) == ["of-attempt-2"]
    steps = {step["Status"]: step for step in told["SecondaryStatusTransitions"]}
    assert steps["Interrupted"]["EndTime"] >= urgent["TrainingEndTime"]
    training, billable = told["TrainingTimeInSeconds"], told["BillableTimeInSeconds"]
    assert billable == max(1, round(training * 0.3))
    waited = steps["Interrupted"]["EndTime"] - steps["Interrupted"]["StartTime"]
    whole = told["TrainingEndTime"] - told["TrainingStartTime"]
    assert timedelta(seconds=training) < whole - waited + timedelta(seconds=2)
    assert not living_agents(yard)


def test_a_program_resumes_from_its_last_checkpoint(anna: Trainee) -> None:
    """The next attempt starts with what the program wrote last, in its grace period."""
    where = {"S3Uri": f"s3://{anna.bucket}/checkpoints", "LocalPath": "/opt/ml/checkpoints"}
    anna.start("counter", COUNT, **spot(CheckpointConfig=where))
    anna.await_line("counter", "began at 0")
    anna.run("intruder", GREET)
    told = anna.reach("counter", "Completed", "Failed", "Stopped")
    assert told["TrainingJobStatus"] == "Completed", told.get("FailureReason")
    first, second = (anna.printed("counter", instance=number) for number in (0, 1))
    assert first[-1].startswith("left at ")
    assert second[0] == first[-1].replace("left", "began")
    assert second[0] != "began at 0"
    assert list(anna.archive("out/counter/output/model.tar.gz").values()) == [b"300"]


def test_every_instance_keeps_what_it_saved_when_the_job_is_interrupted(anna: Trainee) -> None:
    anna.start("pair", TWO_LEAVE, **spot(**two_instances(anna, "pair")))
    for instance in (0, 1):
        eventually(partial(said_here, anna, instance))
    anna.run("third", GREET)
    told = anna.reach("pair", "Completed", "Failed", "Stopped")
    assert told["TrainingJobStatus"] == "Completed", told.get("FailureReason")
    assert anna.keys("pair/checkpoints/") == ["pair/checkpoints/algo-1", "pair/checkpoints/algo-2"]


def test_an_instance_that_is_ended_because_another_failed_keeps_what_it_saved(anna: Trainee) -> None:
    told = anna.run("broken", ONE_FAILS, **spot(**two_instances(anna, "broken")))
    assert told["TrainingJobStatus"] == "Failed"
    assert anna.keys("broken/checkpoints/") == ["broken/checkpoints/algo-1", "broken/checkpoints/algo-2"]


def test_a_schedule_interrupts_again_and_again_and_the_sums_tell_it(
    owner: Trainee, yard: RunningYard, tmp_path: Path
) -> None:
    before = json.loads(command(yard, tmp_path, "spot", "--json").stdout)["Total"]
    where = {"S3Uri": f"s3://{owner.bucket}/again", "LocalPath": "/opt/ml/checkpoints"}
    owner.start("again", COUNT.replace("300", "100"), **spot(CheckpointConfig=where))
    done = command(yard, tmp_path, "interrupt", "again", "--every", "0.4", "--seed", "3", "--times", "2")
    assert done.returncode == 0, done.stderr
    assert [line.split(" after ")[0] for line in done.stderr.splitlines()[:2]] == [
        "Interrupted attempt 1",
        "Interrupted attempt 2",
    ]
    told = owner.reach("again", "Completed", "Failed", "Stopped")
    assert (told["TrainingJobStatus"], statuses(told).count("Interrupted")) == ("Completed", 2)
    after = json.loads(command(yard, tmp_path, "spot", "--json").stdout)["Total"]
    for member, value in (("Jobs", 1), ("Interruptions", 2), ("TrainingTimeInSeconds", told["TrainingTimeInSeconds"])):
        assert after[member] - before[member] == value
    assert 0 < after["MedianResumeInSeconds"] <= after["WorstResumeInSeconds"]
    rounded = 100 * after["Jobs"] / after["TrainingTimeInSeconds"]  # each job is billed by whole seconds
    assert after["SavingInPercent"] == pytest.approx(70, abs=1 + rounded)
    assert command(yard, tmp_path, "spot").stdout.splitlines()[1].startswith("ml.m5.large ")


def test_spot_jobs_of_which_nobody_takes_the_place_are_left_alone(anna: Trainee) -> None:
    told = anna.run("undisturbed", GREET, **spot())
    assert statuses(told) == ["Pending", "Starting", "Downloading", "Training", "Uploading", "Completed"]


def test_the_command_interrupts_a_running_spot_job_and_shows_it(
    owner: Trainee, yard: RunningYard, tmp_path: Path
) -> None:
    script = RESUME.replace('"data"', '"owners"')
    owner.start("played", script, **spot())
    owner.await_line("played", "attempt 1")
    done = command(yard, tmp_path, "interrupt", "played")
    assert done.returncode == 0, done.stderr
    assert '"played" is interrupted' in done.stderr + done.stdout
    told = owner.reach("played", "Completed", "Failed", "Stopped")
    assert statuses(told).count("Interrupted") == 1
    assert told["TrainingJobStatus"] == "Completed", told.get("FailureReason")
    shown = command(yard, tmp_path, "describe", "played").stdout
    assert re.search(rf"interrupted: {yard.credentials.user} interrupted it\. Resumed after \d+\.\d+ s\.", shown), shown
    late = command(yard, tmp_path, "interrupt", "played")
    assert late.returncode != 0
    assert "is Completed" in late.stderr


def test_the_steps_of_a_training_that_was_interrupted_are_one_row(
    owner: Trainee, yard: RunningYard, tmp_path: Path
) -> None:
    where = {"S3Uri": f"s3://{owner.bucket}/learned", "LocalPath": "/opt/ml/checkpoints"}
    watched = {"DebugHookConfig": {"S3OutputPath": f"s3://{owner.bucket}/tensors"}}
    owner.start("learns", LEARN, **spot(CheckpointConfig=where), **watched)
    owner.await_line("learns", "ten steps")
    assert command(yard, tmp_path, "interrupt", "learns").returncode == 0
    told = owner.reach("learns", "Completed", "Failed", "Stopped")
    assert (told["TrainingJobStatus"], statuses(told).count("Interrupted")) == ("Completed", 1)
    prefix = "tensors/learns/debug-output/"
    for key in owner.keys(prefix):
        place = tmp_path / "tensors" / key.removeprefix(prefix)
        place.parent.mkdir(parents=True, exist_ok=True)
        owner.user.client("s3").download_file(owner.bucket, key, str(place))
    losses = create_trial(tmp_path / "tensors").series("loss_output_0")
    assert len(losses.steps) >= 15
    assert list(losses.steps) == list(range(len(losses.steps)))


def test_a_job_on_demand_cannot_be_interrupted(owner: Trainee, yard: RunningYard, tmp_path: Path) -> None:
    owner.start("firm", WAIT)
    owner.await_line("firm", "waiting")
    refused = command(yard, tmp_path, "interrupt", "firm")
    assert refused.returncode != 0
    assert "is not a spot job" in refused.stderr
    assert owner.describe("firm")["SecondaryStatus"] == "Training"
    stop(owner, "firm")


def test_a_job_can_be_stopped_while_it_is_interrupted(anna: Trainee) -> None:
    anna.start("unlucky", RESUME, **spot())
    anna.await_line("unlucky", "attempt 1")
    anna.start("lasting", WAIT)
    anna.await_line("lasting", "waiting")
    assert anna.describe("unlucky")["SecondaryStatus"] == "Interrupted"
    told = stop(anna, "unlucky")
    assert statuses(told)[-3:] == ["Interrupted", "Stopping", "Stopped"]
    assert anna.keys("out/unlucky/") == []
    assert anna.describe("lasting")["SecondaryStatus"] == "Training"
    stop(anna, "lasting")


def test_a_spot_job_that_waits_longer_than_it_may_ends_unstarted(anna: Trainee) -> None:
    anna.start("holder", WAIT)
    anna.await_line("holder", "waiting")
    anna.start("hopeful", GREET, **spot(run_s=2, wait_s=3))
    told = anna.reach("hopeful", "Stopped")
    assert statuses(told) == ["Pending", "Stopping", "MaxWaitTimeExceeded"]
    assert timedelta(seconds=3) <= told["TrainingEndTime"] - told["CreationTime"] < timedelta(seconds=10)
    assert "TrainingStartTime" not in told
    stop(anna, "holder")


@pytest.mark.slow
def test_waiting_and_running_count_together(anna: Trainee) -> None:
    anna.start("before", WAIT)
    anna.await_line("before", "waiting")
    anna.start("both", WAIT, **spot(run_s=30, wait_s=30))
    waits_until = anna.describe("both")["CreationTime"] + timedelta(seconds=4)
    eventually(lambda: datetime.now(UTC) > waits_until, "four seconds of waiting")
    assert anna.describe("both")["SecondaryStatus"] == "Pending"
    stop(anna, "before")
    anna.await_line("both", "waiting")
    told = anna.reach("both", "Stopped")
    assert statuses(told)[-2:] == ["Stopping", "MaxWaitTimeExceeded"]
    assert told["TrainingTimeInSeconds"] < 30


def test_less_time_to_wait_than_to_run_is_refused(anna: Trainee) -> None:
    with pytest.raises(ClientError, match=r"\(ValidationException\).*MaxWaitTimeInSeconds is 9"):
        anna.start("impatient", GREET, **spot(run_s=10, wait_s=9))


@pytest.mark.slow
def test_an_interrupted_job_outlives_a_kill_of_the_yard(tmp_path: Path) -> None:
    home = tmp_path / "yard"
    first = start_yard(home, environment=ONE_SLOT)
    try:
        anna = trainee_of(first).prepare()
        anna.start("cheap", RESUME, **spot())
        anna.await_line("cheap", "attempt 1")
        anna.start("lasting", WAIT)
        anna.reach("cheap", "Interrupted")
        anna.reach("lasting", "Starting", "Downloading", "Training")  # before that a spot job may still be first
    finally:
        first.kill()
    with running_yard(home, environment=ONE_SLOT) as second:
        anna = trainee_of(second)
        anna.await_line("lasting", "waiting")
        assert anna.describe("cheap")["SecondaryStatus"] == "Interrupted"
        stop(anna, "lasting")
        told = anna.reach("cheap", "Completed", "Failed", "Stopped")
        assert told["TrainingJobStatus"] == "Completed", told.get("FailureReason")
        assert statuses(told).count("Interrupted") == 1
        assert anna.keys("cheap/attempts/") == ["cheap/attempts/1", "cheap/attempts/2"]
        assert not living_agents(second)


def test_run_starts_spot_jobs_and_tells_what_that_saved(yard: RunningYard, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import time\ntime.sleep(3)\nprint('trained', flush=True)\n")
    done = command(yard, tmp_path, "run", "--use-spot-instances", "--it", "ml.m5.large", "train.py")
    assert done.returncode == 0, done.stderr
    assert re.search(r"Spot saved [5-9]\d%\.", done.stdout + done.stderr), done.stdout + done.stderr

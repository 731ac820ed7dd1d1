"""An upgrade in place: the current code opens a home that an earlier release made, and continues its work.

The earlier release is real. Its source comes from the history of this repository and runs in the same environment.
"""

import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.postgres import PostgresMissing, postgres_server
from tests.system.trainees import ENDED, Trainee
from tests.system.tuners import Tuner, objectives_of
from tests.system.yards import trainee_of
from trainyard.testing.eventually import eventually
from trainyard.testing.yard import RunningYard, port_to_keep, start_yard

# The last commit before state and priority became columns of the records and the packages got their present names.
EARLIER_RELEASE = "a622ce1466fa7b2841b7a3d26c29b198a037fc4e"
ROOT = Path(__file__).parents[2]

FINISH = """
import os
for epoch in range(1, 4):
    print(f"epoch {epoch} loss={1 / epoch};", flush=True)
open("/opt/ml/model/weights", "w").write("0.5")
"""
# Trains until the test puts the object data/go. No yard answers while one release replaces the other.
WAIT_FOR_GO = """
import time
import boto3
from botocore.exceptions import BotoCoreError, ClientError

s3 = boto3.client("s3")
print("waiting", flush=True)
may_go = False
while not may_go:
    time.sleep(0.1)
    try:
        may_go = s3.list_objects_v2(Bucket="data", Prefix="go")["KeyCount"] > 0
    except (BotoCoreError, ClientError):
        pass
print("continued", flush=True)
open("/opt/ml/model/weights", "w").write("0.5")
"""
TRAIN_WITH_TENSORS = """
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    loss = torch.nn.functional.mse_loss(model(torch.ones(8, 4)), torch.zeros(8, 1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
SCORE = "report((float(tuned['x']) - 0.4) ** 2)"
SCORE_AFTER_GO = WAIT_FOR_GO + SCORE


@dataclass
class OldHome:
    """A home that the earlier release filled, and how to start either release on it."""

    folder: Path
    environment: dict[str, str]
    earlier_source: Path
    # Running jobs know the yard by its address, so every start must have the same one.
    port: int = field(default_factory=port_to_keep)

    def start_earlier(self) -> RunningYard:
        return start_yard(self.folder, environment=self._earlier_environment(), port=self.port)

    def start_current(self) -> RunningYard:
        return start_yard(self.folder, environment=self.environment, port=self.port)

    def run_earlier_command(self, *arguments: str) -> str:
        return _run_command(*arguments, environment=self._earlier_environment())

    def _earlier_environment(self) -> dict[str, str]:
        return self.environment | {"PYTHONPATH": str(self.earlier_source)}


@pytest.fixture(scope="module")
def earlier_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Check out the source of the earlier release from the history of the repository."""
    archive = subprocess.run(["git", "archive", EARLIER_RELEASE, "src"], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode != 0:
        pytest.skip("the history of this checkout does not reach back to the earlier release (a shallow clone?)")
    folder = tmp_path_factory.mktemp("earlier")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as source:
        source.extractall(folder, filter="data")
    return folder / "src"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def old_home(request: pytest.FixtureRequest, earlier_source: Path, tmp_path: Path) -> Iterator[OldHome]:
    with ExitStack() as stack:
        environment = {"TRAINYARD_SERVER_SLOTS": "2"}
        if request.param == "postgresql":
            try:
                server = stack.enter_context(postgres_server())
            except PostgresMissing as missing:
                pytest.skip(str(missing))
            environment["TRAINYARD_SERVER_RECORDS"] = stack.enter_context(server.database())
        yield OldHome(tmp_path / "yard", environment, earlier_source)


def test_a_home_of_the_earlier_release_opens_and_its_jobs_continue(old_home: OldHome, tmp_path: Path) -> None:
    yard = old_home.start_earlier()
    try:
        trainee = trainee_of(yard).prepare()
        _finish_jobs(trainee)
        finished = _remember(trainee)
        _leave_unfinished_jobs(trainee)
        old_home.run_earlier_command("backup", str(tmp_path / "backup.tar"), "--home", str(old_home.folder))
    finally:
        yard.kill()

    yard = old_home.start_current()
    try:
        trainee = trainee_of(yard)
        assert _remember(trainee) == finished
        assert trainee.describe("running")["TrainingJobStatus"] == "InProgress"
        assert trainee.describe("queued")["SecondaryStatus"] == "Pending"
        _expect_all_to_finish(trainee)
    finally:
        yard.stop()


def test_a_backup_of_the_earlier_release_is_restored(old_home: OldHome, tmp_path: Path) -> None:
    yard = old_home.start_earlier()
    try:
        trainee = trainee_of(yard).prepare()
        _finish_jobs(trainee)
        finished = _remember(trainee)
        old_home.run_earlier_command("backup", str(tmp_path / "backup.tar"), "--home", str(old_home.folder))
    finally:
        yard.stop()

    restored = tmp_path / "restored"
    _run_command("restore", str(tmp_path / "backup.tar"), "--home", str(restored), environment={})
    yard = start_yard(restored)
    try:
        trainee = trainee_of(yard)
        assert _remember(trainee) == finished
        assert trainee.run("after-restore", FINISH)["TrainingJobStatus"] == "Completed"
    finally:
        yard.stop()


def _finish_jobs(trainee: Trainee) -> None:
    """Run a job with metrics, one with tensors, and a small tuning job to their ends."""
    algorithm = trainee.request("ended", FINISH)["AlgorithmSpecification"]
    metrics = [{"Name": "loss", "Regex": "loss=(.*);"}]
    trainee.start("ended", FINISH, AlgorithmSpecification=algorithm | {"MetricDefinitions": metrics})
    hook = {
        "S3OutputPath": "s3://data/tensors",
        "HookParameters": {"save_interval": "5"},
        "CollectionConfigurations": [{"CollectionName": "gradients"}],
    }
    trainee.start("with-tensors", TRAIN_WITH_TENSORS, DebugHookConfig=hook)
    Tuner(trainee).start("tuned", SCORE, ranges={"x": (0.0, 1.0)}, trials=3)
    for name in ("ended", "with-tensors"):
        told = trainee.reach(name, *ENDED)
        assert told["TrainingJobStatus"] == "Completed", told
    assert Tuner(trainee).finish("tuned")["HyperParameterTuningJobStatus"] == "Completed"


def _leave_unfinished_jobs(trainee: Trainee) -> None:
    """Leave a job running, one trial of a tuning job running, and one on-demand and one spot job in the queue."""
    trainee.start("running", WAIT_FOR_GO)
    trainee.await_line("running", "waiting")
    Tuner(trainee).start("tuning", SCORE_AFTER_GO, ranges={"x": (0.0, 1.0)}, trials=2, parallel=1)
    eventually(lambda: Tuner(trainee).trials("tuning"))
    trial = Tuner(trainee).trials("tuning")[0]["TrainingJobName"]
    trainee.await_line(trial, "waiting")
    trainee.start("queued", FINISH)
    limits = {"MaxRuntimeInSeconds": 300, "MaxWaitTimeInSeconds": 600}
    trainee.start("queued-spot", FINISH, EnableManagedSpotTraining=True, StoppingCondition=limits)
    assert trainee.describe("queued")["SecondaryStatus"] == "Pending"


def _expect_all_to_finish(trainee: Trainee) -> None:
    trainee.user.client("s3").put_object(Bucket="data", Key="go", Body=b"")
    for name in ("running", "queued", "queued-spot"):
        told = trainee.reach(name, *ENDED)
        assert told["TrainingJobStatus"] == "Completed", (name, told)
        assert "weights" in trainee.archive(f"out/{name}/output/model.tar.gz")
    assert trainee.printed("running") == ["waiting", "continued"]
    assert Tuner(trainee).finish("tuning")["HyperParameterTuningJobStatus"] == "Completed"
    objectives = objectives_of(Tuner(trainee).trials("tuning"))
    assert len(objectives) == 2
    assert None not in objectives


def _remember(trainee: Trainee) -> dict[str, Any]:
    """Return what users see of the ended jobs."""
    described = [trainee.describe(name) for name in ("ended", "with-tensors")]
    tuned = Tuner(trainee).describe("tuned")
    trials = Tuner(trainee).trials("tuned")
    for answer in (*described, tuned):
        answer.pop("ResponseMetadata")
    return {
        "jobs": json.loads(json.dumps(described, default=str)),
        "tuned": json.loads(json.dumps(tuned, default=str)),
        "trials": json.loads(json.dumps(trials, default=str)),
        "logs": {name: trainee.lines(name) for name in ("ended", "with-tensors")},
        "model": trainee.archive("out/ended/output/model.tar.gz"),
        "tensors": trainee.keys("tensors/with-tensors/"),
    }


def _run_command(*arguments: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "trainyard.cli", *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout

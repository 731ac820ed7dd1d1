"""Resume drills on a real yard: scripts that resume, that start over, and that resume wrongly."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.system.test_spot import command
from tests.system.trainees import Trainee
from tests.system.yards import trainee_of
from trainyard.testing.yard import RunningYard, running_yard

METRIC = {"Name": "loss", "Regex": "loss ([0-9.e-]+)"}
STEPS = 32

# A small gradient descent in torch that saves every few steps. `--way` says how it resumes: correctly, from the
# beginning, or with the right step and wrong weights.
TRAIN = f"""
import argparse, os, time
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--way", default="right")
parser.add_argument("--steps", type=int, default={STEPS})
options = parser.parse_args()

torch.set_num_threads(1)
weights, step = torch.full((4,), 2.0, dtype=torch.float64), 0
kept = "/opt/ml/checkpoints/state.pt"
if os.path.exists(kept) and options.way != "over":
    state = torch.load(kept, weights_only=True)
    step = state["step"]
    weights = state["weights"] if options.way == "right" else weights
for step in range(step + 1, options.steps + 1):
    weights = weights - 0.01 * weights
    print(f"step {{step}} loss {{weights.square().sum().item()}}", flush=True)
    if step % 8 == 0:
        torch.save({{"step": step, "weights": weights}}, kept + ".new")
        os.replace(kept + ".new", kept)
    time.sleep(0.08)
torch.save({{"weights": weights}}, "/opt/ml/model/model.pt")
"""


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningYard]:
    with running_yard(tmp_path_factory.mktemp("drill") / "yard") as running:
        yield running


@pytest.fixture(scope="module")
def owner(yard: RunningYard) -> Trainee:
    return trainee_of(yard).prepare()


def start(owner: Trainee, name: str, **hyperparameters: str) -> None:
    request = owner.request(name, TRAIN)
    request["HyperParameters"] |= hyperparameters
    request["AlgorithmSpecification"]["MetricDefinitions"] = [METRIC]
    request["CheckpointConfig"] = {"S3Uri": f"s3://{owner.bucket}/checkpoints/{name}"}
    owner.sagemaker.create_training_job(**request)


def abandoned(owner: Trainee, name: str, **hyperparameters: str) -> None:
    """Create a job without waiting for it; its definition is enough for a drill."""
    start(owner, name, **hyperparameters)
    owner.sagemaker.stop_training_job(TrainingJobName=name)
    owner.reach(name, "Stopped")


def drill(yard: RunningYard, folder: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = command(yard, folder, "drill", *arguments, "--json")
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def drills(owner: Trainee) -> list[str]:
    found = owner.sagemaker.list_training_jobs(NameContains="-drill-", MaxResults=100)["TrainingJobSummaries"]
    return sorted(each["TrainingJobName"] for each in found)


@pytest.mark.slow
def test_a_script_that_resumes_is_found_to_and_nothing_of_its_own_is_touched(
    owner: Trainee, yard: RunningYard, tmp_path: Path
) -> None:
    start(owner, "right")
    owner.reach("right", "Completed")
    own = owner.user.client("s3").list_objects_v2(Bucket=owner.bucket)["Contents"]
    code, told = drill(yard, tmp_path, "right")
    assert (code, told["Finding"], told["Resumes"]) == (0, "resumes exactly", True), told
    whole, again = told["Jobs"]
    assert (whole["Interruptions"], again["Interruptions"]) == (0, 1)
    assert told["Evidence"][0].startswith("It resumed after value ")
    assert owner.user.client("s3").list_objects_v2(Bucket=owner.bucket)["Contents"] == own
    assert drills(owner) == sorted([whole["TrainingJobName"], again["TrainingJobName"]])
    interrupted = owner.describe(again["TrainingJobName"])
    assert interrupted["EnableManagedSpotTraining"]
    bucket, _, prefix = interrupted["CheckpointConfig"]["S3Uri"].removeprefix("s3://").partition("/")
    assert prefix.startswith("trainyard-drills/")
    cleaned = command(yard, tmp_path, "drill", "right", "--clean")
    assert (cleaned.returncode, drills(owner)) == (0, []), cleaned.stderr
    assert owner.user.client("s3").list_objects_v2(Bucket=bucket, Prefix="trainyard-drills/")["KeyCount"] == 0


@pytest.mark.slow
def test_a_script_that_starts_over_is_caught_although_its_model_is_the_same(
    owner: Trainee, yard: RunningYard, tmp_path: Path
) -> None:
    abandoned(owner, "over", way="over")
    done = command(yard, tmp_path, "drill", "over", "--rm")
    assert (done.returncode, drills(owner)) == (1, []), done.stderr
    assert done.stdout.startswith("does not resume: it started over. ")
    assert f'The second attempt reported "loss" {STEPS} times' in done.stdout


@pytest.mark.slow
def test_a_script_that_resumes_wrongly_learns_by_how_much(owner: Trainee, yard: RunningYard, tmp_path: Path) -> None:
    abandoned(owner, "wrong", way="wrong")
    code, told = drill(yard, tmp_path, "wrong", "--rm")
    assert (code, told["Finding"]) == (1, "resumes, but its result differs"), told
    assert "differ by up to " in told["Sentence"]
    assert "model.pt: weights" in told["Sentence"]


def test_a_job_that_is_over_at_once_cannot_be_judged(owner: Trainee, yard: RunningYard, tmp_path: Path) -> None:
    request = owner.request("short", "print('over')")
    request["CheckpointConfig"] = {"S3Uri": f"s3://{owner.bucket}/checkpoints/short"}
    owner.sagemaker.create_training_job(**request)
    owner.reach("short", "Completed")
    code, told = drill(yard, tmp_path, "short", "--rm")
    assert (code, told["Finding"], len(told["Jobs"])) == (7, "could not be interrupted", 1), told
    assert "It ended after " in told["Sentence"]


@pytest.mark.flow
def test_a_job_without_checkpoints_is_advised_to_save_some(owner: Trainee, yard: RunningYard, tmp_path: Path) -> None:
    owner.run("bare", "print('done')")
    code, told = drill(yard, tmp_path, "bare")
    assert (code, told["Jobs"], drills(owner)) == (1, [], [])
    assert 'Training job "bare" has no CheckpointConfig' in told["Sentence"]

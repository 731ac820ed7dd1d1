"""Whole jobs whose agents reach the objects of the yard only through its S3, as those on other machines do."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.system.trainees import Trainee
from tests.system.yards import trainee_of
from trainyard.testing.yard import RunningYard, running_yard

LARGE = bytes(range(256)) * (9 << 12)  # 9 MiB, which come in pieces
FILES = {**{f"part-{number:02}.csv": b"%d\n" % number * 500 for number in range(30)}, "deep/er large.bin": LARGE}

READS = """
import hashlib, json, os, pathlib

def digests(root):
    files = sorted(path for path in pathlib.Path(root).rglob("*") if path.is_file())
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

data = "/opt/ml/input/data"
print("file", json.dumps(digests(f"{data}/file")), flush=True)
print("fast", json.dumps(digests(f"{data}/fast")), flush=True)
with open(f"{data}/pipe_0", "rb") as pipe:
    print("pipe", hashlib.sha256(pipe.read()).hexdigest(), flush=True)
print("endpoint", os.environ["AWS_ENDPOINT_URL"], flush=True)
for folder in ("model", "output/data", "output/tensorboard"):
    os.makedirs(f"/opt/ml/{folder}", exist_ok=True)
    pathlib.Path(f"/opt/ml/{folder}/kept").write_bytes(b"w" * 6_000_000)
"""

COUNTS = """
import os, pathlib, signal, sys, time

kept = pathlib.Path("/opt/ml/checkpoints/count")
count = int(kept.read_text()) if kept.exists() else 0
print(f"began at {count}", flush=True)

def leave(*_):
    kept.write_text(str(count))
    sys.exit(0)

signal.signal(signal.SIGTERM, leave)
while count < 150:
    time.sleep(0.02)
    count += 1
pathlib.Path("/opt/ml/model/count").write_text(str(count))
"""


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningYard]:
    home = tmp_path_factory.mktemp("system") / "yard"
    with running_yard(home, environment={"TRAINYARD_SERVER_ENGINES": "tests.system.distant:open_engine"}) as running:
        yield running


@pytest.fixture(scope="module")
def owner(yard: RunningYard) -> Trainee:
    trainee = trainee_of(yard)
    s3 = trainee.user.client("s3")
    s3.create_bucket(Bucket=trainee.bucket)
    for name, body in {**FILES, "//odd/./name": b"odd", "marked/": b""}.items():
        s3.put_object(Bucket=trainee.bucket, Key=f"train/{name}", Body=body)
    return trainee


def channel(name: str, mode: str, prefix: str = "train/part-") -> dict[str, Any]:
    source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://data/{prefix}", "S3DataDistributionType": "FullyReplicated"}
    return {"ChannelName": name, "InputMode": mode, "DataSource": {"S3DataSource": source}}


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


@pytest.mark.flow
def test_channels_of_every_mode_code_and_results_go_through_the_yard(owner: Trainee, yard: RunningYard) -> None:
    told = owner.run(
        "modes",
        READS,
        InputDataConfig=[
            channel("file", "File", "train/deep"),
            channel("fast", "FastFile"),
            channel("pipe", "Pipe"),
        ],
        TensorBoardOutputConfig={"S3OutputPath": "s3://data/board"},
    )

    assert told["TrainingJobStatus"] == "Completed", told.get("FailureReason")
    printed = dict(line.split(" ", 1) for line in owner.printed("modes"))
    parts = {name: body for name, body in FILES.items() if name.startswith("part-")}
    assert json.loads(printed["file"]) == {"er large.bin": digest(LARGE)}
    assert json.loads(printed["fast"]) == {name: digest(body) for name, body in parts.items()}
    assert printed["pipe"] == digest(b"".join(parts[name] for name in sorted(parts)))
    assert printed["endpoint"] == yard.http
    assert owner.archive("out/modes/output/model.tar.gz") == {"kept": b"w" * 6_000_000}
    assert owner.archive("out/modes/output/output.tar.gz") == {"kept": b"w" * 6_000_000}
    assert owner.keys("board/") == ["board/modes/tensorboard-output/kept"]


@pytest.mark.slow
def test_an_interrupted_job_resumes_from_its_checkpoints(owner: Trainee, yard: RunningYard, tmp_path: Path) -> None:
    spot = {"MaxRuntimeInSeconds": 300, "MaxWaitTimeInSeconds": 600}
    owner.start(
        "resumed",
        COUNTS,
        EnableManagedSpotTraining=True,
        StoppingCondition=spot,
        CheckpointConfig={"S3Uri": "s3://data/ck/resumed"},
    )
    owner.await_line("resumed", "began at 0")
    command = [sys.executable, "-m", "trainyard.cli", "interrupt", "resumed"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "TRAINYARD_"))}
    environment = kept | {"TRAINYARD_HOME": str(yard.home.root), "HOME": str(tmp_path)}
    subprocess.run(command, env=environment, cwd=tmp_path, check=True, capture_output=True, timeout=90)

    told = owner.reach("resumed", "Completed", "Failed")

    assert told["TrainingJobStatus"] == "Completed", told.get("FailureReason")
    began = [line for number in (0, 1) for line in owner.printed("resumed", instance=number)]
    assert len(began) == 2
    assert int(began[1].rpartition(" ")[2]) > 0
    assert owner.archive("out/resumed/output/model.tar.gz") == {"count": b"150"}


def test_a_key_that_no_file_can_have_is_named(owner: Trainee) -> None:
    told = owner.run("odd", READS, InputDataConfig=[channel("file", "File", "train//")])

    assert told["FailureReason"] == (
        "ClientError: The object s3://data/train///odd/./name of channel file cannot be staged: its key is not a path "
        "that a file can have."
    )

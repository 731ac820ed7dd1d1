"""Whole jobs of a yard that keeps its objects in a faulty remote S3."""

import contextlib
import hashlib
import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.faulty_s3 import BreakOff, Fault, FaultyS3, First, Refuse, Reset, Shorten, Wait, faulty_s3
from tests.system.trainees import Trainee
from tests.system.yards import trainee_of
from trainyard.testing.yard import RunningYard, running_yard

LARGE = bytes(range(256)) * (9 << 12)  # 9 MiB, which come in pieces
SMALL = {f"part-{number:02}.csv": f"{number},{number}\n".encode() * (number * 10) for number in range(30)}
FILES = {**SMALL, "deep/er/large.bin": LARGE, "empty": b""}

# Prints what it reads, then changes its channel.
READS = """
import hashlib, json, os, pathlib, shutil

for name in sorted(os.listdir("/opt/ml/input/data")):
    root = pathlib.Path("/opt/ml/input/data", name)
    if not root.is_dir():  # the manifest of a channel
        continue
    files = sorted(path for path in root.rglob("*") if path.is_file())
    digests = {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    print(name, json.dumps(digests), flush=True)
    for path in files[:3]:
        path.write_bytes(b"mine")
    shutil.rmtree(root / "deep", ignore_errors=True)
    (root / "unpacked").write_bytes(b"more")
host = os.environ["SM_CURRENT_HOST"]
pathlib.Path("/opt/ml/model", f"weights-{host}").write_bytes(b"w" * 6_000_000)
pathlib.Path("/opt/ml/output/data", f"notes-{host}").write_text("notes")
"""

# Saves its progress in small and large files, only on SIGTERM.
COUNT = """
import os, pathlib, signal, sys, time

root = pathlib.Path("/opt/ml/checkpoints")
kept = root / "count"
count = int(kept.read_text()) if kept.exists() else 0
large = root / "step" / "weights.pt"
print(f"began at {count} with {sorted(os.listdir(root))} {large.stat().st_size if large.exists() else 0}", flush=True)

def leave(*_):
    for number in range(40):
        (root / f"shard-{number}").write_text(str(count))
    large.parent.mkdir(exist_ok=True)
    large.write_bytes(b"w" * 9_000_000)
    kept.write_text(str(count))
    sys.exit(0)

signal.signal(signal.SIGTERM, leave)
while count < 300:
    time.sleep(0.02)
    count += 1
assert all((root / f"shard-{number}").read_text() == kept.read_text() for number in range(40))
pathlib.Path("/opt/ml/model/count").write_text(str(count))
"""

# Looks everywhere for a secret, which it has only in reverse.
HUNTS = """
import os, pathlib, sys

secret = os.environ["BACKWARDS"][::-1].encode()
found, looked = [], 0

def look(path):
    global looked
    try:
        with open(path, "rb") as file:
            looked += 1
            if secret in file.read(1 << 20):
                found.append(path)
    except OSError:
        pass

if any(secret.decode() in value for value in os.environ.values()):
    found.append("environment")
for process in filter(str.isdigit, os.listdir("/proc")):
    for name in ("environ", "cmdline", "mountinfo", "maps"):
        look(f"/proc/{process}/{name}")
for root in ("/opt/ml", "/tmp", "/var/tmp", "/run", "/home", "/root", "/dev/shm", os.environ["YARD"]):
    for parent, folders, files in os.walk(root):
        for name in files:
            look(os.path.join(parent, name))
print("looked at many" if looked > 20 else f"looked at {looked} only", flush=True)
print("found", found, flush=True)
"""


@dataclass(frozen=True)
class Remote:
    """The S3 behind the yard, as its direct clients see it."""

    faulty: FaultyS3
    yard: RunningYard

    @property
    def s3(self) -> Any:
        keys = self.yard.credentials
        return boto3.client(
            "s3",
            endpoint_url=self.yard.http,
            region_name=keys.region,
            aws_access_key_id=keys.access_key_id,
            aws_secret_access_key=keys.secret_access_key,
        )

    def settings(self, prefix: str) -> dict[str, str]:
        """The settings of a yard that keeps its objects there."""
        keys = self.yard.credentials
        return {
            "TRAINYARD_SERVER_OBJECTS": f"s3://remote/{prefix}",
            "TRAINYARD_SERVER_OBJECTS_ENDPOINT": self.faulty.url,
            "TRAINYARD_SERVER_OBJECTS_ACCESS_KEY_ID": keys.access_key_id,
            "TRAINYARD_SERVER_OBJECTS_SECRET_ACCESS_KEY": keys.secret_access_key,
            "TRAINYARD_SERVER_SLOTS": "4",
        }

    def delete(self, key: str) -> None:
        self.s3.delete_object(Bucket="remote", Key=key)

    def put(self, key: str, body: bytes) -> None:
        self.s3.put_object(Bucket="remote", Key=key, Body=body)


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    with running_yard(tmp_path_factory.mktemp("remote") / "home") as backing, faulty_s3(backing.http) as faulty:
        found = Remote(faulty, backing)
        found.s3.create_bucket(Bucket="remote")
        yield found


@pytest.fixture(scope="module")
def yard(remote: Remote, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningYard]:
    home = tmp_path_factory.mktemp("system") / "yard"
    with running_yard(home, environment=remote.settings("yard")) as running:
        yield running


@pytest.fixture(scope="module")
def owner(yard: RunningYard) -> Trainee:
    trainee = trainee_of(yard)
    s3 = trainee.user.client("s3")
    s3.create_bucket(Bucket=trainee.bucket)
    for name, body in FILES.items():
        s3.put_object(Bucket=trainee.bucket, Key=f"train/{name}", Body=body)
    s3.put_object(Bucket=trainee.bucket, Key="train/marked/", Body=b"")
    manifest = json.dumps([{"prefix": f"s3://{trainee.bucket}/train/"}, *SMALL, "deep/er/large.bin"])
    s3.put_object(Bucket=trainee.bucket, Key="listed.manifest", Body=manifest.encode())
    return trainee


@pytest.fixture(autouse=True)
def healed(remote: Remote) -> Iterator[None]:
    yield
    remote.faulty.heal()


def channel(name: str, prefix: str, **source: str) -> dict[str, Any]:
    given = {"S3DataType": "S3Prefix", "S3Uri": f"s3://data/{prefix}", "S3DataDistributionType": "FullyReplicated"}
    return {"ChannelName": name, "DataSource": {"S3DataSource": given | source}}


def digests(bodies: dict[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(body).hexdigest() for name, body in bodies.items()}


def read(trainee: Trainee, name: str, *, instance: int = 0) -> dict[str, dict[str, str]]:
    """Return what the program of an instance found in each of its channels."""
    lines = [line.partition(" ") for line in trainee.printed(name, instance=instance)]
    return {told: json.loads(rest) for told, _, rest in lines}


def own_data(trainee: Trainee, prefix: str, bodies: dict[str, bytes]) -> list[dict[str, Any]]:
    for name, body in bodies.items():
        trainee.user.client("s3").put_object(Bucket=trainee.bucket, Key=f"{prefix}/{name}", Body=body)
    return [channel("train", f"{prefix}/")]


@pytest.mark.flow
def test_a_whole_job_reads_its_channels_and_stores_its_results(owner: Trainee) -> None:
    channels = [channel("train", "train/"), channel("listed", "listed.manifest", S3DataType="ManifestFile")]
    told = owner.run("whole", READS, InputDataConfig=channels)
    assert told["TrainingJobStatus"] == "Completed", told.get("FailureReason")
    listed = {name: body for name, body in FILES.items() if name != "empty"}
    assert read(owner, "whole") == {"train": digests(FILES), "listed": digests(listed)}
    assert owner.archive("out/whole/output/model.tar.gz") == {"weights-algo-1": b"w" * 6_000_000}
    assert owner.archive("out/whole/output/output.tar.gz") == {"notes-algo-1": b"notes"}
    stored = owner.user.client("s3").get_object(Bucket=owner.bucket, Key="train/deep/er/large.bin")["Body"].read()
    assert stored == LARGE


def test_results_without_compression_are_stored_one_by_one(owner: Trainee, remote: Remote) -> None:
    remote.faulty.on("PUT", "/out/plain/output/model/weights", [Refuse(503, "SlowDown"), Reset()])
    output = {"S3OutputPath": "s3://data/out", "CompressionType": "NONE"}
    told = owner.run("plain", READS, InputDataConfig=[channel("train", "train/")], OutputDataConfig=output)
    assert told["TrainingJobStatus"] == "Completed", told.get("FailureReason")
    assert owner.keys("out/plain/") == ["out/plain/output/model/weights-algo-1", "out/plain/output/output/notes-algo-1"]


def test_three_instances_have_the_whole_of_one_channel_and_a_third_of_another(owner: Trainee) -> None:
    channels = [
        channel("whole", "train/"),
        channel("shared", "train/part-", S3DataDistributionType="ShardedByS3Key"),
    ]
    resources = {"InstanceType": "ml.m5.large", "InstanceCount": 3, "VolumeSizeInGB": 1}
    told = owner.run("three", READS, InputDataConfig=channels, ResourceConfig=resources)
    assert told["TrainingJobStatus"] == "Completed", told.get("FailureReason")
    found = [read(owner, "three", instance=number) for number in range(3)]
    assert [each["whole"] for each in found] == [digests(FILES)] * 3
    assert [len(each["shared"]) for each in found] == [10, 10, 10]
    assert {name: digest for each in found for name, digest in each["shared"].items()} == digests(SMALL)
    assert sorted(owner.archive("out/three/output/model.tar.gz")) == [f"weights-algo-{number}" for number in (1, 2, 3)]


def test_an_interrupted_spot_job_resumes_from_its_checkpoints(
    owner: Trainee, yard: RunningYard, remote: Remote, tmp_path: Path
) -> None:
    owner.start(
        "resumed",
        COUNT,
        EnableManagedSpotTraining=True,
        StoppingCondition={"MaxRuntimeInSeconds": 300, "MaxWaitTimeInSeconds": 600},
        CheckpointConfig={"S3Uri": "s3://data/ck/resumed"},
    )
    owner.await_line("resumed", "began at 0 with [] 0")
    remote.faulty.on("PUT", "/ck/resumed/count", [Refuse(503, "SlowDown"), Reset()])
    remote.faulty.on("GET", "/ck/resumed/step/weights.pt", [BreakOff(), Refuse(500), Reset()])
    command = [sys.executable, "-m", "trainyard.cli", "interrupt", "resumed"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "TRAINYARD_"))}
    environment = kept | {"TRAINYARD_HOME": str(yard.home.root), "HOME": str(tmp_path)}
    subprocess.run(command, env=environment, cwd=tmp_path, check=True, capture_output=True, timeout=90)
    told = owner.reach("resumed", "Completed", "Failed")
    assert told["TrainingJobStatus"] == "Completed", told.get("FailureReason")
    names = sorted(["count", "step", *(f"shard-{number}" for number in range(40))])
    began = [line for number in (0, 1) for line in owner.printed("resumed", instance=number) if "began" in line]
    (second,) = [line for line in began if "began at 0" not in line]
    assert second.endswith(f" with {names} 9000000")
    assert owner.archive("out/resumed/output/model.tar.gz") == {"count": b"300"}
    assert len(owner.keys("ck/resumed/")) == 42


def test_passing_faults_of_the_remote_cost_only_time(owner: Trainee, remote: Remote) -> None:
    faults: list[Fault] = [
        Refuse(503, "SlowDown"),
        Reset(),
        BreakOff(),
        Shorten(),
        Refuse(500),
        Refuse(429, "SlowDown"),
        Wait(1),
    ]
    bodies = {f"file-{number}": f"{number}".encode() * 2000 for number in range(len(faults))} | {"large": LARGE}
    channels = own_data(owner, "faulty", bodies)
    for number, fault in enumerate(faults):
        remote.faulty.on("GET", f"/faulty/file-{number}", [fault, fault])
    remote.faulty.on("GET", "/faulty/large", faults)
    remote.faulty.on("GET", "sourcedir.tar.gz", [BreakOff(), Refuse(503, "SlowDown")])
    remote.faulty.on("PUT", "model.tar.gz", [Refuse(503, "SlowDown"), Reset()])
    told = owner.run("patient", READS, InputDataConfig=channels)
    assert told["TrainingJobStatus"] == "Completed", told.get("FailureReason")
    assert read(owner, "patient") == {"train": digests(bodies)}
    assert owner.archive("out/patient/output/model.tar.gz") == {"weights-algo-1": b"w" * 6_000_000}


@pytest.mark.slow
def test_a_remote_that_stays_overloaded_fails_the_job_by_the_name_of_the_key(owner: Trainee, remote: Remote) -> None:
    channels = own_data(owner, "overloaded", {"a": b"a", "b": b"b"})
    remote.faulty.on("GET", "/overloaded/b", repeat(Refuse(503, "SlowDown")))
    told = owner.run("overloaded", READS, InputDataConfig=channels)
    reason = told["FailureReason"]
    assert "s3://data/overloaded/b could not be read: the remote store answered 503 SlowDown." in reason
    assert "Tried 8 times in " in reason
    assert remote.faulty.count("GET", "/overloaded/b") == 8


def test_a_model_that_the_remote_refuses_fails_the_job_by_its_name(owner: Trainee, remote: Remote) -> None:
    remote.faulty.on("PUT", "/out/refused/output/model.tar.gz", repeat(Refuse(403, "AccessDenied")))
    told = owner.run("refused", 'open("/opt/ml/model/weights", "w").close()')
    assert told["FailureReason"].startswith(
        "InternalServerError: The model cannot be stored as s3://data/out/refused/output/model.tar.gz: The remote "
        "store refuses our keys: "
    )


@pytest.mark.parametrize("size", [1000, len(LARGE)])
def test_a_key_that_goes_during_the_download_fails_the_job_by_its_name(
    owner: Trainee, remote: Remote, size: int
) -> None:
    channels = own_data(owner, f"gone-{size}", {"here": b"a", "there": b"b" * size})
    key = f"yard/{owner.user.account}/data/gone-{size}/there"
    remote.faulty.on("GET", f"/gone-{size}/there", [First(lambda: remote.delete(key))])
    told = owner.run(f"gone-{size}", READS, InputDataConfig=channels)
    assert told["FailureReason"] == (
        f"ClientError: The object s3://data/gone-{size}/there of channel train does not exist any more."
    )


@pytest.mark.parametrize("size", [1000, len(LARGE)])
def test_a_key_that_changes_during_the_download_fails_the_job_by_its_name(
    owner: Trainee, remote: Remote, size: int
) -> None:
    channels = own_data(owner, f"swapped-{size}", {"here": b"a", "there": b"b" * size})
    key = f"yard/{owner.user.account}/data/swapped-{size}/there"
    remote.faulty.on("GET", f"/swapped-{size}/there", [First(lambda: remote.put(key, b"c" * size))])
    told = owner.run(f"swapped-{size}", READS, InputDataConfig=channels)
    assert told["FailureReason"].startswith(
        f"ClientError: The object s3://data/swapped-{size}/there of channel train was replaced since the job began"
    )


@pytest.mark.parametrize(
    ("name", "what"), [("data", "/data/stalled/a"), ("code", "sourcedir.tar.gz"), ("first-request", ".trainyard-check")]
)
def test_a_stop_ends_a_download_to_which_nothing_comes(owner: Trainee, remote: Remote, name: str, what: str) -> None:
    name = f"stalled-{name}"
    request = owner.request(name, READS, InputDataConfig=own_data(owner, "stalled", {"a": b"a"}))
    owner.sagemaker.create_training_job(**request)
    remote.faulty.on("GET", what, repeat(Wait(60)))
    remote.faulty.on("HEAD", what, repeat(Wait(60)))
    owner.reach(name, "Downloading")
    begun = time.monotonic()
    owner.sagemaker.stop_training_job(TrainingJobName=name)
    told = owner.reach(name, "Stopped", "Failed")
    assert (told["TrainingJobStatus"], time.monotonic() - begun < 8) == ("Stopped", True)


def test_no_program_finds_the_keys_of_the_remote(owner: Trainee, yard: RunningYard, remote: Remote) -> None:
    secret = remote.yard.credentials.secret_access_key
    told = owner.run("hunting", HUNTS, Environment={"BACKWARDS": secret[::-1], "YARD": str(yard.home.root)})
    assert told["TrainingJobStatus"] == "Completed", told.get("FailureReason")
    assert owner.printed("hunting") == ["looked at many", "found []"]
    specs = [path for path in yard.home.jobs.rglob("spec.json") if secret in path.read_text()]
    assert specs, "the agent gets the keys by its spec"
    assert {stat.S_IMODE(path.stat().st_mode) for path in specs} == {0o600}
    assert stat.S_IMODE(yard.home.root.stat().st_mode) == 0o700


@pytest.fixture(scope="module")
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Provide a folder on a disk of 96 MiB."""
    folder = tmp_path_factory.mktemp("small")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96m", "none", folder], check=False)
    if mounted.returncode:
        pytest.skip("a small disk can be mounted by root only")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture(scope="module")
def cramped(remote: Remote, small_disk: Path) -> Iterator[Trainee]:
    """Return a user of a yard on that disk, with a channel that is larger than the disk."""
    settings = remote.settings("small")
    # The yard finds these keys where AWS clients look for them.
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        settings[f"AWS_{name}"] = settings.pop(f"TRAINYARD_SERVER_OBJECTS_{name}")
    with running_yard(small_disk / "yard", environment=settings) as yard:
        trainee = trainee_of(yard)
        s3 = trainee.user.client("s3")
        s3.create_bucket(Bucket="data")
        for number in range(12):
            remote.put(f"small/{trainee.user.account}/data/big/{number}", bytes(10_000_000))
        manifest = json.dumps([{"prefix": "s3://data/big/"}, *map(str, range(12))])
        s3.put_object(Bucket="data", Key="listed.manifest", Body=manifest.encode())
        yield trainee


@pytest.mark.parametrize("source", [{}, {"S3DataType": "ManifestFile", "S3Uri": "s3://data/listed.manifest"}])
def test_a_disk_too_small_for_a_channel_fails_the_job_with_the_space_it_needs(
    cramped: Trainee, remote: Remote, source: dict[str, str]
) -> None:
    told = cramped.run(f"cramped-{len(source)}", READS, InputDataConfig=[channel("train", "big/", **source)])
    assert "channel train needs 114.4 MiB of space, and " in told["FailureReason"]
    assert "MiB are free, of which 4.8 MiB are reserved for the yard" in told["FailureReason"]
    assert remote.faulty.count("GET", "/data/big/") == 0


def test_a_disk_that_others_fill_during_the_download_fails_the_job_with_the_space_it_needs(
    cramped: Trainee, remote: Remote, small_disk: Path
) -> None:
    for number in range(8):
        remote.put(f"small/{cramped.user.account}/data/filled/{number}", bytes(2_000_000))
    filler = small_disk / "filler"
    remote.faulty.on("GET", "/data/filled/", [First(lambda: fill(filler))])
    told = cramped.run("crowded", READS, InputDataConfig=[channel("train", "filled/")])
    assert "channel train needs 15.3 MiB of space, and " in told["FailureReason"]
    assert not list(small_disk.glob("yard/jobs/*/*/algo-1/channels/train/*"))


def fill(file: Path) -> None:
    """Fill a disk except for 1 MiB."""
    with file.open("wb", buffering=0) as opened:
        with contextlib.suppress(OSError):
            while opened.write(bytes(1 << 16)):
                pass
        opened.truncate(opened.tell() - (1 << 20))

"""Pipe and FastFile channels of a yard that keeps its objects in another S3: every byte read is compared."""

import contextlib
import errno
import gzip
import hashlib
import itertools
import json
import os
import random
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.faulty_s3 import BreakOff, Fault, FaultyS3, Refuse, Reset, Shorten, Wait, faulty_s3
from tests.system.trainees import Trainee
from tests.system.watching import folder_of
from tests.system.yards import ROOT, USER, Place, place_for, trainee_of
from trainyard.formats.recordio import record_frames, record_padding
from trainyard.link.agent_process import ProcessIdentity
from trainyard.link.contract import FrameKind
from trainyard.link.ledger import Ledger, LedgerKind
from trainyard.link.spool import read_frames
from trainyard.testing.eventually import eventually
from trainyard.testing.yard import RunningYard, running_yard

CACHE_BYTES = 12 << 20
LARGE = "set/deep/large.bin"
TELL = """
import hashlib, json, pathlib

def digests(folder):
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

data = pathlib.Path("/opt/ml/input/data")
print(json.dumps({folder.name: digests(folder) for folder in sorted(data.iterdir()) if folder.is_dir()}))
"""
READ_AT_RANDOM = """
import hashlib, os, pathlib, random

chance, told = random.Random(7), hashlib.sha256()
path = pathlib.Path("/opt/ml/input/data/fast/deep/large.bin")
with path.open("rb", buffering=0) as file:
    for _ in range(60):
        offset, size = chance.randrange(path.stat().st_size), chance.randrange(1, 300_000)
        told.update(os.pread(file.fileno(), size, offset))
assert sorted(os.listdir("/opt/ml/input/data/fast/many")) == [f"{number:04}" for number in range(120)]
for forbidden in (path.unlink, lambda: path.write_bytes(b"x"), lambda: (path.parent / "new").touch()):
    try:
        forbidden()
    except OSError as error:
        told.update(str(error.errno).encode())
print("read", told.hexdigest())
"""
READ_PIPES = """
import hashlib, json

told = {}
for name in ("plain", "records", "packed", "shuffled", "lines"):
    for epoch in range(2):
        digest = hashlib.sha256()
        with open(f"/opt/ml/input/data/{name}_{epoch}", "rb", buffering=0) as stream:
            while data := stream.read(1 << 20):
                digest.update(data)
        told[f"{name}_{epoch}"] = digest.hexdigest()
print(json.dumps(told))
"""
WAIT_THEN_READ = """
import errno, pathlib, time

data = pathlib.Path("/opt/ml/input/data/fast")
handle = (data / "big.bin").open("rb", buffering=0)
print("began with", handle.read(4096)[:1], flush=True)
while not pathlib.Path("/opt/ml/checkpoints/go").exists():
    time.sleep(0.02)
handle.seek(12 << 20)
try:
    print("went on with", handle.read(4096)[:1], flush=True)
except OSError as error:
    print("met", errno.errorcode[error.errno], flush=True)
    raise
"""
HOLD = """
import pathlib, time

handle = next(path for path in sorted(pathlib.Path("/opt/ml/input/data/fast").rglob("*")) if path.is_file()).open("rb")
print("holds", len(handle.read(1)), flush=True)
time.sleep(600)
"""
BOTH = """
import hashlib, json, pathlib

data = pathlib.Path("/opt/ml/input/data")
large, pipe = ((data / name).read_bytes() for name in ("fast/deep/large.bin", "plain_0"))
print(json.dumps({"large": hashlib.sha256(large).hexdigest(), "pipe": hashlib.sha256(pipe).hexdigest()}))
"""


@dataclass(frozen=True)
class RemoteS3:
    """Another yard that acts as the remote S3, and the proxy in front of it."""

    yard: RunningYard
    faults: FaultyS3

    @contextlib.contextmanager
    def serving(self, place: Place) -> Iterator[RunningYard]:
        """Run a yard that keeps its objects there."""
        keys = self.yard.credentials
        with place.running(
            slots="2",
            objects=f"s3://store/{place.folder.name}",
            objects_endpoint=self.faults.url,
            objects_access_key_id=keys.access_key_id,
            objects_secret_access_key=keys.secret_access_key,
            objects_cache_bytes=str(CACHE_BYTES),
        ) as running:
            yield running


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteS3]:
    with running_yard(tmp_path_factory.mktemp("s3") / "home") as yard, faulty_s3(yard.http) as faults:
        trainee_of(yard).user.client("s3").create_bucket(Bucket="store")
        yield RemoteS3(yard, faults)


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("this machine has no FUSE, or not for this user")
    with place_for(ROOT) as made:
        yield made


@pytest.fixture(scope="module")
def yard(place: Place, s3: RemoteS3) -> Iterator[RunningYard]:
    with s3.serving(place) as running:
        yield running


@pytest.fixture
def faults(s3: RemoteS3) -> Iterator[FaultyS3]:
    s3.faults.heal()
    yield s3.faults
    s3.faults.heal()


@pytest.fixture(scope="module")
def objects() -> dict[str, bytes]:
    chance = random.Random(1)
    many = {f"set/many/{number:04}": chance.randbytes(number * 7) for number in range(120)}
    return many | {LARGE: chance.randbytes((21 << 20) + 12_345), "set/text.csv": b"1,2\n"}


@pytest.fixture(scope="module")
def anna(yard: RunningYard, objects: dict[str, bytes]) -> Trainee:
    trainee = trainee_of(yard).prepare()
    put(trainee, objects)
    return trainee


def put(trainee: Trainee, objects: dict[str, bytes]) -> None:
    client = trainee.user.client("s3")
    for key, body in objects.items():
        client.put_object(Bucket=trainee.bucket, Key=key, Body=body)


def channel(name: str, uri: str = "s3://data/set/", mode: str = "FastFile", **changed: Any) -> dict[str, Any]:
    source = {"S3DataType": "S3Prefix", "S3Uri": uri}
    source |= {member: changed.pop(member) for member in list(changed) if member.startswith(("S3", "Attribute"))}
    return {"ChannelName": name, "InputMode": mode, "DataSource": {"S3DataSource": source}, **changed}


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def notes_of(yard: RunningYard, name: str) -> list[str]:
    frames = read_frames(folder_of(yard, name).spool, 0).frames
    return [frame.payload["text"] for frame in frames if frame.kind is FrameKind.NOTE]


def wait_for_line(trainee: Trainee, name: str, line: str) -> None:
    eventually(lambda: line in trainee.lines(name), within=timedelta(seconds=60))


def mounts_of(yard: RunningYard) -> list[str]:
    return [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(yard.home.root) in line]


def test_every_file_has_the_bytes_of_its_object(
    yard: RunningYard, anna: Trainee, objects: dict[str, bytes], faults: FaultyS3
) -> None:
    told = anna.run("whole", TELL, InputDataConfig=[channel("fast"), channel("again", "s3://data/set/many/")])
    assert told["TrainingJobStatus"] == "Completed", told["FailureReason"]
    read = json.loads(anna.lines("whole")[-1])
    assert read["fast"] == {key.removeprefix("set/"): digest(body) for key, body in objects.items()}
    assert read["again"] == {key[9:]: digest(body) for key, body in objects.items() if key.startswith("set/many/")}
    assert not any("FUSE" in note for note in notes_of(yard, "whole"))
    assert mounts_of(yard) == []


def test_reads_here_and_there_give_the_right_bytes_and_nothing_can_be_changed(
    anna: Trainee, objects: dict[str, bytes]
) -> None:
    told = anna.run("random", READ_AT_RANDOM, InputDataConfig=[channel("fast")])
    assert told["TrainingJobStatus"] == "Completed", told["FailureReason"]
    chance, expected, large = random.Random(7), hashlib.sha256(), objects[LARGE]
    for _ in range(60):
        offset, size = chance.randrange(len(large)), chance.randrange(1, 300_000)
        expected.update(large[offset : offset + size])
    expected.update(str(errno.EROFS).encode() * 3)
    assert anna.lines("random")[-1] == f"read {expected.hexdigest()}"


@pytest.mark.flow
def test_only_what_is_read_is_fetched(anna: Trainee, faults: FaultyS3) -> None:
    told = anna.run("little", HOLD.replace("time.sleep(600)", ""), InputDataConfig=[channel("fast")])
    assert told["TrainingJobStatus"] == "Completed", told["FailureReason"]
    fetched = {request.path for request in faults.seen if request.method == "GET" and "/set/" in request.path}
    assert 0 < len(fetched) < 50


def test_an_ordinary_user_gets_the_files_before_the_start_and_a_note(s3: RemoteS3, objects: dict[str, bytes]) -> None:
    with place_for(USER) as place, s3.serving(place) as yard:
        trainee = trainee_of(yard).prepare()
        some = {key: body for key, body in objects.items() if key.startswith("set/many/000")}
        put(trainee, some)
        told = trainee.run("files", TELL, InputDataConfig=[channel("fast")])
        assert told["TrainingJobStatus"] == "Completed", told["FailureReason"]
        read = json.loads(trainee.lines("files")[-1])["fast"]
        assert read == {key.removeprefix("set/"): digest(body) for key, body in some.items()}
        why = "FUSE cannot be used here (only a yard that runs as root may mount)"
        assert any(note.startswith(why) for note in notes_of(yard, "files"))
        map_file_system(place)
        check_file_system(trainee, some, s3.faults)


def file_system(directory: str, access: str = "ro") -> dict[str, Any]:
    source = {"FileSystemId": "fs-0123456789abcdef0", "FileSystemType": "FSxLustre", "DirectoryPath": directory}
    return {"ChannelName": "shared", "DataSource": {"FileSystemDataSource": source | {"FileSystemAccessMode": access}}}


def map_file_system(place: Place) -> None:
    table = place.home / "file_systems.toml"
    table.write_text('[file_systems]\n"fs-0123456789abcdef0" = "s3://data/set"\n')
    place.give(table)


def read_file_system(trainee: Trainee, name: str) -> dict[str, str]:
    told = trainee.run(name, TELL, InputDataConfig=[file_system("/many")])
    assert told["TrainingJobStatus"] == "Completed", told["FailureReason"]
    read: dict[str, str] = json.loads(trainee.lines(name)[-1])["shared"]
    return read


def check_file_system(trainee: Trainee, objects: dict[str, bytes], faults: FaultyS3) -> None:
    """Check that the first job fetches each file, the second none, and the third only a changed one."""
    expected = {key[9:]: digest(body) for key, body in objects.items() if key.startswith("set/many/")}
    faults.heal()
    assert read_file_system(trainee, "loads") == expected
    assert faults.count("GET", "/set/many/") >= len(expected) - 1  # one is empty
    faults.heal()
    assert read_file_system(trainee, "reuses") == expected
    assert faults.count("GET", "/set/many/") == 0
    put(trainee, {"set/many/0007": b"new"})
    faults.heal()
    assert read_file_system(trainee, "refreshes") == expected | {"0007": digest(b"new")}
    assert faults.count("GET", "/set/many/") == 1
    put(trainee, {"set/many/0007": objects["set/many/0007"]})


def test_a_file_system_that_stands_for_a_prefix_is_fetched_once_for_all_jobs(
    place: Place, yard: RunningYard, anna: Trainee, objects: dict[str, bytes], faults: FaultyS3
) -> None:
    map_file_system(place)
    check_file_system(anna, objects, faults)
    with pytest.raises(ClientError, match=r"which is read-only; set the FileSystemAccessMode .* to ro"):
        anna.start("writes", TELL, InputDataConfig=[file_system("/many", "rw")])


PASSING: Sequence[Fault] = (Refuse(503, "SlowDown"), Reset(), BreakOff(), Shorten(), Wait(0.2), Refuse(500))


@pytest.mark.slow
def test_readers_do_not_notice_transient_faults_of_a_remote_s3(
    anna: Trainee, objects: dict[str, bytes], faults: FaultyS3
) -> None:
    faults.on("GET", "/set/", (fault for fault, _ in zip(itertools.cycle(PASSING), range(18), strict=False)))
    channels = [channel("fast"), channel("plain", mode="Pipe")]
    told = anna.run("faults", BOTH, InputDataConfig=channels)
    assert told["TrainingJobStatus"] == "Completed", told["FailureReason"]
    read = json.loads(anna.lines("faults")[-1])
    assert read["large"] == digest(objects[LARGE])
    assert read["pipe"] == digest(b"".join(objects[key] for key in sorted(objects)))


def test_pipes_carry_the_bytes_of_the_objects_in_the_order_of_their_epochs(
    anna: Trainee, objects: dict[str, bytes]
) -> None:
    packed = {f"gz/{number}.gz": gzip.compress(objects[LARGE][: 3_000_000 * number]) for number in range(4)}
    lines = [{"image-ref": f"s3://data/set/many/{number:04}", "label": number} for number in range(0, 120, 3)]
    manifest = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
    put(anna, packed | {"lists/images.jsonl": manifest})
    of_lines = {"S3DataType": "AugmentedManifestFile", "AttributeNames": ["image-ref", "label"]}
    told = anna.run(
        "pipes",
        READ_PIPES,
        InputDataConfig=[
            channel("plain", mode="Pipe"),
            channel("records", mode="Pipe", RecordWrapperType="RecordIO"),
            channel("packed", "s3://data/gz/", "Pipe", CompressionType="Gzip"),
            channel("shuffled", "s3://data/set/many/", "Pipe", ShuffleConfig={"Seed": 5}),
            channel("lines", "s3://data/lists/images.jsonl", "Pipe", RecordWrapperType="RecordIO", **of_lines),
        ],
    )
    assert told["TrainingJobStatus"] == "Completed", told["FailureReason"]
    read = json.loads(anna.lines("pipes")[-1])
    whole = [objects[key] for key in sorted(objects)]
    values = [value for line in lines for value in (objects[str(line["image-ref"])[10:]], str(line["label"]).encode())]
    expected = {
        "plain": b"".join(whole),
        "records": b"".join(map(record, whole)),
        "packed": b"".join(objects[LARGE][: 3_000_000 * number] for number in range(4)),
        "lines": b"".join(map(record, values)),
    }
    for name, data in expected.items():
        assert read[f"{name}_0"] == read[f"{name}_1"] == digest(data), name
    assert read["shuffled_0"] != read["shuffled_1"]


def record(data: bytes) -> bytes:
    ((header, _),) = record_frames(len(data))
    return header + data + record_padding(len(data))


def test_an_object_that_is_gone_fails_a_pipe_by_its_name(anna: Trainee, faults: FaultyS3) -> None:
    put(anna, {"gone/a": b"a", "gone/b": b"b"})
    faults.on("GET", "/gone/b", itertools.repeat(Refuse(404, "NoSuchKey")))
    told = anna.run(
        "gone",
        "print(open('/opt/ml/input/data/p_0').read())",
        InputDataConfig=[channel("p", "s3://data/gone/", "Pipe")],
    )
    assert told["TrainingJobStatus"] == "Failed"
    assert "s3://data/gone/b of channel p cannot be sent: it does not exist any more" in told["FailureReason"]


def test_a_file_whose_object_was_replaced_cannot_be_read_on(yard: RunningYard, anna: Trainee) -> None:
    put(anna, {"big/big.bin": b"1" * (16 << 20)})
    anna.start(
        "replaced",
        WAIT_THEN_READ,
        InputDataConfig=[channel("fast", "s3://data/big/")],
        CheckpointConfig={"S3Uri": "s3://data/checkpoints/replaced"},
    )
    wait_for_line(anna, "replaced", "began with b'1'")
    put(anna, {"big/big.bin": b"2" * (16 << 20)})
    (folder_of(yard, "replaced").ml / "checkpoints/go").touch()
    told = anna.reach("replaced", "Failed", "Completed")
    assert "met EIO" in anna.lines("replaced")
    why = "The object s3://data/big/big.bin of channel fast cannot be read: it was replaced after the job had begun."
    assert why in told["FailureReason"]
    assert why in notes_of(yard, "replaced")


def test_the_disk_cache_stays_within_its_limit(yard: RunningYard, anna: Trainee) -> None:
    put(anna, {"wide/big.bin": os.urandom(2 * CACHE_BYTES)})
    script = (
        "import time; print(len(open('/opt/ml/input/data/fast/big.bin', 'rb').read()), flush=True); time.sleep(600)"
    )
    anna.start("bound", script, InputDataConfig=[channel("fast", "s3://data/wide/")])
    wait_for_line(anna, "bound", str(2 * CACHE_BYTES))
    cache = folder_of(yard, "bound").scratch / "remote"
    kept = sum(path.stat().st_size for path in cache.rglob("*") if path.is_file())
    assert CACHE_BYTES // 2 < kept <= CACHE_BYTES
    anna.sagemaker.stop_training_job(TrainingJobName="bound")
    anna.reach("bound", "Stopped")
    assert not cache.exists()


@pytest.mark.parametrize("victim", ["agent", "agent whose files hang"])
def test_killing_the_agent_leaves_no_mount(yard: RunningYard, anna: Trainee, victim: str) -> None:
    name = f"kill-{len(victim)}"
    anna.start(name, HOLD, InputDataConfig=[channel("fast")])
    wait_for_line(anna, name, "holds 1")
    assert len(mounts_of(yard)) == 1
    folder = folder_of(yard, name)
    agent = json.loads(folder.agent.read_text())["pid"]
    told = next(entry.details for entry in Ledger(folder.ledger).entries() if entry.kind is LedgerKind.PROCESS)
    server = ProcessIdentity(told["pid"], told["started"])
    if victim != "agent":
        os.kill(server.pid, signal.SIGSTOP)  # so that it cannot do what it does when its agent has gone
    os.kill(agent, signal.SIGKILL)
    try:
        anna.reach(name, "Failed")
        eventually(lambda: not mounts_of(yard) and not server.is_alive, within=timedelta(seconds=30))
    finally:
        if server.is_alive:
            os.kill(server.pid, signal.SIGKILL)

"""Data channels of real jobs, on the yards of root and of an ordinary user. Every byte is compared."""

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.system.trainees import Trainee
from tests.system.watching import has_warm_worker, was_started_warm
from tests.system.yards import KINDS, Place, place_for, trainee_of
from trainyard.testing.eventually import eventually
from trainyard.testing.yard import RunningYard

FILE_SYSTEM = "fs-0123456789abcdef0"
LINKED = "fs-0fedcba9876543210"  # stands for an S3 prefix
TELL = """
import hashlib, json, os, pathlib

def digests(folder):
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

data = pathlib.Path("/opt/ml/input/data")
print(json.dumps({folder.name: digests(folder) for folder in sorted(data.iterdir()) if folder.is_dir()}))
"""
RUIN = """
import io, os, pathlib, shutil, tarfile

data = pathlib.Path("/opt/ml/input/data/train")
files = [path for path in sorted(data.rglob("*")) if path.is_file()]
before = {str(path.relative_to(data)): path.read_bytes() for path in files}
archive = io.BytesIO()
with tarfile.open(fileobj=archive, mode="w") as tar:
    for name in before:
        entry = tarfile.TarInfo(name)
        entry.size = 8
        tar.addfile(entry, io.BytesIO(b"unpacked"))
for path in files:
    with path.open("ab") as file:
        file.write(b"more")
    assert path.read_bytes() == before[str(path.relative_to(data))] + b"more"
    path.write_bytes(b"ruined")
    os.truncate(path, 1)
    path.chmod(0o666)
    os.utime(path, (1, 1))
    second = path.with_name("second")
    second.hardlink_to(path)
    second.write_bytes(b"by another name")
    second.unlink()
archive.seek(0)
with tarfile.open(fileobj=archive) as tar:
    tar.extractall(data)
assert {path.read_bytes() for path in files} == {b"unpacked"}
shutil.rmtree(data / "deep")
(data / "deep").mkdir()
(data / "deep/new").write_text("new")
for path in data.iterdir():
    shutil.rmtree(path) if path.is_dir() else path.unlink()
assert list(data.iterdir()) == []
(data / "mine").write_text("mine")
print("ruined", len(files))
"""
WRITE = """
import errno, os, pathlib

for name in ("fast", "sets"):
    folder = pathlib.Path("/opt/ml/input/data", name)
    for attempt in (
        lambda: (folder / "new").write_text("x"),
        lambda: next(path for path in folder.rglob("*") if path.is_file()).write_text("x"),
        lambda: next(path for path in folder.rglob("*") if path.is_file()).unlink(),
    ):
        try:
            attempt()
        except OSError as error:
            print(name, errno.errorcode[error.errno])
        else:
            print(name, "was written")
"""


@pytest.fixture(scope="module", params=KINDS)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with place_for(request.param) as made:
        yield made


@pytest.fixture(scope="module")
def yard(place: Place) -> Iterator[RunningYard]:
    with place.running(slots="3") as running:
        yield running


@pytest.fixture(scope="module")
def objects() -> dict[str, bytes]:
    small = {f"set/{number:02}.bin": hashlib.sha256(bytes([number])).digest() * number for number in range(43)}
    return small | {"set/deep/er/large.bin": bytes(range(256)) * 20_000, "set/deep/text.csv": b"1,2\n"}


@pytest.fixture(scope="module")
def anna(yard: RunningYard, objects: dict[str, bytes]) -> Trainee:
    trainee = trainee_of(yard).prepare()
    s3 = trainee.user.client("s3")
    for key, body in objects.items():
        s3.put_object(Bucket=trainee.bucket, Key=key, Body=body)
    return trainee


@pytest.fixture(scope="module")
def shared(yard: RunningYard, place: Place) -> Path:
    """Provide a folder that acts as a file system, which everybody may read and write."""
    folder = place.folder / "shared"
    (folder / "sets/deep").mkdir(parents=True)
    (folder / "sets/deep/c.csv").write_text("3")
    (folder / "sets/new").touch()
    (folder / "out").symlink_to("../home")
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            place.give(path).chmod(0o777 if path.is_dir() else 0o666)
    table = place.home / "file_systems.toml"
    table.write_text(f'[file_systems]\n"{FILE_SYSTEM}" = "{folder}"\n"{LINKED}" = "s3://data/set"\n')
    place.give(table)
    return folder


def channel(name: str, uri: str = "s3://data/set/", **changed: Any) -> dict[str, Any]:
    source = {"S3DataType": "S3Prefix", "S3Uri": uri}
    source |= {member: changed.pop(member) for member in list(changed) if member.startswith(("S3", "InstanceGroup"))}
    return {"ChannelName": name, "DataSource": {"S3DataSource": source}, **changed}


def file_system(access: str, directory: str = "/sets", identifier: str = FILE_SYSTEM) -> dict[str, Any]:
    source = {
        "FileSystemId": identifier,
        "FileSystemType": "FSxLustre",
        "FileSystemAccessMode": access,
        "DirectoryPath": directory,
    }
    return {"ChannelName": "sets", "DataSource": {"FileSystemDataSource": source}}


def instances(count: int) -> dict[str, Any]:
    return {"InstanceType": "ml.m5.large", "InstanceCount": count, "VolumeSizeInGB": 1}


def completed(trainee: Trainee, name: str, script: str, **changed: Any) -> None:
    told = trainee.run(name, script, **changed)
    assert told["TrainingJobStatus"] == "Completed", (told.get("FailureReason"), trainee.lines(name))


def told_of(trainee: Trainee, name: str, *, count: int = 1) -> list[dict[str, dict[str, str]]]:
    """Return what each instance found in its channels: the digests of all files."""
    return [json.loads(trainee.printed(name, instance=number)[-1]) for number in range(count)]


def digests(files: dict[str, bytes], prefix: str = "set/") -> dict[str, str]:
    return {key.removeprefix(prefix): hashlib.sha256(body).hexdigest() for key, body in files.items()}


def stored(trainee: Trainee, keys: dict[str, bytes]) -> dict[str, bytes]:
    s3 = trainee.user.client("s3")
    return {key: s3.get_object(Bucket=trainee.bucket, Key=key)["Body"].read() for key in keys}


@pytest.mark.parametrize("count", [1, 3])
def test_file_and_fast_file_channels_hold_every_byte(anna: Trainee, objects: dict[str, bytes], count: int) -> None:
    channels = [channel("train"), channel("fast", InputMode="FastFile")]
    name = f"bytes-{count}"
    completed(anna, name, TELL, InputDataConfig=channels, ResourceConfig=instances(count))
    assert told_of(anna, name, count=count) == [{"fast": digests(objects), "train": digests(objects)}] * count


@pytest.mark.flow
@pytest.mark.parametrize("mode", ["File", "FastFile"])
def test_45_sharded_objects_on_3_instances_are_15_each(anna: Trainee, objects: dict[str, bytes], mode: str) -> None:
    channels = [channel("train", S3DataDistributionType="ShardedByS3Key", InputMode=mode)]
    name = f"sharded-{mode}".lower()
    completed(anna, name, TELL, InputDataConfig=channels, ResourceConfig=instances(3))
    shares = [told["train"] for told in told_of(anna, name, count=3)]
    assert [len(share) for share in shares] == [15, 15, 15]
    assert {path: digest for share in shares for path, digest in share.items()} == digests(objects)


GROUPS = [
    {"InstanceGroupName": "train", "InstanceType": "ml.m5.xlarge", "InstanceCount": 1},
    {"InstanceGroupName": "data", "InstanceType": "ml.m5.large", "InstanceCount": 2},
]
TELL_GROUP = (
    TELL
    + """
resources = json.loads(pathlib.Path("/opt/ml/input/config/resourceconfig.json").read_text())
assert json.loads(os.environ["SM_RESOURCE_CONFIG"]) == resources
print(json.dumps(resources))
"""
)


def test_the_instances_of_groups_have_their_types_and_their_groups_channels(
    anna: Trainee, objects: dict[str, bytes]
) -> None:
    shared_out: dict[str, Any] = {"S3DataDistributionType": "ShardedByS3Key", "InstanceGroupNames": ["data"]}
    completed(
        anna,
        "groups",
        TELL_GROUP,
        ResourceConfig={"InstanceGroups": GROUPS, "VolumeSizeInGB": 1},
        InputDataConfig=[channel("all", "s3://data/train/"), channel("set", **shared_out)],
    )
    printed = [[json.loads(line) for line in anna.printed("groups", instance=number)[-2:]] for number in range(3)]
    found, resources = zip(*printed, strict=True)

    assert ["set" in told for told in found] == [False, True, True]
    assert found[1]["set"] | found[2]["set"] == digests(objects)
    assert found[1]["set"].keys() & found[2]["set"].keys() == set()
    assert [len(told["all"]) for told in found] == [2, 2, 2]
    assert [(each["current_group_name"], each["current_instance_type"]) for each in resources] == [
        ("train", "ml.m5.xlarge"),
        ("data", "ml.m5.large"),
        ("data", "ml.m5.large"),
    ]
    assert resources[0]["instance_groups"] == [
        {"instance_group_name": "train", "instance_type": "ml.m5.xlarge", "hosts": ["algo-1"]},
        {"instance_group_name": "data", "instance_type": "ml.m5.large", "hosts": ["algo-2", "algo-3"]},
    ]
    assert resources[0]["hosts"] == ["algo-1", "algo-2", "algo-3"]


def test_a_manifest_provides_the_files_that_it_lists(anna: Trainee, objects: dict[str, bytes]) -> None:
    listed = ["07.bin", "deep/text.csv"]
    manifest = json.dumps([{"prefix": "s3://data/set/"}, *listed])
    anna.user.client("s3").put_object(Bucket="data", Key="some.manifest", Body=manifest.encode())
    channels = [
        channel("train", "s3://data/some.manifest", S3DataType="ManifestFile"),
        channel("fast", "s3://data/some.manifest", S3DataType="ManifestFile", InputMode="FastFile"),
    ]
    completed(anna, "manifest", TELL, InputDataConfig=channels)
    expected = digests({key: body for key, body in objects.items() if key.removeprefix("set/") in listed})
    assert told_of(anna, "manifest") == [{"fast": expected, "train": expected}]


def test_a_script_that_ruins_its_channel_leaves_the_stored_objects_untouched(
    yard: RunningYard, anna: Trainee, objects: dict[str, bytes]
) -> None:
    # The first start is cold. On a busy machine, a slow worker makes a later start cold too.
    for number in range(5):
        completed(anna, f"ruin-{number}", RUIN, InputDataConfig=[channel("train")])
        assert anna.printed(f"ruin-{number}")[-1] == "ruined 45"
        assert stored(anna, objects) == objects
        if was_started_warm(yard, f"ruin-{number}"):
            break
        eventually(lambda: has_warm_worker(yard))
    else:
        pytest.fail("none of five jobs was started warm")
    completed(anna, "after-ruin", TELL, InputDataConfig=[channel("train")])
    assert told_of(anna, "after-ruin") == [{"train": digests(objects)}]


def test_a_fast_file_channel_and_a_file_system_that_is_read_only_cannot_be_written(
    anna: Trainee, objects: dict[str, bytes], shared: Path
) -> None:
    channels = [channel("fast", InputMode="FastFile"), file_system("ro")]
    completed(anna, "read-only", WRITE, InputDataConfig=channels)
    assert anna.printed("read-only") == [*["fast EROFS"] * 3, *["sets EROFS"] * 3]
    assert stored(anna, objects) == objects
    assert sorted(str(path.relative_to(shared)) for path in shared.rglob("*")) == [
        *("out", "sets", "sets/deep", "sets/deep/c.csv", "sets/new")
    ]


def test_a_file_system_is_read_and_written_where_it_is(anna: Trainee, shared: Path) -> None:
    write = "open('/opt/ml/input/data/sets/deep/written', 'w').write(open('/opt/ml/input/data/sets/deep/c.csv').read())"
    completed(anna, "read-write", write, InputDataConfig=[file_system("rw")])
    assert (shared / "sets/deep/written").read_text() == "3"
    (shared / "sets/deep/written").unlink()


@pytest.mark.parametrize(
    ("directory", "why"),
    [("/out", "There is no directory"), ("/../home", 'cannot contain ".."'), ("/none", "There is no directory")],
)
def test_a_directory_outside_of_a_file_system_is_refused(anna: Trainee, shared: Path, directory: str, why: str) -> None:
    with pytest.raises(anna.sagemaker.exceptions.ClientError, match=why):
        anna.start("outside", TELL, InputDataConfig=[file_system("ro", directory)])


def test_the_model_of_an_earlier_job_arrives_as_its_archive(anna: Trainee) -> None:
    make = "import os; open(os.environ['SM_MODEL_DIR'] + '/weights.bin', 'wb').write(bytes(range(256)))"
    completed(anna, "first", make)
    again = """
import os, tarfile
with tarfile.open("/opt/ml/input/data/model/model.tar.gz") as archive:
    archive.extractall("/opt/ml/input/data/model")
data = open("/opt/ml/input/data/model/weights.bin", "rb").read()
open(os.environ["SM_MODEL_DIR"] + "/weights.bin", "wb").write(data[::-1])
"""
    uri = anna.describe("first")["ModelArtifacts"]["S3ModelArtifacts"]
    model = channel("model", uri, ContentType="application/x-sagemaker-model", InputMode="File")
    completed(anna, "second", again, InputDataConfig=[model])
    assert anna.archive("out/second/output/model.tar.gz")["weights.bin"] == bytes(range(256))[::-1]
    with tarfile.open(fileobj=io.BytesIO(stored(anna, {"out/first/output/model.tar.gz": b""}).popitem()[1])) as archive:
        assert archive.getnames() == ["weights.bin"]


@pytest.mark.flow
def test_results_without_compression_are_objects_that_the_next_job_reads(anna: Trainee) -> None:
    make = """
import os, pathlib
host = os.environ["SM_CURRENT_HOST"]
for folder in (os.environ["SM_MODEL_DIR"], os.environ["SM_OUTPUT_DATA_DIR"]):
    path = pathlib.Path(folder, "deep", host)
    path.parent.mkdir()
    path.write_text(host)
"""
    output = {"S3OutputPath": "s3://data/out", "CompressionType": "NONE"}
    resources = {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 1}
    completed(anna, "plain", make, OutputDataConfig=output, ResourceConfig=resources)
    assert anna.keys("out/plain/") == [
        f"out/plain/output/{kind}/deep/algo-{number}" for kind in ("model", "output") for number in (1, 2)
    ]
    uri = anna.describe("plain")["ModelArtifacts"]["S3ModelArtifacts"]
    assert uri == "s3://data/out/plain/output/model/"
    read = "import os; print(sorted(os.listdir(os.environ['SM_CHANNEL_MODEL'] + '/deep')))"
    model = channel("model", uri, ContentType="application/x-sagemaker-model", InputMode="File")
    completed(anna, "after-plain", read, InputDataConfig=[model])
    assert anna.printed("after-plain") == ["['algo-1', 'algo-2']"]


def test_an_instance_has_the_files_that_the_platform_leaves_there(anna: Trainee, objects: dict[str, bytes]) -> None:
    show = """
import json, os, pathlib
ml = pathlib.Path("/opt/ml")
names = sorted(os.listdir(ml / "input/config"))
config = json.loads((ml / "input/config/init-config.json").read_text())
manifest = (ml / "input/data/train-manifest").read_text().splitlines()
saved = (ml / "input/data/checkpoints-manifest").read_text().splitlines()
print(json.dumps([names, config["jobRunInfo"], manifest[0], len(manifest) - 1, saved, (ml / "checkpoints").exists()]))
"""
    anna.user.client("s3").put_object(Bucket="data", Key="ck/elsewhere/1.pt", Body=b"1")
    elsewhere = {"S3Uri": "s3://data/ck/elsewhere", "LocalPath": "/state"}
    completed(anna, "platform", show, InputDataConfig=[channel("train")], CheckpointConfig=elsewhere)
    assert json.loads(anna.printed("platform")[-1]) == [
        [
            "checkpointconfig.json",
            "hyperparameters.json",
            "init-config.json",
            "inputdataconfig.json",
            "metric-definition-regex.json",
            "profilerconfig.json",
            "resourceconfig.json",
            "trainingjobconfig.json",
            "upstreamoutputdataconfig.json",
        ],
        {"jobRunNumber": 1},
        "set/",
        len(objects),
        ["ck/elsewhere", "s3://data/ck/elsewhere/1.pt"],
        False,
    ]


def test_a_file_system_may_stand_for_a_prefix(
    yard: RunningYard, anna: Trainee, shared: Path, objects: dict[str, bytes]
) -> None:
    channels = [file_system("ro", "/deep", LINKED), channel("fast", InputMode="FastFile")]
    completed(anna, "linked", TELL, InputDataConfig=channels)
    (told,) = told_of(anna, "linked")
    of_prefix = {key: body for key, body in objects.items() if key.startswith("set/deep/")}
    assert told["sets"] == digests(of_prefix, "set/deep/")
    completed(anna, "linked-write", WRITE, InputDataConfig=channels)
    assert anna.printed("linked-write") == ["fast EROFS"] * 3 + ["sets EROFS"] * 3
    assert stored(anna, of_prefix) == of_prefix

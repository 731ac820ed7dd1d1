"""Pipe channels of real jobs. Every byte that a script reads is compared."""

import gzip
import hashlib
import json
import random
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.system.trainees import Trainee
from tests.system.yards import KINDS, place_for, trainee_of
from trainyard.wire.client import Client

# Of all sizes that are sent in different ways; 45 so that three instances get 15 each.
OBJECTS = {
    f"piped/{number:03}": random.Random(number).randbytes((0, 3, 5_000, 65_537, 400_000)[number % 5])
    for number in range(45)
}
LINES = {f"text/{number}.gz": "".join(f"{number},{line}\n" for line in range(2000)) for number in range(6)}

RAW = """
import hashlib, os, shutil
for epoch in range(2):
    with open(f"/opt/ml/input/data/train_{epoch}", "rb") as source, open(f"/opt/ml/model/{epoch}", "wb") as target:
        assert os.path.exists(f"/opt/ml/input/data/train_{epoch + 1}")
        shutil.copyfileobj(source, target)
"""
RECORDS = """
import hashlib, json
from trainyard.data import RecordIODataset
for epoch in range(2):
    print(json.dumps([hashlib.sha256(record).hexdigest() for record in RecordIODataset("train")]), flush=True)
"""
TEXT = """
import hashlib
from trainyard.data import TextLineDataset
for epoch in range(2):
    lines = list(TextLineDataset("train"))
    print(len(lines), hashlib.sha256("\\n".join(lines).encode()).hexdigest(), flush=True)
"""
ATTRIBUTES = """
import hashlib, json
from trainyard.data import RecordIODataset
records = list(RecordIODataset("train"))
print(json.dumps([[hashlib.sha256(image).hexdigest(), json.loads(label)]
                  for image, label in zip(records[::2], records[1::2], strict=True)]), flush=True)
"""
SURROUNDINGS = """
import json, os, stat
print(json.load(open("/opt/ml/input/config/inputdataconfig.json"))["train"])
print(json.loads(os.environ["SM_INPUT_DATA_CONFIG"])["train"])
print(os.environ["SM_CHANNELS"], os.environ["SM_CHANNEL_TRAIN"])
told = os.stat("/opt/ml/input/data/train_0")
print(stat.S_ISFIFO(told.st_mode), told.st_uid == os.getuid(), sorted(os.listdir("/opt/ml/input/data")))
"""
FOREVER = """
import itertools
for epoch in itertools.count():
    with open(f"/opt/ml/input/data/train_{epoch}", "rb") as stream:
        while stream.read(1 << 20):
            pass
    print("epoch", epoch, flush=True)
"""
IDLE = """
import time
print("idle", flush=True)
while True:
    time.sleep(0.05)
"""
PICKY = """
for epoch in range(5):
    with open(f"/opt/ml/input/data/train_{epoch}", "rb") as stream:
        print(len(stream.read(10)), flush=True)
"""


@pytest.fixture(scope="module", params=KINDS)
def anna(request: pytest.FixtureRequest) -> Iterator[Trainee]:
    """A user of a yard that root runs, and of one that an ordinary user runs."""
    with place_for(request.param) as place, place.running() as yard:
        yield prepared(trainee_of(yard))


def prepared(trainee: Trainee) -> Trainee:
    trainee.prepare()
    s3 = trainee.user.client("s3")
    for key, data in OBJECTS.items():
        s3.put_object(Bucket="data", Key=key, Body=data)
    for key, text in LINES.items():
        s3.put_object(Bucket="data", Key=key, Body=gzip.compress(text.encode()))
    return trainee


def piped(prefix: str = "piped/", *, kind: str = "S3Prefix", **values: Any) -> dict[str, Any]:
    """InputDataConfig with one Pipe channel. Members of the S3DataSource begin with `S3` or are AttributeNames."""
    source = {name: values.pop(name) for name in list(values) if name.startswith(("S3", "Attribute"))}
    where = {"S3DataType": kind, "S3Uri": f"s3://data/{prefix}"} | source
    channel = {"ChannelName": "train", "InputMode": "Pipe", "DataSource": {"S3DataSource": where}} | values
    return {"InputDataConfig": [channel]}


def three() -> dict[str, Any]:
    return {"ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 3, "VolumeSizeInGB": 1}}


def completed(trainee: Trainee, name: str, script: str, **changed: Any) -> None:
    told = trainee.run(name, script, **changed)
    assert told["TrainingJobStatus"] == "Completed", (told.get("FailureReason"), trainee.lines(name)[-5:])


def digests(data: dict[str, bytes]) -> list[str]:
    return [hashlib.sha256(each).hexdigest() for each in data.values()]


def test_a_script_reads_every_byte_in_every_epoch(anna: Trainee) -> None:
    completed(anna, "raw", RAW, **piped())
    whole = b"".join(OBJECTS.values())
    assert anna.archive("out/raw/output/model.tar.gz") == {"0": whole, "1": whole}


def test_three_instances_read_all_of_a_replicated_channel(anna: Trainee) -> None:
    completed(anna, "replicated", RECORDS, **piped(RecordWrapperType="RecordIO"), **three())
    for instance in range(3):
        assert [json.loads(line) for line in anna.printed("replicated", instance=instance)] == [digests(OBJECTS)] * 2


def test_three_instances_share_a_sharded_channel_out(anna: Trainee) -> None:
    channel = piped(RecordWrapperType="RecordIO", S3DataDistributionType="ShardedByS3Key")
    completed(anna, "sharded", RECORDS, **channel, **three())
    read = [[json.loads(line) for line in anna.printed("sharded", instance=number)] for number in range(3)]
    for epoch in range(2):
        parts = [each[epoch] for each in read]
        assert [len(part) for part in parts] == [15, 15, 15]
        assert sorted(digest for part in parts for digest in part) == sorted(digests(OBJECTS))


@pytest.mark.flow
def test_a_sharded_channel_with_a_seed_is_distributed_again_in_each_epoch(anna: Trainee) -> None:
    channel = piped(RecordWrapperType="RecordIO", S3DataDistributionType="ShardedByS3Key", ShuffleConfig={"Seed": 5})
    completed(anna, "anew", RECORDS, **channel, **three())
    read = [[json.loads(line) for line in anna.printed("anew", instance=number)] for number in range(3)]
    owners = []
    for epoch in range(2):
        parts = [each[epoch] for each in read]
        assert [len(part) for part in parts] == [15, 15, 15]
        assert sorted(digest for part in parts for digest in part) == sorted(digests(OBJECTS))
        owners.append({digest: number for number, part in enumerate(parts) for digest in part})
    assert owners[0] != owners[1]


def test_with_a_seed_each_epoch_has_another_order(anna: Trainee) -> None:
    completed(anna, "shuffled", RECORDS, **piped(RecordWrapperType="RecordIO", ShuffleConfig={"Seed": 5}))
    first, second = (json.loads(line) for line in anna.printed("shuffled"))
    assert first != second
    assert sorted(first) == sorted(second) == sorted(digests(OBJECTS))


def test_packed_lines_are_unpacked_on_the_way(anna: Trainee) -> None:
    completed(anna, "lines", TEXT, **piped("text/", CompressionType="Gzip"))
    text = "".join(LINES.values()).removesuffix("\n")
    assert anna.printed("lines") == [f"12000 {hashlib.sha256(text.encode()).hexdigest()}"] * 2


def test_an_augmented_manifest_gives_objects_and_labels(anna: Trainee) -> None:
    lines = [{"source-ref": f"s3://data/{key}", "label": number} for number, key in enumerate(OBJECTS)]
    body = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
    anna.user.client("s3").put_object(Bucket="data", Key="all.manifest", Body=body)
    channel = piped(
        "all.manifest",
        kind="AugmentedManifestFile",
        AttributeNames=["source-ref", "label"],
        RecordWrapperType="RecordIO",
    )
    completed(anna, "augmented", ATTRIBUTES, **channel)
    (line,) = anna.printed("augmented")
    assert json.loads(line) == [[digest, number] for number, digest in enumerate(digests(OBJECTS))]


def test_a_program_learns_that_its_channel_is_a_pipe(anna: Trainee) -> None:
    completed(anna, "told", SURROUNDINGS, **piped(ContentType="application/x-recordio"))
    config = {
        "ContentType": "application/x-recordio",
        "TrainingInputMode": "Pipe",
        "S3DistributionType": "FullyReplicated",
        "RecordWrapperType": "None",
    }
    from_file, from_environment, channels, fifo = anna.printed("told")
    assert from_file == str(config)
    assert from_environment == str(dict(sorted(config.items())))
    assert channels == '["train"] /opt/ml/input/data/train'
    assert fifo == "True True ['train_0', 'train_1']"


def test_a_reader_that_closes_early_ends_its_epoch_only(anna: Trainee) -> None:
    completed(anna, "picky", PICKY, **piped())
    assert anna.printed("picky") == ["10"] * 5


def test_an_object_that_goes_meanwhile_fails_the_job_by_its_name(anna: Trainee) -> None:
    s3 = anna.user.client("s3")
    for number in range(3):
        s3.put_object(Bucket="data", Key=f"passing/{number}", Body=bytes(100_000))
    anna.start("bereft", FOREVER, **piped("passing/"))
    anna.await_line("bereft", "epoch 3")
    s3.delete_object(Bucket="data", Key="passing/1")
    told = anna.reach("bereft", "Failed")
    assert told["FailureReason"] == (
        "ClientError: The object s3://data/passing/1 of channel train cannot be sent: it does not exist any more."
    )


def test_a_job_with_an_unread_channel_has_a_note_about_it(anna: Trainee) -> None:
    anna.user.client("s3").put_object(Bucket="data", Key="single/0", Body=b"only")
    sharded = piped("single/", S3DataDistributionType="ShardedByS3Key")
    completed(anna, "unread", "print('reads nothing')", **sharded, **three())
    user = anna.user
    with closing(Client(user.endpoint, user.access_key_id, user.secret_access_key, user.region)) as client:
        notes = client.call("trainyard", "DescribeJob", TrainingJobName="unread")["Notes"]
    for number in (1, 2, 3):
        unopened = f"The program on algo-{number} has not opened /opt/ml/input/data/train_0, so it has read nothing of "
        assert unopened + "the Pipe channel train." in notes
        nothing = f"algo-{number} gets no object of channel train: it is ShardedByS3Key, and there are more instances "
        assert (nothing + "than objects." in notes) == (number > 1)


def test_a_job_that_never_opens_its_pipe_can_be_stopped(anna: Trainee) -> None:
    anna.start("idle", IDLE, **piped())
    anna.await_line("idle", "idle")
    anna.sagemaker.stop_training_job(TrainingJobName="idle")
    assert anna.reach("idle", "Stopped", within_s=30)["TrainingJobStatus"] == "Stopped"

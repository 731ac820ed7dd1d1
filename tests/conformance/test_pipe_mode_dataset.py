"""`sagemaker_tensorflow.PipeModeDataset` in jobs with real TensorFlow, and TensorFlow's own files read without it."""

import io
import json

import pytest

from tests.conformance.conftest import Person
from tests.conformance.environments import interpreter
from tests.system.test_training import trainee_of
from tests.system.trainees import Trainee
from trainyard.formats.recordio import write_recordio
from trainyard.formats.tfrecord import read_tfrecord, write_tfrecord

RECORDS = [b"", b"one", bytes(range(256)) * 100, "zwölf".encode()]
READ = """
import json
import tensorflow as tf
import sagemaker_tensorflow
from sagemaker_tensorflow import PipeModeDataset

def say(*words):
    print(">", json.dumps(words))

def texts(dataset):
    return [record.numpy().hex() for record in dataset]

records = PipeModeDataset("records")
say(sagemaker_tensorflow.__file__, isinstance(records, tf.data.Dataset), str(records.element_spec))
say(texts(records), texts(records))
say(*(len(batch) for batch in records.batch(3)))
examples = PipeModeDataset(channel="examples", record_format="TFRecord")
say(*texts(examples.repeat(2).prefetch(4)))
lines = PipeModeDataset(channel="lines", record_format="TextLine").map(tf.strings.length)
say(*(int(length) for length in lines))
with tf.io.TFRecordWriter("/opt/ml/model/written.tfrecord") as writer:
    for record in records:
        writer.write(record.numpy())
try:
    PipeModeDataset("absent")
except sagemaker_tensorflow.PipeModeDatasetException as error:
    say(str(error))
"""


@pytest.fixture
def trainee(person: Person) -> Trainee:
    person.trainyard("connect", "--yes")
    person.trainyard("images", "map", "tensorflow-training", str(interpreter("tensorflow")))
    return trainee_of(person.yard).prepare()


def put_channels(trainee: Trainee) -> None:
    recordio, tfrecord = io.BytesIO(), io.BytesIO()
    for record in RECORDS:
        write_recordio(recordio, record)
        write_tfrecord(tfrecord, record)
    bodies = {"records": recordio.getvalue(), "examples": tfrecord.getvalue(), "lines": b"a\n\nthree\nlast"}
    for name, body in bodies.items():
        trainee.user.client("s3").put_object(Bucket="data", Key=f"pipes/{name}", Body=body)


def channel(name: str) -> dict[str, object]:
    where = {"S3DataType": "S3Prefix", "S3Uri": f"s3://data/pipes/{name}"}
    return {"ChannelName": name, "DataSource": {"S3DataSource": where}}


@pytest.mark.slow
def test_pipe_channels_are_datasets_of_tensorflow(trainee: Trainee) -> None:
    put_channels(trainee)
    image = "763104351884.dkr.ecr.us-east-1.amazonaws.com/tensorflow-training:2.21-cpu-py312"
    told = trainee.run(
        "pipe-mode-dataset",
        READ,
        AlgorithmSpecification={"TrainingImage": image, "TrainingInputMode": "Pipe"},
        InputDataConfig=[channel(name) for name in ("records", "examples", "lines")],
    )
    assert told["TrainingJobStatus"] == "Completed", (told.get("FailureReason"), trainee.lines("pipe-mode-dataset"))
    said = [json.loads(line[2:]) for line in trainee.printed("pipe-mode-dataset") if line.startswith("> ")]
    texts = [record.hex() for record in RECORDS]
    stand_in = "/run/trainyard/python/trainyard/instance/compat/sagemaker_tensorflow/__init__.py"
    assert said == [
        [stand_in, True, "TensorSpec(shape=(), dtype=tf.string, name=None)"],
        [texts, texts],
        [3, 1],
        texts * 2,
        [1, 0, 5, 4],
        ["The job has no channel absent; it has records, examples, lines."],
    ]
    (written,) = trainee.archive("out/pipe-mode-dataset/output/model.tar.gz").values()
    assert written is not None
    assert list(read_tfrecord(io.BytesIO(written))) == RECORDS

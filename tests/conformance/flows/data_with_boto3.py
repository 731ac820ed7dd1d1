"""Data channels of every mode and source, checkpoints, incremental training and spot, with only boto3.

Its arguments are the id and the folder of a file system of the yard.
"""

import gzip
import hashlib
import io
import json
import struct
import sys
import tarfile
import time
import uuid
from pathlib import Path
from typing import Any

import boto3
from botocore.exceptions import ClientError

IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-cpu-py312"
RUN = uuid.uuid4().hex[:8]
BUCKET = f"data-{RUN}"
SET = {f"{number:02}.bin": bytes([number + 1]) * (number * 1001) for number in range(14)} | {"deep/a.csv": b"1,2\n"}
TELL = """
import hashlib, json, os, pathlib

data, kept, told = pathlib.Path("/opt/ml/input/data"), pathlib.Path("/state/steps"), {}

def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()

for name, config in json.loads(os.environ["SM_INPUT_DATA_CONFIG"]).items():
    files = [path for path in (data / name).rglob("*") if path.is_file()]
    told[name] = {str(path.relative_to(data / name)): digest(path) for path in files}
    if config["TrainingInputMode"] == "Pipe":
        told[name] = [digest(data / f"{name}_{epoch}") for epoch in range(2)]
if kept.parent.is_dir():
    told["steps"] = int(kept.read_text()) + 1 if kept.exists() else 1
    kept.write_text(str(told["steps"]))
host = os.environ["SM_CURRENT_HOST"]
pathlib.Path(os.environ["SM_MODEL_DIR"], f"{host}.json").write_text(json.dumps(told))
"""

sagemaker, s3 = boto3.client("sagemaker"), boto3.client("s3")


def main(file_system: str, shared: str) -> None:
    s3.create_bucket(Bucket=BUCKET)
    for name, body in SET.items():
        s3.put_object(Bucket=BUCKET, Key=f"set/{name}", Body=body)
        s3.put_object(Bucket=BUCKET, Key=f"packed/{name}", Body=gzip.compress(body))
    listed = [{"prefix": f"s3://{BUCKET}/set/"}, "03.bin", "deep/a.csv"]
    s3.put_object(Bucket=BUCKET, Key="some.manifest", Body=json.dumps(listed).encode())
    s3.put_object(Bucket=BUCKET, Key="code/sourcedir.tar.gz", Body=packed("train.py", TELL))
    comes_in_every_way(file_system, Path(shared))
    is_shared_out()
    goes_on()
    is_refused()


def comes_in_every_way(file_system: str, shared: Path) -> None:
    place = {"FileSystemId": file_system, "FileSystemType": "EFS", "FileSystemAccessMode": "ro"}
    channels = [
        channel("file"),
        channel("fast", InputMode="FastFile"),
        channel("listed", "some.manifest", S3DataType="ManifestFile"),
        channel("pipe", InputMode="Pipe"),
        channel("packed", "packed/", InputMode="Pipe", CompressionType="Gzip", RecordWrapperType="RecordIO"),
        {"ChannelName": "shared", "DataSource": {"FileSystemDataSource": {**place, "DirectoryPath": "/sets"}}},
    ]
    (told,) = trained(InputDataConfig=channels)
    bodies = [SET[name] for name in sorted(SET)]
    files = [path for path in (shared / "sets").rglob("*") if path.is_file()]
    assert told == {
        "file": digests(SET),
        "fast": digests(SET),
        "listed": digests({name: SET[name] for name in ("03.bin", "deep/a.csv")}),
        "pipe": [digest(b"".join(bodies))] * 2,
        "packed": [digest(recordio(bodies))] * 2,
        "shared": {str(path.relative_to(shared / "sets")): digest(path.read_bytes()) for path in files},
    }


def is_shared_out() -> None:
    """15 objects on 3 instances are 5 each, as files and through a FIFO."""
    how = {"S3DataDistributionType": "ShardedByS3Key"}
    channels = [channel("file", **how), channel("fast", InputMode="FastFile", **how)]
    channels += [channel("pipe", InputMode="Pipe", **how)]
    told = trained(InputDataConfig=channels, ResourceConfig=instances(3))
    for mode in ("file", "fast"):
        assert [len(each[mode]) for each in told] == [5, 5, 5]
        assert {name: found for each in told for name, found in each[mode].items()} == digests(SET)
    for each in told:
        assert each["pipe"] == [digest(b"".join(SET[name] for name in sorted(each["file"])))] * 2


def goes_on() -> None:
    """Two jobs share a counter, the second one on spot; the third has the model of the second as a channel."""
    kept = {"CheckpointConfig": {"S3Uri": f"s3://{BUCKET}/kept", "LocalPath": "/state"}}
    assert trained(**kept) == [{"steps": 1}]
    limits = {"MaxRuntimeInSeconds": 300, "MaxWaitTimeInSeconds": 600}
    spot = {"EnableManagedSpotTraining": True, "StoppingCondition": limits}
    name, told = finished(**kept, **spot)
    assert told == [{"steps": 2}]
    assert s3.get_object(Bucket=BUCKET, Key="kept/steps")["Body"].read() == b"2"
    job = sagemaker.describe_training_job(TrainingJobName=name)
    assert (job["CheckpointConfig"], job["StoppingCondition"]) == (kept["CheckpointConfig"], limits)
    assert job["BillableTimeInSeconds"] <= job["TrainingTimeInSeconds"]
    model = s3.get_object(Bucket=BUCKET, Key=f"out/{name}/output/model.tar.gz")["Body"].read()
    (told,) = trained(InputDataConfig=[channel("model", f"out/{name}/output/model.tar.gz")])
    assert told == {"model": {"model.tar.gz": digest(model)}}


def is_refused() -> None:
    """Every foreseeable error is reported before a job is created, with what to do."""
    spot = {"EnableManagedSpotTraining": True}
    cases: list[tuple[str, dict[str, Any]]] = [
        ("There are no objects under", {"InputDataConfig": [channel("train", "sets/")]}),
        ("does not exist; create it first", {"InputDataConfig": [channel("train", S3Uri="s3://no-such-bucket/set")]}),
        ("There is no object at", {"InputDataConfig": [channel("train", "no.manifest", S3DataType="ManifestFile")]}),
        ("CompressionType needs the input mode Pipe", {"InputDataConfig": [channel("train", CompressionType="Gzip")]}),
        ("needs AttributeNames", {"InputDataConfig": [channel("train", S3DataType="AugmentedManifestFile")]}),
        ("used more than once", {"InputDataConfig": [channel("train"), channel("train")]}),
        ("needs a MaxWaitTimeInSeconds", spot),
        ("includes the MaxRuntimeInSeconds", spot | limited(300, MaxWaitTimeInSeconds=299)),
        ("only for jobs with EnableManagedSpotTraining", limited(300, MaxWaitTimeInSeconds=600)),
        ("must be an absolute path", {"CheckpointConfig": {"S3Uri": f"s3://{BUCKET}/kept", "LocalPath": "kept"}}),
        ("does not exist; create it first", {"CheckpointConfig": {"S3Uri": "s3://no-such-bucket/kept"}}),
    ]
    for said, changed in cases:
        refused = ""
        try:
            sagemaker.create_training_job(**request(f"refused-{uuid.uuid4().hex[:8]}", **changed))
        except ClientError as error:
            refused = f"{error.response['Error']['Code']}: {error.response['Error']['Message']}"
        assert refused.startswith("ValidationException: "), (said, refused)
        assert said in refused, (said, refused)


def channel(name: str, key: str = "set/", **members: Any) -> dict[str, Any]:
    source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/{key}"}
    source |= {member: members.pop(member) for member in list(members) if member.startswith("S3")}
    return {"ChannelName": name, "DataSource": {"S3DataSource": source}, **members}


def limited(run_s: int, **members: int) -> dict[str, Any]:
    return {"StoppingCondition": {"MaxRuntimeInSeconds": run_s, **members}}


def instances(count: int) -> dict[str, Any]:
    return {"InstanceType": "ml.m5.large", "InstanceCount": count, "VolumeSizeInGB": 1}


def request(name: str, **changed: Any) -> dict[str, Any]:
    account = boto3.client("sts").get_caller_identity()
    return {
        "TrainingJobName": name,
        "RoleArn": f"arn:aws:iam::{account['Account']}:role/{account['Arn'].split('/')[1]}",
        "AlgorithmSpecification": {"TrainingImage": IMAGE, "TrainingInputMode": "File"},
        "HyperParameters": {
            "sagemaker_program": "train.py",
            "sagemaker_submit_directory": f"s3://{BUCKET}/code/sourcedir.tar.gz",
        },
        "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/out"},
        "ResourceConfig": instances(1),
        **limited(300),
        **changed,
    }


def trained(**changed: Any) -> list[Any]:
    return finished(**changed)[1]


def finished(**changed: Any) -> tuple[str, list[Any]]:
    """Wait for a job to complete; return its name and the output of each instance."""
    name = f"data-{uuid.uuid4().hex[:8]}"
    sagemaker.create_training_job(**request(name, **changed))
    deadline = time.monotonic() + 90
    while (job := sagemaker.describe_training_job(TrainingJobName=name))["TrainingJobStatus"] == "InProgress":
        assert time.monotonic() < deadline, f"{name} is {job['SecondaryStatus']} after 90 s"
        time.sleep(0.1)
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    body = s3.get_object(Bucket=BUCKET, Key=f"out/{name}/output/model.tar.gz")["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(body)) as archive:
        files = {entry.name: archive.extractfile(entry) for entry in archive}
        return name, [json.loads(file.read()) for _, file in sorted(files.items()) if file is not None]


def packed(name: str, text: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = len(text.encode())
        archive.addfile(entry, io.BytesIO(text.encode()))
    return buffer.getvalue()


def recordio(bodies: list[bytes]) -> bytes:
    return b"".join(struct.pack("<II", 0xCED7230A, len(body)) + body + bytes(-len(body) % 4) for body in bodies)


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def digests(files: dict[str, bytes]) -> dict[str, str]:
    return {name: digest(body) for name, body in files.items()}


main(*sys.argv[1:])

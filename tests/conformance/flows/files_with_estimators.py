"""Channels as files with estimators: FastFile, sharded over instances, listed by a manifest, and of file systems.

Its arguments are the package of the estimators, sagemaker or trainyard; the id and the folder of a file system of the
yard; and the id of another one and its S3 location.
"""

import importlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import boto3

estimating: Any = importlib.import_module("estimating")
TELL, digest, digests = estimating.TELL, estimating.digest, estimating.digests

# The numbers of the AWS documentation: 45 objects on 3 instances are 15 each.
SET = {f"part-{number:02}.bin": bytes([number]) * (number * 1000) for number in range(44)}
SET |= {"deep/er/part.bin": bytes(range(256)) * 9000}
WRITE = """
import json, os, pathlib

folder = pathlib.Path(os.environ["SM_CHANNEL_TRAINING"])
(folder / "written.txt").write_text((folder / "a.txt").read_text() * 2)
"""


def main(package: str, file_system: str, shared: str, lustre: str, linked: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        kit = estimating.kit_of(package, folder)
        location = kit.put(SET)
        is_fast(kit, location)
        is_shared_out(kit, location)
        is_shared_out_over_a_group(kit, location)
        is_listed(kit, location)
        is_on_a_file_system(kit, file_system, Path(shared))
        is_linked_to_s3(kit, lustre, linked)


def is_fast(kit: Any, location: str) -> None:
    """The mode of a channel overrides that of the job."""
    job = kit.estimator(TELL, input_mode="FastFile")
    file = kit.of("inputs", "TrainingInput")(location, input_mode="File")
    job.fit({"fast": location, "file": file}, logs=False)
    assert kit.told(job) == [{"fast": digests(SET), "file": digests(SET)}]
    described = job.latest_training_job.describe()
    assert described["AlgorithmSpecification"]["TrainingInputMode"] == "FastFile"


def is_shared_out(kit: Any, location: str) -> None:
    make = kit.of("inputs", "TrainingInput")
    job = kit.estimator(TELL, instance_count=3)
    job.fit(
        {
            "train": make(location, distribution="ShardedByS3Key"),
            "fast": make(location, distribution="ShardedByS3Key", input_mode="FastFile"),
            "whole": make(location, distribution="FullyReplicated"),
        },
        logs=False,
    )
    told = kit.told(job)
    assert [each["whole"] for each in told] == [digests(SET)] * 3
    for name in ("train", "fast"):
        shares = [each[name] for each in told]
        assert [len(share) for share in shares] == [15, 15, 15]
        assert {path: found for share in shares for path, found in share.items()} == digests(SET)


def is_shared_out_over_a_group(kit: Any, location: str) -> None:
    """Two instances of one group share a channel, which the other group does not have."""
    make, group = kit.of("inputs", "TrainingInput"), kit.of("instance_group", "InstanceGroup")
    groups = [group("feeders", "ml.c5.xlarge", 2), group("trainers", "ml.m5.large", 1)]
    job = kit.estimator(TELL, instance_count=None, instance_type=None, instance_groups=groups)
    job.fit(
        {
            "train": make(location, distribution="ShardedByS3Key", instance_groups=["feeders"]),
            "whole": make(location, instance_groups=["feeders", "trainers"]),
        },
        logs=False,
    )
    *feeders, trainer = kit.told(job)
    assert [len(each["train"]) for each in feeders] == [23, 22]
    assert {path: found for each in feeders for path, found in each["train"].items()} == digests(SET)
    assert [each["whole"] for each in feeders] == [digests(SET)] * 2
    assert trainer == {"whole": digests(SET)}


def is_listed(kit: Any, location: str) -> None:
    listed = ["part-07.bin", "deep/er/part.bin"]
    manifest = kit.put({"some.manifest": json.dumps([{"prefix": f"{location}/"}, *listed]).encode()})
    job = kit.estimator(TELL)
    given = kit.of("inputs", "TrainingInput")(f"{manifest}/some.manifest", s3_data_type="ManifestFile")
    job.fit({"train": given}, logs=False)
    assert kit.told(job) == [{"train": {name: digest(SET[name]) for name in listed}}]


def is_on_a_file_system(kit: Any, identifier: str, shared: Path) -> None:
    make = kit.of("inputs", "FileSystemInput")
    job = kit.estimator(TELL)
    inputs = {
        "efs": make(identifier, "EFS", "/sets"),
        "lustre": make(file_system_id=identifier, file_system_type="FSxLustre", directory_path="/sets/deep"),
    }
    job.fit(inputs, logs=False)
    files = {str(path.relative_to(shared / "sets")): path.read_bytes() for path in (shared / "sets").rglob("*.txt")}
    assert kit.told(job) == [{"efs": digests(files), "lustre": {"b.txt": digest(files["deep/b.txt"])}}]
    records = kit.of("amazon.amazon_estimator", "FileSystemRecordSet")(
        identifier, "EFS", "/sets/deep", num_records=1, feature_dim=1, channel="records"
    )
    job.fit(records.data_channel(), logs=False)
    assert kit.told(job) == [{"records": {"b.txt": digest(files["deep/b.txt"])}}]
    kit.estimator(WRITE).fit(make(identifier, "EFS", "/sets", "rw"), logs=False)
    assert (shared / "sets/written.txt").read_bytes() == files["a.txt"] * 2
    (shared / "sets/written.txt").unlink()


def is_linked_to_s3(kit: Any, identifier: str, location: str) -> None:
    """A file system of FSx for Lustre whose files are the objects below a location."""
    s3 = boto3.client("s3")
    bucket, prefix = estimating.split(location)
    s3.create_bucket(Bucket=bucket)
    for name, body in SET.items():
        s3.put_object(Bucket=bucket, Key=f"{prefix}/sets/{name}", Body=body)
    job = kit.estimator(TELL)
    job.fit({"lustre": kit.of("inputs", "FileSystemInput")(identifier, "FSxLustre", "/sets")}, logs=False)
    assert kit.told(job) == [{"lustre": digests(SET)}]


main(*sys.argv[1:])

"""Instances to prepare, run and report in tests."""

import io
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trainyard.foundation.clock import boottime, utc_now
from trainyard.foundation.locations import BucketRef, Location
from trainyard.instance.agent.commands import CommandReader
from trainyard.instance.agent.context import InstanceContext
from trainyard.instance.agent.reports import Reports
from trainyard.link.contract import PROTOCOL, ChannelSpec, InstanceSpec, LimitSpec, ObjectsSpec, ProgramSpec
from trainyard.link.folders import InstanceFolder
from trainyard.link.mailbox import Mailbox
from trainyard.link.spool import SpoolWriter
from trainyard.objects.contract import Attributes
from trainyard.objects.filesystem import FilesystemObjects

ACCOUNT = "111122223333"
BUCKET = BucketRef(ACCOUNT, "yard")

SPEC = InstanceSpec(
    protocol=PROTOCOL,
    job_id="j-1",
    job_name="mnist-7",
    job_arn=f"arn:aws:sagemaker:us-west-2:{ACCOUNT}:training-job/mnist-7",
    account=ACCOUNT,
    region="us-west-2",
    attempt=1,
    instance="algo-1",
    hosts=("algo-1",),
    instance_type="ml.m5.large",
    instance_group="homogeneousCluster",
    program=ProgramSpec("train.py", "s3://yard/code/sourcedir.tar.gz", (), "/usr/bin/python3"),
    hyperparameters={},
    environment={},
    channels=(),
    output_path="s3://yard/models",
    metrics=(),
    limits=LimitSpec(cpus=2.0),
    objects=ObjectsSpec("/nowhere"),
)

# Instances for which the toolkit's own answers are recorded beside this file.
RECORDED: Mapping[str, InstanceSpec] = {
    "every kind of value": replace(
        SPEC,
        hyperparameters={
            "sagemaker_program": '"train.py"',
            "sagemaker_submit_directory": '"s3://yard/code/sourcedir.tar.gz"',
            "sagemaker_container_log_level": "20",
            "sagemaker_job_name": '"mnist-7"',
            "sagemaker_region": '"us-west-2"',
            "epochs": "3",
            "lr": "0.1",
            "e": "1e-05",
            "name": '"adam"',
            "plain": "text here",
            "flag": "true",
            "nothing": "null",
            "layers": "[1, 2]",
            "opts": '{"b": 1, "a": "x"}',
            "batch-size": "64",
            "empty": "",
            "accent": '"é"',
        },
        channels=(
            ChannelSpec("train", "File", "yard", "data/train"),
            ChannelSpec(
                "my-val",
                "File",
                "yard",
                "data/val",
                content_type="text/csv",
                record_wrapper="RecordIO",
                distribution="ShardedByS3Key",
            ),
        ),
    ),
    "second of two under MPI": replace(
        SPEC,
        instance="algo-2",
        hosts=("algo-2", "algo-1"),
        instance_type="ml.p3.2xlarge",
        hyperparameters={
            "sagemaker_program": "train.py",
            "sagemaker_submit_directory": "s3://yard/code/sourcedir.tar.gz",
            "sagemaker_mpi_enabled": "true",
            "sagemaker_mpi_num_of_processes_per_host": "2",
            "_tuning_objective_metric": '"loss"',
            "x": "1",
        },
    ),
    "a command without code": replace(
        SPEC,
        program=ProgramSpec(command=("train", "--now"), interpreter="/usr/bin/python3"),
        hyperparameters={"x": "1"},
        channels=(ChannelSpec("train", "File", "yard", "data/train"),),
    ),
}


def changed(spec: InstanceSpec = SPEC, **values: Any) -> InstanceSpec:
    """Return a spec with some members replaced."""
    return replace(spec, **values)


def open_context(folder: InstanceFolder, spec: InstanceSpec, spool: SpoolWriter) -> InstanceContext:
    """The context of an instance whose folder exists. The caller closes its output."""
    commands = CommandReader(Mailbox(folder.mailbox), monotonic=boottime)
    return InstanceContext.open(folder, spec, reports=Reports(spool), commands=commands, yard_environment={})


def put_object(store: FilesystemObjects, key: str, data: bytes) -> None:
    writer = store.writer(Location(BUCKET, key), Attributes())
    writer.write(data)
    writer.commit(now=utc_now())


def read_object(store: FilesystemObjects, key: str) -> bytes:
    with store.open(Location(BUCKET, key)) as reader:
        return reader.read(0, reader.info.size)


def make_bucket(store: FilesystemObjects) -> None:
    store.create_bucket(BUCKET, region="us-west-2", now=utc_now())


def tar_gz(files: Mapping[str, str]) -> bytes:
    """An archive of text files; those that end in .sh are executable."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            entry.mode = 0o755 if name.endswith(".sh") else 0o644
            tar.addfile(entry, io.BytesIO(text.encode()))
    return packed.getvalue()

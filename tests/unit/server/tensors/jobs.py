"""Jobs whose tensors a test stores, and the reader of a yard."""

from pathlib import Path
from typing import Any

from tests.unit.server.services.accounts import NOON, As
from tests.unit.server.services.sagemaker.requests import create
from trainyard.foundation.jobs.training.job import TrainingJob
from trainyard.foundation.locations import BucketRef, Location
from trainyard.objects.contract import Attributes
from trainyard.server.jobs.training import KIND, job_of
from trainyard.server.records.contract import ResourceKey

PREFIX = "debug/mnist/debug-output"


def create_job(user: As, **changed: Any) -> TrainingJob:
    """Create a job that captures tensors."""
    create(user, "mnist", **{"DebugHookConfig": {"S3OutputPath": "s3://data/debug"}, **changed})
    return job_of(user.yard.records.load(ResourceKey(user.account, KIND, "mnist")))


def store(user: As, name: str, data: bytes) -> None:
    """Store a file where the tensors of the job are."""
    where = Location(BucketRef(user.account, "data"), f"{PREFIX}/{name}")
    writer = user.yard.objects.writer(where, Attributes())
    writer.write(data)
    writer.commit(now=NOON)


def store_folder(user: As, folder: Path) -> None:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            store(user, path.relative_to(folder).as_posix(), path.read_bytes())

"""A reader of a trial can use folders, object stores and S3 interchangeably as sources."""

import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from trainyard._sdk.connection import Access
from trainyard._sdk.storage.s3_source import S3Source
from trainyard.foundation.clock import utc_now
from trainyard.foundation.locations import BucketRef, Location
from trainyard.foundation.sources import ByteSource, FolderSource
from trainyard.objects.contract import Attributes
from trainyard.objects.filesystem import FilesystemObjects
from trainyard.objects.sources import ObjectSource
from trainyard.testing.sources import ByteSourceContract, Place
from trainyard.testing.yard import RunningYard


@pytest.fixture(params=["folder", "objects", "s3"])
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(f"in_{request.param}")
    return found


@pytest.fixture
def in_folder(tmp_path: Path) -> Place:
    def place(files: Mapping[str, bytes]) -> ByteSource:
        for name, data in files.items():
            path = tmp_path / "trial" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return FolderSource(tmp_path / "trial")

    return place


@pytest.fixture
def in_objects(tmp_path: Path) -> Iterator[Place]:
    bucket = BucketRef("123456789012", "tensors")
    with closing(FilesystemObjects(tmp_path / "objects")) as store:
        store.create_bucket(bucket, region="us-east-1", now=utc_now())

        def place(files: Mapping[str, bytes]) -> ByteSource:
            for name, data in files.items():
                writer = store.writer(Location(bucket, f"job-1/debug-output/{name}"), Attributes())
                writer.write(data)
                writer.commit(now=utc_now())
            return ObjectSource(store, Location(bucket, "job-1/debug-output"))

        yield place


@pytest.fixture
def in_s3(remote_yard: RunningYard) -> Iterator[Place]:
    keys = remote_yard.credentials
    access = Access(remote_yard.http, keys.access_key_id, keys.secret_access_key, keys.region)
    with closing(access.client()) as api:
        prefix = f"trials/{uuid.uuid4().hex}"

        def place(files: Mapping[str, bytes]) -> ByteSource:
            for name, data in files.items():
                api.call("s3", "PutObject", Bucket="remote", Key=f"{prefix}/{name}", Body=data)
            return S3Source(f"s3://remote/{prefix}/", api)

        yield place


class TestSources(ByteSourceContract): ...

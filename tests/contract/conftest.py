"""Servers that contract runs need, one of each for the whole run."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
import pytest

from trainyard.objects.remote import RemoteObjects
from trainyard.testing.postgres import PostgresMissing, PostgresServer, postgres_server
from trainyard.testing.yard import RunningYard, running_yard

pytest.register_assert_rewrite("trainyard.testing.records", "trainyard.testing.objects")


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    try:
        with postgres_server() as server:
            yield server
    except PostgresMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def remote_yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningYard]:
    """A second yard with a bucket `remote`, which is any S3 to the store under test."""
    with running_yard(tmp_path_factory.mktemp("remote") / "home") as yard:
        keys = yard.credentials
        client = boto3.client(
            "s3",
            endpoint_url=yard.http,
            region_name=keys.region,
            aws_access_key_id=keys.access_key_id,
            aws_secret_access_key=keys.secret_access_key,
        )
        client.create_bucket(Bucket="remote", CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
        client.close()
        yield yard


@pytest.fixture
def open_remote(remote_yard: RunningYard, tmp_path: Path) -> Callable[[], RemoteObjects]:
    """Opens the store under one prefix of its own, any number of times."""
    url = f"s3://remote/tests/{uuid.uuid4().hex}"
    keys = remote_yard.credentials
    return lambda: RemoteObjects(
        url,
        endpoint=remote_yard.http,
        region=keys.region,
        access_key_id=keys.access_key_id,
        secret_access_key=keys.secret_access_key,
        staging=tmp_path / "staging",
    )


@pytest.fixture
def remote_store(open_remote: Callable[[], RemoteObjects]) -> RemoteObjects:
    return open_remote()

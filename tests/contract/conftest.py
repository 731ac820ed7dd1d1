"""Servers that contract runs need, one of each for the whole run."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
import pytest

from trainyard.objects.remote import RemoteObjects
from trainyard.objects.remote.patience import Patience
from trainyard.testing.faulty_s3 import FaultyS3, faulty_s3
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


@pytest.fixture(scope="session")
def _faulty_s3(remote_yard: RunningYard) -> Iterator[FaultyS3]:
    with faulty_s3(remote_yard.http) as standing:
        yield standing


@pytest.fixture
def faulty(_faulty_s3: FaultyS3) -> FaultyS3:
    """The same yard as an S3 with faults, of which there are none yet."""
    _faulty_s3.heal()
    return _faulty_s3


@pytest.fixture
def faulty_store(faulty: FaultyS3, remote_yard: RunningYard, tmp_path: Path) -> RemoteObjects:
    """A store there, with little patience."""
    keys = remote_yard.credentials
    return RemoteObjects(
        f"s3://remote/faults/{uuid.uuid4().hex}",
        endpoint=faulty.url,
        region=keys.region,
        access_key_id=keys.access_key_id,
        secret_access_key=keys.secret_access_key,
        staging=tmp_path / "staging",
        patience=Patience(tries=4, first_pause_s=0.01, longest_pause_s=0.05, answer_s=0.5),
    )


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

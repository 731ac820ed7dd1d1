"""The servers of the contract tests, one of each for the whole run."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
import pytest

from tests.faulty_s3 import FaultyS3, faulty_s3
from tests.postgres import PostgresMissing, PostgresServer, postgres_server
from trainyard.objects.remote import RemoteObjects
from trainyard.objects.remote.failures import RetryPolicy
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
    """A second yard with a bucket `remote`, which acts as a remote S3."""
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
    """The same yard behind a proxy that can inject faults."""
    _faulty_s3.heal()
    return _faulty_s3


@pytest.fixture
def faulty_store(faulty: FaultyS3, remote_yard: RunningYard, tmp_path: Path) -> RemoteObjects:
    """A store behind the proxy, with short timeouts."""
    keys = remote_yard.credentials
    return RemoteObjects(
        f"s3://remote/faults/{uuid.uuid4().hex}",
        endpoint=faulty.url,
        region=keys.region,
        access_key_id=keys.access_key_id,
        secret_access_key=keys.secret_access_key,
        staging=tmp_path / "staging",
        retry_policy=RetryPolicy(tries=4, first_pause_s=0.01, max_pause_s=0.05, read_timeout_s=0.5),
    )


@pytest.fixture
def open_remote(remote_yard: RunningYard, tmp_path: Path) -> Callable[[], RemoteObjects]:
    """Return a function that opens the store under a prefix of its own, any number of times."""
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

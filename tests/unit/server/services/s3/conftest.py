from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.unit.server.services.s3.front import ADMINISTRATOR, OWNER, STRANGER, Front, caller
from trainyard.objects.contract import ObjectStore
from trainyard.objects.filesystem import FilesystemObjects
from trainyard.server.identity import Identities
from trainyard.server.records.sql import open_records
from trainyard.server.services.contract import Yard


@pytest.fixture
def objects(tmp_path: Path) -> Iterator[ObjectStore]:
    with closing(FilesystemObjects(tmp_path / "objects")) as opened:
        yield opened


@pytest.fixture
def yard(objects: ObjectStore, tmp_path: Path) -> Iterator[Yard]:
    with closing(open_records(f"sqlite:///{tmp_path}/records.db")) as records:
        yield Yard(records, objects, Identities(records), tmp_path / "logs", tmp_path / "metrics")


@pytest.fixture
def s3(yard: Yard) -> Front:
    """S3 for a user who has the bucket "data"."""
    front = Front(yard, caller(OWNER))
    front("CreateBucket", Bucket="data")
    return front


@pytest.fixture
def stranger(yard: Yard) -> Front:
    return Front(yard, caller(STRANGER))


@pytest.fixture
def administrator(yard: Yard) -> Front:
    return Front(yard, caller(ADMINISTRATOR, is_admin=True))

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.simulated_compute import simulated_compute
from tests.unit.server.services.s3.front import ADMINISTRATOR, OWNER, STRANGER, Front, caller
from tests.unit.server.services.s3.multipart_upload import PART, TAIL, Upload
from trainyard.objects.contract import ObjectStore
from trainyard.objects.filesystem import FilesystemObjects
from trainyard.server.identity import Identities
from trainyard.server.records.sql import open_records
from trainyard.server.services.contract import Yard
from trainyard.server.streaming import Followers


@pytest.fixture
def objects(tmp_path: Path) -> Iterator[ObjectStore]:
    with closing(FilesystemObjects(tmp_path / "objects")) as opened:
        yield opened


@pytest.fixture
def yard(objects: ObjectStore, tmp_path: Path) -> Iterator[Yard]:
    with closing(open_records(f"sqlite:///{tmp_path}/records.db")) as records:
        compute, followers = simulated_compute(tmp_path), Followers(records, tmp_path / "jobs")
        logs, metrics = tmp_path / "logs", tmp_path / "metrics"
        yield Yard(records, objects, Identities(records), logs, metrics, compute, followers)


@pytest.fixture
def s3(yard: Yard) -> Front:
    """Return S3 for a user with the bucket "data"."""
    front = Front(yard, caller(OWNER))
    front("CreateBucket", Bucket="data")
    return front


@pytest.fixture
def stranger(yard: Yard) -> Front:
    return Front(yard, caller(STRANGER))


@pytest.fixture
def administrator(yard: Yard) -> Front:
    return Front(yard, caller(ADMINISTRATOR, is_admin=True))


@pytest.fixture
def digits(s3: Front) -> str:
    """Put the object "digits"; return its ETag."""
    return str(s3.put("data", "digits", b"0123456789")["ETag"])


@pytest.fixture
def upload(s3: Front) -> Upload:
    return Upload(s3)


@pytest.fixture
def two_parts(upload: Upload) -> Upload:
    upload.put(1, PART)
    upload.put(2, TAIL)
    return upload

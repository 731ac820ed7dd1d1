"""Both back ends pass the contract suite; the remote one stores everything in a second yard."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from trainyard.foundation.locations import BucketRef
from trainyard.objects.contract import ObjectStore
from trainyard.objects.filesystem import FilesystemObjects
from trainyard.testing.objects import ObjectStoreContract
from trainyard.testing.objects.samples import new_bucket


@pytest.fixture(params=["filesystem", "remote"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ObjectStore]:
    if request.param == "remote":
        yield request.getfixturevalue("remote_store")
        return
    opened = FilesystemObjects(tmp_path / "objects")
    yield opened
    assert opened.verify(deep=True) == []
    opened.close()


@pytest.fixture
def bucket(store: ObjectStore) -> BucketRef:
    return new_bucket(store)


class TestObjects(ObjectStoreContract): ...

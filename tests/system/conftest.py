"""A real yard for each module of whole-system tests, and its first administrator."""

from collections.abc import Iterator

import pytest

from tests.system.fuzz.world import User
from trainyard.testing.yard import RunningYard, running_yard


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningYard]:
    with running_yard(tmp_path_factory.mktemp("system") / "yard") as running:
        yield running


@pytest.fixture(scope="module")
def administrator(yard: RunningYard) -> User:
    known = yard.credentials
    return User(yard.http, known.account, known.user, known.access_key_id, known.secret_access_key, known.region)

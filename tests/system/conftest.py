"""A real yard for each module of whole-system tests, and its first administrator."""

from collections.abc import Iterator

import pytest

from tests.system.fuzz.world import User
from trainyard.testing.yard import RunningYard, engine_of_tests, running_yard


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests that cannot pass on the engine of this run."""
    for item in items:
        for marker in item.iter_markers("not_on"):
            if engine_of_tests() in marker.args:
                reason = f"on the engine {engine_of_tests()}: {marker.kwargs['because']}"
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningYard]:
    with running_yard(tmp_path_factory.mktemp("system") / "yard") as running:
        yield running


@pytest.fixture(scope="module")
def administrator(yard: RunningYard) -> User:
    known = yard.credentials
    return User(yard.http, known.account, known.user, known.access_key_id, known.secret_access_key, known.region)

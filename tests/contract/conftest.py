"""Servers that contract runs need, one of each for the whole run."""

from collections.abc import Iterator

import pytest

from trainyard.testing.postgres import PostgresMissing, PostgresServer, postgres_server

pytest.register_assert_rewrite("trainyard.testing.records", "trainyard.testing.objects")


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    try:
        with postgres_server() as server:
            yield server
    except PostgresMissing as missing:
        pytest.skip(str(missing))

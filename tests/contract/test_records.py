"""Both back ends fulfil the contract of records."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy import Connection

from tests.postgres import PostgresServer
from trainyard.server.records.contract import Records
from trainyard.server.records.schema import access_keys, associations, counters, events, resources, tags, users
from trainyard.server.records.sql import open_records
from trainyard.testing.records import RecordsContract


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def urls(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URLs of two empty databases of one back end."""
    if request.param == "sqlite":
        return iter([f"sqlite:///{tmp_path}/one.db", f"sqlite:///{tmp_path}/other.db"])
    two: tuple[str, str] = request.getfixturevalue("two_databases")
    return map(emptied, two)


@pytest.fixture(scope="session")
def two_databases(postgres: PostgresServer) -> Iterator[tuple[str, str]]:
    """Two databases for all tests in turn. To create one takes 0.3 s; to empty one takes hardly any time."""
    with postgres.database() as one, postgres.database() as other:
        yield one, other


def emptied(url: str) -> str:
    def delete_all(connection: Connection) -> None:
        for table in (access_keys, users, resources, tags, associations, counters, events):
            connection.execute(table.delete())

    records = open_records(url)
    records.database.write(delete_all)
    records.close()
    return url


@pytest.fixture
def reopen(urls: Iterator[str]) -> Iterator[Callable[[], Records]]:
    url = next(urls)
    with ExitStack() as opened:

        def open_once_more() -> Records:
            records = open_records(url)
            opened.callback(records.close)
            return records

        yield open_once_more


@pytest.fixture
def records(reopen: Callable[[], Records]) -> Records:
    return reopen()


@pytest.fixture
def other_records(records: Records, urls: Iterator[str]) -> Iterator[Records]:
    """Other records. They depend on `records`, so that they get the second URL."""
    other = open_records(next(urls))
    yield other
    other.close()


class TestRecords(RecordsContract): ...

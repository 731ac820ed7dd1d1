"""A database is brought to the schema of this code, or left as it was."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, Index, Inspector, insert, inspect, select, text

from trainyard import __version__
from trainyard.foundation.errors import Conflict, Corrupt
from trainyard.server.records.contract import Query
from trainyard.server.records.database import T, open_database
from trainyard.server.records.migrations.upgrade import upgrade
from trainyard.server.records.schema import REVISION, facts, metadata, resources, version
from trainyard.server.records.sql import open_records
from trainyard.testing.postgres import PostgresServer
from trainyard.testing.records.samples import ALICE, KIND, NOON, REGION, in_threads, key, names

FIRST = "0001"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Of an empty database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/records.db"
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    with server.database() as address:
        yield address


def test_a_new_database_has_the_schema_of_the_code(url: str) -> None:
    open_records(url).close()
    assert run(url, differences) == []
    assert run(url, revision) == REVISION
    assert run(url, writer) == __version__


def test_a_database_upgraded_from_the_first_revision_is_the_same_as_a_new_one(url: str) -> None:
    run(url, lambda connection: upgrade(connection, FIRST))
    assert run(url, differences) != []
    open_records(url).close()
    assert run(url, differences) == []
    assert run(url, revision) == REVISION
    assert run(url, writer) == __version__


def test_an_upgrade_keeps_what_was_remembered(url: str) -> None:
    make_old(url)
    with closing(open_records(url)) as records:
        assert names(records.find(Query(KIND, account=ALICE)).resources) == ["a", "b"]
        assert records.load(key("a")).body == {"x": 1}


def test_an_upgrade_counts_the_instances_of_jobs_that_have_not_ended(url: str) -> None:
    def fill(connection: Connection) -> None:
        upgrade(connection, "0002")
        whole = {"region": REGION, "created_at": NOON, "modified_at": NOON, "revision": 1, "arn": "", "kind": KIND}
        for number, status in enumerate(("InProgress", "Stopping", "Completed", "InProgress")):
            plan = {"instance_type": ("ml.m5.large", "local")[number == 3], "instance_count": number + 1}
            named = {"id": f"id-{number}", "account": ALICE, "name": f"job-{number}", "status": status}
            connection.execute(insert(resources), whole | named | {"body": {"job": {"plan": plan}}})

    run(url, fill)
    with closing(open_records(url)) as records:
        assert {each.name: each.value for each in records.counters(ALICE)} == {
            "training-instances/on-demand": 7,
            "training-instances/on-demand/local": 4,
            "training-instances/on-demand/ml.m5.large": 3,
        }


def test_an_upgrade_puts_jobs_that_have_not_ended_in_their_lines(url: str) -> None:
    def fill(connection: Connection) -> None:
        upgrade(connection, "0005")
        whole = {"region": REGION, "created_at": NOON, "modified_at": NOON, "revision": 1, "arn": "", "kind": KIND}
        jobs: dict[str, dict[str, Any]] = {"here": {"plan": {}}, "there": {"site": "x", "plan": {"engine": "ray"}}}
        for name, job in (*jobs.items(), ("ended", {"plan": {}})):
            named = {"id": f"id-{name}", "account": ALICE, "name": name, "status": ""}
            due_at = None if name == "ended" else NOON
            connection.execute(insert(resources), whole | named | {"body": {"job": job}, "due_at": due_at})

    run(url, fill)
    with closing(open_records(url)) as records:
        after = NOON - timedelta(seconds=1)
        assert [each.id for each in records.heads(KIND, ["/"], after=after)] == ["id-here"]
        assert [each.id for each in records.heads(KIND, ["x/ray"], after=after)] == ["id-there"]


def test_a_current_database_is_opened_without_a_write_or_the_migration_tool(url: str) -> None:
    open_records(url).close()
    program = (
        "import sys; from trainyard.server.records.sql import open_records; open_records(sys.argv[1]).close(); "
        "sys.exit('alembic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program, url], check=False).returncode == 0


def test_a_database_of_a_newer_version_is_refused_and_left_alone(url: str) -> None:
    open_records(url).close()
    run(url, make_newer)
    before = run(url, contents)
    with pytest.raises(Conflict) as caught:
        open_records(url)
    assert "Trainyard 9.8.7" in caught.value.message
    assert __version__ in caught.value.message
    assert "Install Trainyard 9.8.7 or later" in caught.value.message
    assert run(url, contents) == before


def test_a_database_of_someone_else_is_refused_and_left_alone(url: str) -> None:
    run(url, lambda connection: connection.execute(text("CREATE TABLE users (id INTEGER)")))
    before = run(url, contents)
    with pytest.raises(Conflict, match="Trainyard did not make"):
        open_records(url)
    assert run(url, contents) == before


def test_a_database_that_lost_a_table_is_corrupt(url: str) -> None:
    open_records(url).close()
    run(url, lambda connection: connection.execute(text("DROP TABLE tags")))
    with pytest.raises(Corrupt, match=r"no table tags.*trainyard restore BACKUP"):
        open_records(url)


@pytest.mark.parametrize("statements", [1, 10, 19])
def test_an_upgrade_killed_half_way_leaves_the_old_schema(url: str, statements: int) -> None:
    make_old(url)
    before = run(url, contents)
    killed_while_opening(url, "CREATE", statements)
    assert run(url, contents) == before
    open_records(url).close()
    assert run(url, differences) == []


@pytest.mark.parametrize("statements", [1, 5, 25])
def test_a_creation_killed_half_way_leaves_nothing(url: str, statements: int) -> None:
    killed_while_opening(url, "CREATE", statements)
    assert run(url, contents) == {}
    open_records(url).close()
    assert run(url, differences) == []


def test_a_change_killed_just_before_its_commit_leaves_the_old_schema(url: str) -> None:
    make_old(url)
    before = run(url, contents)
    killed_while_opening(url, "INSERT INTO facts", 1)
    assert run(url, contents) == before


@pytest.mark.parametrize("prepare", [lambda url: None, lambda url: make_old(url)], ids=["empty", "old"])
def test_several_that_open_at_once_make_one_schema(url: str, prepare: Callable[[str], None]) -> None:
    prepare(url)
    in_threads(4, lambda _: open_records(url).close())
    assert run(url, differences) == []


def run(url: str, work: Callable[[Connection], T]) -> T:
    """In the database as it is, without what opening records does to it."""
    with closing(open_database(url)) as database:
        return database.write(work)


def make_old(url: str) -> None:
    def fill(connection: Connection) -> None:
        upgrade(connection, FIRST)
        for name in ("a", "b"):
            whole = {"region": REGION, "status": "", "created_at": NOON, "modified_at": NOON, "revision": 1}
            named = {"id": f"id-{name}", "account": ALICE, "kind": KIND, "name": name, "body": {"x": 1}, "arn": ""}
            connection.execute(insert(resources), whole | named)
        connection.execute(insert(facts), {"name": "written_by", "value": "0.0.1"})

    run(url, fill)


def make_newer(connection: Connection) -> None:
    connection.execute(version.update().values(version_num="0099"))
    connection.execute(facts.update().values(value="9.8.7"))


def revision(connection: Connection) -> object:
    return connection.execute(select(version.c.version_num)).scalar_one()


def writer(connection: Connection) -> object:
    return connection.execute(select(facts.c.value)).scalar_one()


def differences(connection: Connection) -> list[object]:
    """Between the database and the code, with the conditions of indexes, which Alembic does not compare."""
    wanted = {str(index.name): index.dialect_options["sqlite"]["where"] for index in all_indexes()}
    inspector = inspect(connection)
    found = [index for table in inspector.get_table_names() for index in inspector.get_indexes(table)]
    partial = {str(index["name"]) for index in found if any("where" in name for name in index["dialect_options"])}
    return [
        *compare_metadata(MigrationContext.configure(connection), metadata),
        *(partial ^ {name for name, condition in wanted.items() if condition is not None}),
    ]


def all_indexes() -> Iterator[Index]:
    for table in metadata.tables.values():
        yield from table.indexes


def contents(connection: Connection) -> dict[str, tuple[object, object, object]]:
    """Every table with its columns, indexes and rows."""
    inspector: Inspector = inspect(connection)
    return {
        table: (
            [str(column) for column in inspector.get_columns(table)],
            sorted(str(index["name"]) for index in inspector.get_indexes(table)),
            sorted(str(row) for row in connection.execute(text(f"SELECT * FROM {table}"))),
        )
        for table in inspector.get_table_names()
    }


def killed_while_opening(url: str, beginning: str, count: int) -> None:
    """Open records in a process that kills itself after so many statements of this kind."""
    done = subprocess.run([sys.executable, "-c", KILLED, url, beginning, str(count)], check=False)
    assert done.returncode == -signal.SIGKILL


KILLED = """
import os, signal, sys
from sqlalchemy import Engine, event
from trainyard.server.records.sql import open_records

url, beginning, count = sys.argv[1], sys.argv[2], int(sys.argv[3])

@event.listens_for(Engine, "after_cursor_execute")
def count_down(connection, cursor, statement, *_):
    global count
    if statement.strip().startswith(beginning):
        count -= 1
        if count == 0:
            os.kill(os.getpid(), signal.SIGKILL)

open_records(url)
"""

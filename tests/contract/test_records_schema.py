"""A database is upgraded to the schema of this code, or left unchanged."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, Index, Inspector, insert, inspect, select, text

from tests.postgres import PostgresServer
from trainyard import __version__
from trainyard.foundation.clock import EPOCH, to_micros
from trainyard.foundation.errors import Conflict, Corrupt
from trainyard.server.records.contract import Priority, Query, QueuedResource, QueueState, Records, ResourceId
from trainyard.server.records.database import T, open_database
from trainyard.server.records.migrations import upgrade_tables
from trainyard.server.records.migrations.versions.r0007_queue_state import ROWS_AT_ONCE
from trainyard.server.records.schema import REVISION, facts, metadata, resources, version
from trainyard.server.records.sql import open_records
from trainyard.testing.records.samples import ALICE, KIND, LEASE, NOON, REGION, in_threads, key, names

FIRST = "0001"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database."""
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
    run(url, lambda connection: upgrade_tables(connection, FIRST))
    assert run(url, differences) != []
    open_records(url).close()
    assert run(url, differences) == []
    assert run(url, revision) == REVISION
    assert run(url, writer) == __version__


def test_an_upgrade_keeps_all_resources(url: str) -> None:
    make_old(url)
    with closing(open_records(url)) as records:
        assert names(records.find(Query(KIND, account=ALICE)).resources) == ["a", "b"]
        assert records.load(key("a")).body == {"x": 1}


def test_an_upgrade_counts_the_instances_of_jobs_that_have_not_ended(url: str) -> None:
    def fill(connection: Connection) -> None:
        upgrade_tables(connection, "0002")
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


def test_an_upgrade_queues_jobs_that_have_not_ended(url: str) -> None:
    def fill(connection: Connection) -> None:
        upgrade_tables(connection, "0005")
        whole = {"region": REGION, "created_at": NOON, "modified_at": NOON, "revision": 1, "arn": "", "kind": KIND}
        jobs: dict[str, dict[str, Any]] = {"here": {"plan": {}}, "there": {"site": "x", "plan": {"engine": "ray"}}}
        for name, job in (*jobs.items(), ("ended", {"plan": {}})):
            named = {"id": f"id-{name}", "account": ALICE, "name": name, "status": ""}
            due_at = None if name == "ended" else NOON
            connection.execute(insert(resources), whole | named | {"body": {"job": job}, "due_at": due_at})

    run(url, fill)
    with closing(open_records(url)) as records:
        assert [each.id for each in records.heads(KIND, ["/"])] == ["id-here"]
        assert [each.id for each in records.heads(KIND, ["x/ray"])] == ["id-there"]


def test_an_upgrade_reads_state_and_priority_from_jobs_and_gives_them_their_true_dates(url: str) -> None:
    run(url, fill_with_shifted_dates)
    with closing(open_records(url)) as records:
        assert_is_queued(records)
    assert run(url, differences) == []


def test_a_backup_from_before_queue_states_is_restored_and_upgraded(url: str, tmp_path: Path) -> None:
    older = f"sqlite:///{tmp_path}/older.db"
    run(older, fill_with_shifted_dates)
    rows = run(older, rows_of_jobs)
    with closing(open_records(url)) as records:
        records.restore([("schema", {"revision": "0006", "written_by": "0.0.1"}), *rows])
        assert_is_queued(records)
    assert run(url, differences) == []
    assert run(url, revision) == REVISION
    assert run(url, writer) == __version__


def test_an_upgrade_queues_more_jobs_than_one_statement_takes(url: str) -> None:
    count = 2 * ROWS_AT_ONCE + 1

    def fill(connection: Connection) -> None:
        upgrade_tables(connection, "0006")
        for number in range(count):
            insert_old_job(connection, f"job-{number:04}", OldJob(number % 2 == 1, NOON))

    run(url, fill)
    with closing(open_records(url)) as records:
        queued = records.waiting(KIND, QUEUE, accounts=[ALICE], limit=2 * count)
        order = [*range(0, count, 2), *range(1, count, 2)]
        assert [each.id for each in queued] == [f"id-job-{number:04}" for number in order]
        assert {each.due_at for each in queued} == {NOON}


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


@pytest.mark.parametrize(("beginning", "statements"), [("ALTER TABLE", 2), ("UPDATE resources SET state", 3)])
def test_an_upgrade_killed_while_it_queues_jobs_leaves_the_old_schema(
    url: str, beginning: str, statements: int
) -> None:
    run(url, fill_with_shifted_dates)
    before = run(url, contents)
    killed_while_opening(url, beginning, statements)
    assert run(url, contents) == before
    with closing(open_records(url)) as records:
        assert_is_queued(records)


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
def test_processes_that_open_a_database_at_once_create_one_schema(url: str, prepare: Callable[[str], None]) -> None:
    prepare(url)
    in_threads(4, lambda _: open_records(url).close())
    assert run(url, differences) == []


def run(url: str, work: Callable[[Connection], T]) -> T:
    """Run work in the database as it is, without the upgrade that opening records does."""
    with closing(open_database(url)) as database:
        return database.write(work)


def make_old(url: str) -> None:
    def fill(connection: Connection) -> None:
        upgrade_tables(connection, FIRST)
        for name in ("a", "b"):
            whole = {"region": REGION, "status": "", "created_at": NOON, "modified_at": NOON, "revision": 1}
            named = {"id": f"id-{name}", "account": ALICE, "kind": KIND, "name": name, "body": {"x": 1}, "arn": ""}
            connection.execute(insert(resources), whole | named)
        connection.execute(insert(facts), {"name": "written_by", "value": "0.0.1"})

    run(url, fill)


@dataclass(frozen=True, slots=True)
class OldJob:
    """A job as revision 0006 stores it: `due_at` encodes whether the job is placed and whether it is on spot."""

    is_spot: bool
    created_at: datetime
    # The end time of each attempt.
    attempts: tuple[str | None, ...] = ()

    @property
    def due_at(self) -> datetime:
        if self.attempts and self.attempts[-1] is None:
            return EPOCH
        return self.created_at if self.is_spot else self.created_at - timedelta(days=10_000)

    @property
    def body(self) -> dict[str, Any]:
        attempts = [{"number": 1, "ended_at": ended_at} for ended_at in self.attempts]
        plan = {"engine": "local", **({"is_spot": True} if self.is_spot else {})}
        return {"job": {"site": "here", "plan": plan, **({"attempts": attempts} if attempts else {})}}


QUEUE = "here/local"
# Shifted by 10,000 days, a job of this date reads as one on spot.
AFTER_2039 = datetime(2040, 1, 1, tzinfo=UTC)
OLD_JOBS = {
    "on-demand": OldJob(False, NOON),
    "on-demand-later": OldJob(False, AFTER_2039),
    "on-demand-again": OldJob(False, NOON + timedelta(minutes=1), attempts=("2026-07-01T12:00:00Z",)),
    "spot": OldJob(True, NOON - timedelta(days=1)),
    "spot-later": OldJob(True, AFTER_2039),
    "spot-interrupted": OldJob(True, NOON, attempts=("2026-07-01T12:00:00Z", "2026-07-01T12:01:00Z")),
    "placed": OldJob(False, NOON, attempts=(None,)),
    "placed-later": OldJob(False, AFTER_2039, attempts=(None,)),
    "placed-spot": OldJob(True, NOON + timedelta(minutes=1), attempts=("2026-07-01T12:00:00Z", None)),
}


def fill_with_shifted_dates(connection: Connection) -> None:
    upgrade_tables(connection, "0006")
    for name, job in OLD_JOBS.items():
        insert_old_job(connection, name, job)
    ended = {"job": {"plan": {}, "attempts": [{"number": 1, "ended_at": None}]}}
    insert_old(connection, "ended", body=ended, created_at=NOON, due_at=None)
    insert_old(connection, "reminder", kind="pending-limit", body={"job": "spot"}, created_at=NOON, due_at=NOON)


def insert_old_job(connection: Connection, name: str, job: OldJob) -> None:
    insert_old(connection, name, body=job.body, created_at=job.created_at, due_at=job.due_at, line=QUEUE)


def insert_old(
    connection: Connection,
    name: str,
    *,
    body: Mapping[str, Any],
    created_at: datetime,
    due_at: datetime | None,
    line: str | None = None,
    kind: str = KIND,
) -> None:
    row = {
        "id": f"id-{name}",
        "account": ALICE,
        "kind": kind,
        "name": name,
        "region": REGION,
        "status": "",
        "created_at": to_micros(created_at),
        "modified_at": to_micros(created_at),
        "revision": 1,
        "body": json.dumps(body),
        "arn": "",
        "due_at": None if due_at is None else to_micros(due_at),
        "line": line,
    }
    columns, values = ", ".join(row), ", ".join(f":{column}" for column in row)
    connection.execute(text(f"INSERT INTO resources ({columns}) VALUES ({values})"), row)


def rows_of_jobs(connection: Connection) -> list[tuple[str, dict[str, Any]]]:
    """Return the rows of a backup that the code of revision 0006 would write."""
    rows = connection.execute(text("SELECT * FROM resources ORDER BY id")).mappings()
    return [("resources", dict(row)) for row in rows]


def assert_is_queued(records: Records) -> None:
    """Check that the old jobs have the states, priorities and dates that their dates encoded."""
    order = ("on-demand", "on-demand-again", "on-demand-later", "spot", "spot-interrupted", "spot-later")
    assert records.waiting(KIND, QUEUE, accounts=[ALICE], limit=99) == [
        QueuedResource(
            ResourceId(f"id-{name}"),
            ALICE,
            QUEUE,
            Priority.SPOT if OLD_JOBS[name].is_spot else Priority.ON_DEMAND,
            OLD_JOBS[name].created_at,
        )
        for name in order
    ]
    assert names(records.in_state(KIND, QueueState.PLACED)) == ["placed", "placed-spot", "placed-later"]
    assert records.in_state(KIND) == []
    assert names(records.in_state("pending-limit")) == ["reminder"]
    claim = records.claim_next(KIND, worker="w", lease=LEASE, now=NOON, state=QueueState.PLACED)
    assert claim is not None
    assert claim.resource.key.name == "placed"
    assert names([records.load(key("ended"))]) == ["ended"]


def make_newer(connection: Connection) -> None:
    connection.execute(version.update().values(version_num="0099"))
    connection.execute(facts.update().values(value="9.8.7"))


def revision(connection: Connection) -> object:
    return connection.execute(select(version.c.version_num)).scalar_one()


def writer(connection: Connection) -> object:
    return connection.execute(select(facts.c.value)).scalar_one()


def differences(connection: Connection) -> list[object]:
    """Return the differences between the database and the code, including index conditions, which Alembic ignores."""
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
    """Return every table with its columns, indexes and rows."""
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
    """Open records in a process that kills itself after `count` statements of this kind."""
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

"""A PostgreSQL server can drop connections, refuse, lock, and serve several yards."""

import contextlib
import random
import string
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import Connection, text

from tests.postgres import PostgresServer
from trainyard.foundation.errors import LimitExceeded, NotFound, Unavailable
from trainyard.server.records.contract import Change, Claim, NewEvent, Query, Records, Resource
from trainyard.server.records.sql import SqlRecords, open_records
from trainyard.testing.records.samples import KIND, LEASE, NOON, draft, in_threads, minutes, names

pytestmark = pytest.mark.postgres


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    with postgres.database() as address:
        yield address


@pytest.fixture
def records(url: str) -> Iterator[SqlRecords]:
    with contextlib.closing(open_records(url)) as opened:
        yield opened


def test_connections_that_died_in_the_pool_are_replaced(records: SqlRecords, url: str) -> None:
    in_threads(4, lambda number: records.create(draft(f"job-{number}"), now=NOON))
    end_connections(url)
    assert len(records.find(Query(KIND)).resources) == 4
    end_connections(url)
    records.create(draft("after"), now=NOON, event=NewEvent("created"))
    assert len(records.events()) == 1


def test_work_whose_connection_dies_before_the_commit_is_done_once(records: SqlRecords, url: str) -> None:
    runs = []

    def work(connection: Connection) -> None:
        runs.append(connection.execute(text("INSERT INTO facts VALUES ('x', 'y')")).rowcount)
        if len(runs) == 1:
            end_connections(url)
        connection.execute(text("SELECT 1"))

    records.database.write(work)
    assert len(runs) == 2
    assert records.database.read(lambda connection: connection.execute(text("SELECT * FROM facts")).rowcount) == 2


def test_a_connection_lost_in_the_commit_is_reported_and_nothing_is_done_twice(records: SqlRecords, url: str) -> None:
    runs = []

    def work(connection: Connection) -> None:
        connection.execute(text("INSERT INTO facts VALUES ('x', 'y')"))
        runs.append(1)
        end_connections(url)

    with pytest.raises(Unavailable, match="broke during a commit"):
        records.database.write(work)
    assert len(runs) == 1


def test_writers_that_lock_each_other_out_both_finish(records: SqlRecords) -> None:
    for name in "ab":
        records.create(draft(name), now=NOON)
    both_have_one = threading.Barrier(2)
    waits = threading.local()

    def swap(number: int) -> None:
        def work(connection: Connection) -> None:
            for place, name in enumerate("ab" if number else "ba"):
                connection.execute(text(f"UPDATE resources SET revision = revision + 1 WHERE name = '{name}'"))
                if place == 0 and not getattr(waits, "over", False):
                    waits.over = True
                    both_have_one.wait(10)

        records.database.write(work)

    in_threads(2, swap)
    assert {resource.revision for resource in records.find(Query(KIND)).resources} == {3}


def test_a_row_that_stays_locked_is_reported(url: str) -> None:
    with contextlib.closing(open_records(f"{url}&options=-c%20lock_timeout%3D50")) as records:
        made = records.create(draft("a"), now=NOON)
        with psycopg.connect(url) as other:
            other.execute("UPDATE resources SET revision = revision")
            with pytest.raises(Unavailable, match="locked a row for too long"):
                records.apply(made, Change(status="x"), now=NOON)
            other.rollback()
        assert records.apply(made, Change(status="x"), now=NOON) is not None


def test_a_row_that_another_locks_for_a_moment_is_claimed_later(records: SqlRecords, url: str) -> None:
    for name, due in (("a", 0), ("b", 1)):
        records.create(draft(name, due_at=minutes(due)), now=NOON)
    with psycopg.connect(url) as other:
        other.execute("UPDATE resources SET revision = revision WHERE name = 'a'")
        assert claimed_name(records) == "b"
        other.rollback()
    assert claimed_name(records) == "a"


def test_a_read_only_server_is_reported(records: SqlRecords, url: str) -> None:
    with psycopg.connect(url, autocommit=True) as other:
        other.execute(f'ALTER DATABASE "{other.info.dbname}" SET default_transaction_read_only = on')
    end_connections(url)
    assert records.find(Query(KIND)).resources == []
    with pytest.raises(Unavailable, match="it is read-only"):
        records.create(draft("a"), now=NOON)


def test_an_unreachable_server_is_reported_without_the_password(tmp_path: Path) -> None:
    with pytest.raises(Unavailable) as caught:
        open_records(f"postgresql://me:geheim@/yard?host={tmp_path}")
    assert "cannot be reached" in caught.value.message
    assert "geheim" not in caught.value.message


def test_a_missing_database_is_reported(postgres: PostgresServer) -> None:
    with pytest.raises(Unavailable, match=r"\"nowhere\" does not exist.*check the URL"):
        open_records(postgres.url("nowhere"))


def test_a_name_too_long_for_an_index_is_refused(records: SqlRecords) -> None:
    # Random, because the server compresses values.
    long = "".join(random.Random(7).choices(string.ascii_letters, k=10_000))
    with pytest.raises(LimitExceeded, match="make it shorter"):
        records.create(draft(long), now=NOON)


def test_yards_that_share_a_database_claim_each_resource_once(records: SqlRecords, url: str) -> None:
    for number in range(30):
        records.create(draft(f"job-{number}", due_at=NOON), now=NOON)
    with contextlib.closing(open_records(url)) as second, contextlib.closing(open_records(url)) as third:
        yards: list[Records] = [records, second, third]
        claims = in_threads(9, lambda number: claim_all(yards[number % 3]))
    claimed = [claim.resource.key.name for each in claims for claim in each]
    assert sorted(claimed) == sorted(names(records.find(Query(KIND)).resources))


def test_events_of_several_yards_have_one_order(records: SqlRecords, url: str) -> None:
    with contextlib.closing(open_records(url)) as second:
        yards: list[Records] = [records, second]
        in_threads(8, lambda n: yards[n % 2].create(draft(f"{n}"), now=NOON, event=NewEvent(f"{n}")), times=64)
        assert records.events() == second.events()
    assert sorted(int(event.kind) for event in records.events()) == list(range(64))


def test_children_created_while_their_parent_is_deleted_leave_no_tags(records: SqlRecords) -> None:
    for number in range(20):
        parent = records.create(draft(f"parent-{number}", kind="group"), now=NOON)

        def act(who: int, *, parent: Resource = parent) -> None:
            if who == 3:
                assert records.delete(parent, now=NOON)
                return
            with contextlib.suppress(NotFound):
                arn = f"arn:{parent.id}:{who}"
                records.create(draft(arn, parent=parent, arn=arn, tags={"k": "v"}), now=NOON)

        in_threads(6, act)
    assert records.find(Query(KIND)).resources == []
    assert records.tagged_arns(None) == []


def end_connections(url: str) -> None:
    """End all connections, as an administrator, a restart or a network failure would."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def claim_all(records: Records) -> list[Claim]:
    claims = []
    while claim := records.claim_next(KIND, worker="w", lease=LEASE, now=minutes(1)):
        claims.append(claim)
    return claims


def claimed_name(records: Records) -> str | None:
    claim = records.claim_next(KIND, worker="w", lease=LEASE, now=minutes(2))
    return None if claim is None else claim.resource.key.name

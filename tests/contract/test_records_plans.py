"""Lists and claims read a short range of an index, however many resources there are.

Measured over 10,000 rows by what the databases report rather than by the clock: PostgreSQL counts the rows that it
reads, and SQLite the steps of its virtual machine, about twenty per row.
"""

import json
import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Connection, event

from tests.postgres import PostgresServer
from trainyard.foundation.clock import to_micros
from trainyard.server.records.contract import (
    AssociationQuery,
    Body,
    Change,
    Priority,
    Query,
    QueueState,
    SortBy,
    TagFilter,
    ValueFilter,
)
from trainyard.server.records.resources import new_id
from trainyard.server.records.schema import REVISION
from trainyard.server.records.sql import SqlRecords, open_records
from trainyard.server.records.tag_search import RARE, WINDOW
from trainyard.server.records.value_search import RARE as RARE_VALUE
from trainyard.testing.records.samples import ALICE, BOB, KIND, LEASE, NOON, REGION

ROWS = 10_000
PAGE = 20
RARE_ROWS = 50
RARE_NUMBERS = range(1, ROWS, ROWS // RARE_ROWS)
LATE_ROWS = 2_000
# One resource in 500 has each of these states. The others wait.
STATES = {1: QueueState.PLACED, 3: QueueState.UNQUEUED}
PLACED_ROWS = ROWS // 500
ROWS_FOR_A_PAGE = 10 * PAGE
STEPS_FOR_A_PAGE = 20 * ROWS_FOR_A_PAGE

PARENT = new_id(NOON)
# Every association ends here.
HUB = "arn:hub"
SCOPES = {
    "account": Query(KIND, account=ALICE, limit=PAGE),
    "kind": Query(KIND, limit=PAGE),
    "parent": Query(KIND, account=ALICE, parent=PARENT, limit=PAGE),
}
ORDERS = [(sort_by, descending) for sort_by in SortBy for descending in (False, True)]
LATER = NOON + timedelta(days=1)


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def records(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlRecords]:
    with ExitStack() as stack:
        url = f"sqlite:///{tmp_path_factory.mktemp('plans')}/records.db"
        if request.param == "postgres":
            server: PostgresServer = request.getfixturevalue("postgres")
            url = stack.enter_context(server.database())
        opened = open_records(url)
        stack.callback(opened.close)
        opened.restore(many_rows())
        # As autovacuum does within a minute.
        if request.param == "postgres":
            opened.database.write(lambda connection: connection.exec_driver_sql("ANALYZE"))
        yield opened


@pytest.mark.parametrize(("sort_by", "descending"), ORDERS)
@pytest.mark.parametrize("status", ["", "Failed", "Completed"])
@pytest.mark.parametrize("scope", list(SCOPES))
def test_every_page_of_every_order_is_a_range_of_an_index(
    records: SqlRecords, scope: str, status: str, sort_by: SortBy, descending: bool
) -> None:
    assert_pages_are_short(records, replace(SCOPES[scope], status=status, sort_by=sort_by, descending=descending))


@pytest.mark.parametrize("descending", [False, True])
def test_a_span_of_time_is_a_range_in_the_order_of_that_time(records: SqlRecords, descending: bool) -> None:
    start, end = NOON + timedelta(seconds=ROWS // 2), NOON + timedelta(seconds=ROWS // 2 + 400)
    created = replace(SCOPES["account"], created_after=start, created_before=end)
    modified = replace(SCOPES["account"], modified_after=start, modified_before=end, sort_by=SortBy.MODIFIED)
    for query in (created, modified, replace(created, account=None), replace(modified, account=None)):
        assert_pages_are_short(records, replace(query, descending=descending))


@pytest.mark.parametrize("descending", [False, True])
def test_a_prefix_is_a_range_in_the_order_of_names(records: SqlRecords, descending: bool) -> None:
    for scope in ("account", "kind"):
        query = replace(SCOPES[scope], name_prefix="job-5", sort_by=SortBy.NAME, descending=descending)
        assert_pages_are_short(records, query)


@pytest.mark.parametrize("scope", list(SCOPES))
def test_a_name_is_looked_up_whatever_the_order(records: SqlRecords, scope: str) -> None:
    [known] = records.find(replace(SCOPES[scope], limit=1)).resources
    for sort_by, descending in ORDERS:
        query = replace(SCOPES[scope], name=known.key.name, sort_by=sort_by, descending=descending)
        for plan in plans(records, partial(SqlRecords.find, query=query)):
            assert plan.is_short, plan.text


@pytest.mark.parametrize(("sort_by", "descending"), ORDERS)
@pytest.mark.parametrize("scope", ["account", "kind"])
def test_resources_with_a_rare_tag_are_looked_up_by_it(
    records: SqlRecords, scope: str, sort_by: SortBy, descending: bool
) -> None:
    query = replace(SCOPES[scope], sort_by=sort_by, descending=descending)
    for wanted in (TagFilter("rare", ("yes",)), TagFilter("rare")):
        for plan in plans(records, partial(SqlRecords.find, query=replace(query, tags=(wanted, TagFilter("k"))))):
            assert plan.rows < 2 * RARE, plan.text
    found = records.find(replace(query, tags=(TagFilter("rare", ("yes",)),), limit=ROWS))
    assert len(found.resources) == (RARE_ROWS if scope == "kind" else sum(n % 3 == 0 for n in RARE_NUMBERS))


@pytest.mark.parametrize(("sort_by", "descending"), ORDERS)
@pytest.mark.parametrize("scope", ["account", "kind"])
@pytest.mark.parametrize("status", ["", "Completed"])
def test_a_common_tag_is_searched_in_list_order_one_window_at_a_time(
    records: SqlRecords, scope: str, sort_by: SortBy, descending: bool, status: str
) -> None:
    query = replace(SCOPES[scope], sort_by=sort_by, descending=descending, status=status, tags=(TagFilter("k"),))
    for _ in range(3):
        for plan in plans(records, partial(SqlRecords.find, query=query)):
            assert plan.rows <= max(LATE_ROWS, 4 * WINDOW), plan.text
            assert not plan.sorts, plan.text
        page = records.find(query)
        assert len(page.resources) == PAGE
        query = replace(query, after=page.next_after or "")


def test_a_tag_that_only_the_far_end_has_is_found_window_by_window(records: SqlRecords) -> None:
    query = replace(SCOPES["kind"], tags=(TagFilter("late", ("yes",)),))
    found: list[str] = []
    pages = 0
    while True:
        for plan in plans(records, partial(SqlRecords.find, query=query)):
            assert plan.rows <= max(LATE_ROWS, 4 * WINDOW), plan.text
        page = records.find(query)
        found += [each.key.name for each in page.resources]
        pages += 1
        if page.next_after is None or len(found) > 100:
            break
        query = replace(query, after=page.next_after)
    assert len(set(found)) == len(found) > 100
    assert pages > (ROWS - LATE_ROWS) // WINDOW


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("scope", ["account", "kind"])
def test_a_page_in_the_order_of_a_number_is_a_range_of_its_index(
    records: SqlRecords, scope: str, descending: bool
) -> None:
    common = (ValueFilter("score", low=0.1), ValueFilter("model", texts=("cnn",)))
    for wanted in ((), common):
        query = replace(SCOPES[scope], order_by_value="score", descending=descending, values=wanted)
        for _ in range(3):
            assert_reads_few(records, query)
            page = records.find(query)
            assert len(page.resources) == PAGE
            query = replace(query, after=page.next_after or "")


@pytest.mark.parametrize(("sort_by", "descending"), ORDERS)
@pytest.mark.parametrize("scope", ["account", "kind"])
def test_common_values_are_searched_in_list_order(
    records: SqlRecords, scope: str, sort_by: SortBy, descending: bool
) -> None:
    wanted = (ValueFilter("score", low=0.5), ValueFilter("model", texts=("cnn", "mlp")))
    query = replace(SCOPES[scope], sort_by=sort_by, descending=descending, values=wanted)
    for _ in range(2):
        assert_reads_few(records, query)
        page = records.find(query)
        assert len(page.resources) == PAGE
        query = replace(query, after=page.next_after or "")


@pytest.mark.parametrize(("sort_by", "descending"), ORDERS)
@pytest.mark.parametrize("scope", ["account", "kind"])
def test_resources_with_a_rare_value_are_looked_up_by_it(
    records: SqlRecords, scope: str, sort_by: SortBy, descending: bool
) -> None:
    query = replace(SCOPES[scope], sort_by=sort_by, descending=descending, limit=ROWS)
    for wanted in (ValueFilter("rare", low=0.0), ValueFilter("rare")):
        asked = replace(query, values=(ValueFilter("score"), wanted))
        for plan in plans(records, partial(SqlRecords.find, query=asked)):
            assert plan.rows < 2 * RARE_VALUE, plan.text
        found = records.find(asked).resources
        assert len(found) == (RARE_ROWS if scope == "kind" else sum(n % 3 == 0 for n in RARE_NUMBERS))


def test_a_count_reads_an_index_of_what_it_counts(records: SqlRecords) -> None:
    for scope in ("account", "kind"):
        query = replace(SCOPES[scope], status="Failed")
        for plan in plans(records, partial(SqlRecords.count, query=query)):
            assert plan.rows < ROWS // 20, plan.text


def test_part_of_a_name_is_searched_within_the_account(records: SqlRecords) -> None:
    nowhere = replace(SCOPES["account"], account=BOB, kind="model", name_contains="nowhere")
    for plan in plans(records, lambda records: records.find(nowhere)):
        assert plan.is_short, plan.text


def test_claims_and_their_writes_find_their_row_at_once(records: SqlRecords) -> None:
    def work(records: SqlRecords) -> None:
        claim = records.claim_next(KIND, worker="w", lease=LEASE, now=LATER, state=QueueState.WAITING)
        assert claim is not None
        renewed = records.renew(claim, lease=LEASE, now=LATER)
        assert renewed is not None
        assert records.apply_claimed(renewed, Change(status="x"), now=LATER)

    for plan in plans(records, work):
        assert plan.is_short, plan.text


def test_the_first_due_resource_of_a_state_is_found_at_once(records: SqlRecords) -> None:
    for state in QueueState:
        for plan in plans(records, partial(SqlRecords.first_due, kind=KIND, now=LATER, state=state)):
            assert plan.is_short, plan.text


def test_the_resources_of_a_state_are_found_without_those_of_other_states(records: SqlRecords) -> None:
    assert len(records.in_state(KIND, QueueState.PLACED)) == PLACED_ROWS
    free, held = plans(records, partial(SqlRecords.in_state, kind=KIND, state=QueueState.PLACED))
    assert free.is_short, free.text
    assert "resources_leased" in held.text


def test_the_heads_of_a_queue_are_found_without_those_behind_them(records: SqlRecords) -> None:
    heads = partial(SqlRecords.heads, kind=KIND, queues=["here", "there", "nowhere"])
    behind = partial(SqlRecords.waiting, kind=KIND, queue="here", accounts=[BOB], limit=PAGE)
    assert len(heads(records)) == 6
    assert len(behind(records)) == PAGE
    for plan in (*plans(records, heads), *plans(records, behind)):
        assert plan.is_short, plan.text
        assert not plan.sorts, plan.text
        assert "resources_in_queue" in plan.text


@pytest.mark.parametrize("priority", Priority)
def test_a_count_of_an_account_in_a_queue_reads_no_more_than_it_counts(records: SqlRecords, priority: Priority) -> None:
    before = (priority, NOON + timedelta(seconds=ROWS // 2 + 40))
    count = partial(SqlRecords.count_waiting, kind=KIND, queues=["here"], account=BOB, before=before)
    counted = count(records)
    assert 0 < counted < PAGE if priority is Priority.ON_DEMAND else counted > ROWS_FOR_A_PAGE
    for plan in plans(records, count):
        assert plan.rows <= counted, plan.text
        assert "resources_in_queue" in plan.text


def test_a_count_of_queues_reads_none_of_another_queue_or_state(records: SqlRecords) -> None:
    before = (Priority.SPOT, NOON)
    for queue in ("there", "nowhere"):
        count = partial(SqlRecords.count_waiting, kind=KIND, queues=[queue], before=before)
        for plan in plans(records, count):
            assert plan.rows < ROWS // 10, plan.text
            assert "resources_in_queue" in plan.text


def test_an_idle_worker_learns_quickly_that_there_is_nothing_to_do(records: SqlRecords) -> None:
    for kind, now in ((KIND, NOON - timedelta(days=1)), ("model", LATER), ("unknown", LATER)):
        for state in QueueState:
            claim = partial(SqlRecords.claim_next, kind=kind, worker="w", lease=LEASE, now=now, state=state)
            for plan in plans(records, claim):
                assert plan.is_short, plan.text


def test_loads_applies_and_deletes_touch_only_their_own(records: SqlRecords) -> None:
    def work(records: SqlRecords) -> None:
        [one] = records.find(replace(SCOPES["kind"], limit=1, status="Failed", sort_by=SortBy.NAME)).resources
        changed = records.apply(records.load(one.key), Change(status="x"), now=NOON)
        assert changed is not None
        assert records.delete(changed, now=NOON)

    for plan in plans(records, work):
        assert plan.is_short, plan.text


def test_tagged_arns_and_events_are_read_from_their_cursor(records: SqlRecords) -> None:
    def work(records: SqlRecords) -> None:
        for account in (ALICE, None):
            for prefixes in ([], ["arn:5", "arn:7"]):
                assert records.tagged_arns(account, arn_prefixes=prefixes, after="arn:4", limit=PAGE)
            assert records.events(after=ROWS // 2, limit=PAGE, account=account)

    for plan in plans(records, work):
        assert plan.is_short, plan.text


@pytest.mark.parametrize("descending", [False, True])
def test_a_rare_prefix_is_looked_up_in_the_order_of_creation_too(records: SqlRecords, descending: bool) -> None:
    [one] = records.find(replace(SCOPES["account"], limit=1)).resources
    rare = replace(SCOPES["account"], name_prefix=one.key.name[:10], sort_by=SortBy.CREATED, descending=descending)
    [plan] = plans(records, partial(SqlRecords.find, query=rare))
    assert plan.is_short, plan.text


def test_associations_are_found_from_either_end(records: SqlRecords) -> None:
    def work(records: SqlRecords) -> None:
        assert len(records.edges_from(ALICE, ["arn:7", "arn:5000"], limit=PAGE)) == 2
        assert len(records.edges_into(ALICE, [HUB], limit=PAGE)) == PAGE
        assert records.edges_into(ALICE, ["arn:5000"], limit=PAGE) == []
        for descending in (False, True):
            page = AssociationQuery(ALICE, limit=PAGE, descending=descending)
            for query in (page, replace(page, source="arn:7"), replace(page, destination=HUB)):
                found = records.find_associations(query)
                if found.next_after is not None:
                    assert records.find_associations(replace(query, after=found.next_after)).associations

    for plan in plans(records, work):
        assert plan.is_short, plan.text


@dataclass(frozen=True, slots=True)
class Plan:
    text: str
    # About how many rows were read.
    rows: float
    is_short: bool
    sorts: bool


def assert_pages_are_short(records: SqlRecords, query: Query) -> None:
    """Check the first three pages. The last two do not start at the beginning of the list."""
    for _ in range(3):
        [plan] = plans(records, partial(SqlRecords.find, query=query))
        assert plan.is_short, plan.text
        assert not plan.sorts, plan.text
        query = replace(query, after=records.find(query).next_after or "")
        assert query.after, "the test needs a list of more pages"


def assert_reads_few(records: SqlRecords, query: Query) -> None:
    """Check that a page reads not much more than it takes to see that a value is common."""
    for plan in plans(records, partial(SqlRecords.find, query=query)):
        # PostgreSQL may read all values of an account that are the same, 2,000 here, to sort them for the count.
        assert plan.rows <= 2.5 * RARE_VALUE, plan.text


def plans(records: SqlRecords, work: Callable[[SqlRecords], object]) -> list[Plan]:
    """Return how the database runs each statement of the work, except inserts."""
    sent: list[tuple[str, Any]] = []

    def note(_: Connection, __: object, statement: str, parameters: Any, *___: object) -> None:
        if statement.startswith(("SELECT", "UPDATE", "DELETE", "WITH")):
            sent.append((statement, parameters))

    engine = records.database.engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        work(records)
    finally:
        event.remove(engine, "before_cursor_execute", note)
    assert sent
    explain = explain_sqlite if engine.dialect.name == "sqlite" else explain_postgres
    with engine.connect() as connection:
        return [explain(connection, statement, parameters) for statement, parameters in sent]


def explain_sqlite(connection: Connection, statement: str, parameters: Any) -> Plan:
    text = "\n".join(row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters))
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    driver.execute("SAVEPOINT explain")
    driver.set_progress_handler(count, 1)
    try:
        driver.execute(statement, parameters).fetchall()
    finally:
        driver.set_progress_handler(None, 1)
        driver.execute("ROLLBACK TO explain")
        driver.execute("RELEASE explain")
    return Plan(f"{statement}\n{text}\n{steps} steps", steps / 20, steps < STEPS_FOR_A_PAGE, "TEMP B-TREE" in text)


def explain_postgres(connection: Connection, statement: str, parameters: Any) -> Plan:
    with connection.begin_nested() if connection.in_transaction() else connection.begin() as transaction:
        [row] = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters)
        transaction.rollback()
    nodes = list(plan_nodes(row[0][0]["Plan"]))
    rows = sum(rows_read(node) for node in nodes if "Relation Name" in node)
    # An incremental sort, which only orders ties within an index order, is not a full sort.
    sorts = any(node["Node Type"] == "Sort" for node in nodes)
    return Plan(f"{statement}\n{json.dumps(nodes, indent=1)}\n{rows} rows", rows, rows < ROWS_FOR_A_PAGE, sorts)


def plan_nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {name: value for name, value in node.items() if name != "Plans"}
    for child in node.get("Plans", ()):
        yield from plan_nodes(child)


def rows_read(node: dict[str, Any]) -> float:
    removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    return float(node["Actual Loops"] * (node["Actual Rows"] + removed))


def many_rows() -> Iterator[tuple[str, Body]]:
    """Yield jobs of three accounts, 3 % of them failed and 10 % children, and as many events and tags."""
    chance = random.Random(7)
    yield "schema", {"revision": REVISION}
    yield "resources", row(0, chance) | {"id": PARENT, "kind": "group", "name": "parent"}
    for number in range(ROWS):
        one = row(number, chance)
        yield "resources", one
        yield "tags", {"account": one["account"], "arn": f"arn:{number}", "key": "k", "value": "v"}
        value = {"resource": one["id"], "account": one["account"], "kind": KIND}
        yield "resource_values", value | {"name": "score", "text": "", "number": chance.random()}
        yield "resource_values", value | {"name": "model", "text": chance.choice(["cnn", "mlp"]), "number": None}
        if number in RARE_NUMBERS:
            yield "tags", {"account": one["account"], "arn": f"arn:{number}", "key": "rare", "value": "yes"}
            yield "resource_values", value | {"name": "rare", "text": "", "number": float(number)}
        if number >= ROWS - LATE_ROWS:
            yield "tags", {"account": one["account"], "arn": f"arn:{number}", "key": "late", "value": "yes"}
        ends = {"account": ALICE, "source": f"arn:{number}", "destination": HUB}
        yield "associations", ends | {"kind": "x", "created_at": number, "source_type": "a", "destination_type": "b"}
        happened = {"sequence": number + 1, "at": 0, "kind": "x", "subject": PARENT, "body": "{}"}
        yield "events", happened | {"account": ALICE if number % 3 else BOB}


def row(number: int, chance: random.Random) -> dict[str, Any]:
    created = NOON + timedelta(seconds=number)
    return {
        "id": new_id(created),
        "account": (ALICE, BOB, "333333333333")[number % 3] if number % 10 else ALICE,
        "kind": KIND,
        "name": f"job-{chance.randrange(10**9):09}-{number}",
        "region": REGION,
        "status": "Failed" if number % 100 < 3 else "Completed",
        "created_at": to_micros(created),
        "modified_at": to_micros(created + timedelta(seconds=chance.randrange(1000))),
        "revision": 1,
        "body": "{}",
        "parent": None if number % 10 else PARENT,
        "arn": f"arn:{number}",
        "due_at": to_micros(created) if number % 2 else None,
        "queue": ("here", "there")[number % 7 == 0],
        "state": STATES.get(number % 500, QueueState.WAITING).value,
        "priority": int(Priority.SPOT if number % 5 == 0 else Priority.ON_DEMAND),
        # Workers hold the first half of the resources that are due.
        "lease_token": "t" if number % 2 and number < ROWS // 2 else None,
        "lease_worker": None,
        "lease_expires_at": to_micros(LATER + LEASE) if number % 2 and number < ROWS // 2 else None,
    }

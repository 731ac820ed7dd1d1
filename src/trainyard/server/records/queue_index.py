"""Queues of resources that wait for the scheduler. Each query walks a range of the index `resources_in_queue`."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, bindparam, func, literal, select, tuple_

from trainyard.server.records.contract import Priority, QueuedResource, QueueState
from trainyard.server.records.schema import Moment
from trainyard.server.records.schema import resources as table


def _heads() -> Select[Any]:
    """Walk the accounts of a queue, each found from the one before it, and read the first resource of each."""
    c = table.alias("other").c
    in_queue = (
        c.kind == bindparam("of_kind"),
        c.state == bindparam("in_state"),
        c.queue == bindparam("in_queue"),
        c.lease_token.is_(None),
        c.due_at.is_not(None),
    )
    accounts = select(c.account).where(*in_queue).order_by(c.account).limit(1)
    # Every account is greater than "". Without this condition SQLite chooses the index of everything that is due.
    anyone = accounts.where(c.account > "")
    found = select(anyone.scalar_subquery().label("account")).cte("found", recursive=True)
    following = accounts.where(c.account > found.c.account).correlate(found)
    found = found.union_all(select(following.scalar_subquery()).where(found.c.account.is_not(None)))
    first = select(c.id).where(*in_queue, c.account == found.c.account).order_by(c.priority, c.due_at, c.id).limit(1)
    columns = (
        first.with_only_columns(column).correlate(found).scalar_subquery() for column in (c.id, c.priority, c.due_at)
    )
    return select(found.c.account, *columns).where(found.c.account.is_not(None))


_HEADS = _heads()
_WAITING = (
    select(table.c.id, table.c.priority, table.c.due_at)
    .where(
        table.c.kind == bindparam("of_kind"),
        table.c.state == bindparam("in_state"),
        table.c.queue == bindparam("in_queue"),
        table.c.account == bindparam("of_account"),
        table.c.lease_token.is_(None),
        table.c.due_at.is_not(None),
    )
    .order_by(table.c.priority, table.c.due_at, table.c.id)
    .limit(bindparam("at_most"))
)


def find_heads(connection: Connection, kind: str, queues: Sequence[str]) -> Sequence[QueuedResource]:
    asked = {"of_kind": kind, "in_state": QueueState.WAITING}
    return [
        QueuedResource(row[1], row[0], queue, Priority(row[2]), row[3])
        for queue in queues
        for row in connection.execute(_HEADS, asked | {"in_queue": queue})
    ]


def find_waiting(
    connection: Connection, kind: str, queue: str, *, accounts: Sequence[str], limit: int
) -> Sequence[QueuedResource]:
    asked = {"of_kind": kind, "in_state": QueueState.WAITING, "in_queue": queue, "at_most": limit}
    return [
        QueuedResource(row[0], account, queue, Priority(row[1]), row[2])
        for account in accounts
        for row in connection.execute(_WAITING, asked | {"of_account": account})
    ]


def count_waiting(
    connection: Connection,
    kind: str,
    queues: Sequence[str],
    *,
    account: str | None,
    before: tuple[Priority, datetime] | None,
) -> int:
    c = table.c
    wanted = [c.kind == kind, c.state == QueueState.WAITING, c.queue.in_(queues)]
    wanted += [c.lease_token.is_(None), c.due_at.is_not(None)]
    # As in `_heads`, the condition on all accounts makes SQLite choose the index of queues.
    wanted.append(c.account > "" if account is None else c.account == account)
    if before is not None:
        priority, due_at = before
        wanted.append(tuple_(c.priority, c.due_at) < tuple_(literal(int(priority)), literal(due_at, Moment)))
    return int(connection.execute(select(func.count()).where(*wanted)).scalar_one())

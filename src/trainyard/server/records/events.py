"""Events: written in the transaction that makes them happen, and read by sequence number."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import BigInteger, Connection, bindparam, func, insert, select

from trainyard.server.records.contract import Event, NewEvent, Resource
from trainyard.server.records.schema import events as table

_INSERT = insert(table)
_AFTER = select(table).where(table.c.sequence > bindparam("after", type_=BigInteger)).order_by(table.c.sequence)

# An arbitrary number that no other lock in the database uses.
_LOCK = select(func.pg_advisory_xact_lock(0x747261696E))


def append(connection: Connection, subject: Resource, new: Sequence[NewEvent], *, now: datetime) -> None:
    """Append events as the last step of a transaction.

    PostgreSQL assigns sequence numbers before it commits, so 8 could become visible before 7, and a reader would skip 7
    forever. The lock, held until the commit, keeps numbers and commits in the same order. A transaction takes it last
    and waits for no row afterwards, so it adds no deadlock.
    """
    if not new:
        return
    if connection.dialect.name == "postgresql":
        connection.execute(_LOCK)
    account, id_ = subject.key.account, subject.id
    rows = [{"at": now, "account": account, "kind": one.kind, "subject": id_, "body": one.body} for one in new]
    connection.execute(_INSERT, rows)


def read_after(connection: Connection, sequence: int, *, limit: int, account: str | None) -> Sequence[Event]:
    statement = _AFTER.limit(limit)
    if account is not None:
        statement = statement.where(table.c.account == account)
    return [Event(*row) for row in connection.execute(statement, {"after": sequence})]


def last_sequence(connection: Connection) -> int:
    newest: int | None = connection.execute(select(func.max(table.c.sequence))).scalar_one()
    return newest or 0

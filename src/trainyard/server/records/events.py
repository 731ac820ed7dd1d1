"""Events: appended in the transaction that makes them true, and read by cursor."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import BigInteger, Connection, bindparam, func, insert, select

from trainyard.server.records.contract import Event, NewEvent, Resource
from trainyard.server.records.schema import events as table

_INSERT = insert(table)
_AFTER = select(table).where(table.c.sequence > bindparam("after", type_=BigInteger)).order_by(table.c.sequence)

# Any number will do that nothing else in the database uses for a lock.
_LOCK = select(func.pg_advisory_xact_lock(0x747261696E))


def append(connection: Connection, subject: Resource, new: Sequence[NewEvent], *, now: datetime) -> None:
    """Append as the last thing of a transaction.

    PostgreSQL hands out sequence numbers before it commits, and could show 8 before 7: a reader would step over 7 for
    good. The lock, held to the commit, makes numbers and commits go in one order. Being taken last, it can be waited
    for but never waits for a row, so it adds no deadlock.
    """
    if not new:
        return
    if connection.dialect.name == "postgresql":
        connection.execute(_LOCK)
    account, id_ = subject.key.account, subject.id
    rows = [{"at": now, "account": account, "kind": one.kind, "subject": id_, "body": one.body} for one in new]
    connection.execute(_INSERT, rows)


def after(connection: Connection, sequence: int, *, limit: int, account: str | None) -> Sequence[Event]:
    statement = _AFTER.limit(limit)
    if account is not None:
        statement = statement.where(table.c.account == account)
    return [Event(*row) for row in connection.execute(statement, {"after": sequence})]

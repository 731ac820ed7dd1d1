"""Counters of accounts. They change in the transaction of the resources that they count, so they never drift."""

from collections.abc import Mapping, Sequence

from sqlalchemy import BigInteger, Connection, bindparam, select, text

from trainyard.server.records.contract import Counter, CounterFull
from trainyard.server.records.schema import Word
from trainyard.server.records.schema import counters as table

_ADD = text(
    "INSERT INTO counters (account, name, value) VALUES (:account, :name, :added) "
    "ON CONFLICT (account, name) DO UPDATE SET value = counters.value + excluded.value RETURNING value"
).bindparams(bindparam("account", type_=Word), bindparam("name", type_=Word), bindparam("added", type_=BigInteger))


def add(
    connection: Connection, account: str, counts: Mapping[str, int], *, limits: Mapping[str, int] | None = None
) -> None:
    """Add to counters of an account. CounterFull when one exceeds its limit; the caller must then roll back.

    Each counter stays locked until the commit, so that no two writers use the same remaining room. All writers lock
    counters in the same order, after the resource, so they cannot deadlock.
    """
    for name in sorted(counts):
        added = counts[name]
        value = connection.execute(_ADD, {"account": account, "name": name, "added": added}).scalar_one()
        limit = (limits or {}).get(name)
        if limit is not None and value > limit:
            raise CounterFull(Counter(account, name, value - added), limit=limit, added=added)


def load(connection: Connection, account: str | None) -> Sequence[Counter]:
    statement = select(table).order_by(table.c.account, table.c.name)
    if account is not None:
        statement = statement.where(table.c.account == account)
    return [Counter(*row) for row in connection.execute(statement)]

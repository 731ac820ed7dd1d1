"""Tags of ARNs."""

from collections.abc import Iterator, Mapping, Sequence

from sqlalchemy import ColumnElement, Connection, bindparam, delete, select, text

from trainyard.server.records.contract import TaggedArn
from trainyard.server.records.schema import Word, prefix_range
from trainyard.server.records.schema import tags as table

# SQLite accepts 32,766 parameters in a statement.
_LOADED_AT_ONCE = 1000
_PUT = text(
    "INSERT INTO tags (account, arn, key, value) VALUES (:account, :arn, :key, :value) "
    "ON CONFLICT (account, arn, key) DO UPDATE SET value = excluded.value"
).bindparams(*(bindparam(name, type_=Word) for name in ("account", "arn", "key", "value")))


def load(connection: Connection, account: str, arn: str) -> Mapping[str, str]:
    statement = select(table.c.key, table.c.value).where(table.c.account == account, table.c.arn == arn)
    return {row.key: row.value for row in connection.execute(statement.order_by(table.c.key))}


def load_many(connection: Connection, arns: Sequence[str]) -> Sequence[TaggedArn]:
    batches = (arns[first : first + _LOADED_AT_ONCE] for first in range(0, len(arns), _LOADED_AT_ONCE))
    return [tagged for batch in batches for tagged in _with_tags(connection, None, batch)]


def put(connection: Connection, account: str, arn: str, tags: Mapping[str, str]) -> None:
    # All writers use the same order, so that two writers of the same tags cannot deadlock.
    rows = [{"account": account, "arn": arn, "key": key, "value": tags[key]} for key in sorted(tags)]
    if rows:
        connection.execute(_PUT, rows)


def remove(connection: Connection, account: str, arn: str, keys: Sequence[str]) -> None:
    of_arn = (table.c.account == account) & (table.c.arn == arn)
    connection.execute(delete(table).where(of_arn, table.c.key.in_(keys)))


def find_tagged(
    connection: Connection, account: str | None, *, arn_prefixes: Sequence[str], after: str, limit: int
) -> Sequence[TaggedArn]:
    arns: list[str] = []
    for prefix in _disjoint(arn_prefixes):
        if len(arns) < limit:
            arns += _arns(connection, account, prefix=prefix, after=after, limit=limit - len(arns))
    return list(_with_tags(connection, account, arns))


def _disjoint(prefixes: Sequence[str]) -> Iterator[str]:
    """Yield the prefixes in order, without those that another one covers, so that their ranges yield ARNs in order."""
    last: str | None = None
    for prefix in sorted(prefixes or [""]):
        if last is None or not prefix.startswith(last):
            last = prefix
            yield prefix


def _arns(connection: Connection, account: str | None, *, prefix: str, after: str, limit: int) -> Sequence[str]:
    wanted = [*prefix_range(table.c.arn, prefix), table.c.arn > after, *_owned_by(account)]
    statement = select(table.c.arn).where(*wanted).distinct().order_by(table.c.arn).limit(limit)
    return connection.execute(statement).scalars().all()


def _with_tags(connection: Connection, account: str | None, arns: Sequence[str]) -> Iterator[TaggedArn]:
    statement = select(table).where(table.c.arn.in_(arns), *_owned_by(account))
    found: dict[tuple[str, str], dict[str, str]] = {}
    for row in connection.execute(statement.order_by(table.c.arn, table.c.account, table.c.key)):
        found.setdefault((row.arn, row.account), {})[row.key] = row.value
    for (arn, owner), tags in found.items():
        yield TaggedArn(owner, arn, tags)


def _owned_by(account: str | None) -> list[ColumnElement[bool]]:
    return [] if account is None else [table.c.account == account]

"""Everything the records hold, out as rows and in again.

A row is what its table keeps: text, whole numbers, true and false, null; times are UTC microseconds and bodies JSON
text. The first row says which schema the others follow.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from sqlalchemy import Column, Connection, Table, TableClause, TypeDecorator, column, func, insert, select, text
from sqlalchemy import table as table_clause
from sqlalchemy.exc import IntegrityError
from sqlalchemy.types import TypeEngine

from trainyard import __version__
from trainyard.foundation.errors import Conflict, Corrupt
from trainyard.server.records.contract import Body
from trainyard.server.records.schema import REVISION, access_keys, counters, events, resources, tags, users

ROWS_AT_ONCE = 500

_SCHEMA = "schema"
_TABLES = (users, access_keys, resources, tags, counters, events)  # each after those it refers to


def export(connection: Connection) -> Iterator[tuple[str, Body]]:
    """The connection must see one moment for as long as this is read."""
    yield _SCHEMA, {"revision": REVISION, "written_by": __version__}
    for table in _TABLES:
        plain = _plain(table)
        rows = connection.execution_options(yield_per=ROWS_AT_ONCE).execute(
            select(plain).order_by(*(plain.c[key.name] for key in table.primary_key))
        )
        for row in rows.mappings():
            yield table.name, dict(row)


def restore(connection: Connection, rows: Iterable[tuple[str, Body]], *, title: str) -> None:
    for table in _TABLES:
        if connection.execute(select(table).limit(1)).first() is not None:
            raise Conflict("database", title, f"holds {table.name} already; restore into an empty one")
    remaining = iter(rows)
    _require_schema(remaining)
    try:
        _defer_foreign_keys(connection)
        while some := list(islice(remaining, ROWS_AT_ONCE)):
            _insert(connection, some)
        _check_foreign_keys(connection)
    except IntegrityError as error:
        raise Corrupt(f"The backup contradicts itself ({error.orig}); take another.") from error
    _advance_sequence(connection)


def _require_schema(rows: Iterator[tuple[str, Body]]) -> None:
    name, first = next(rows, ("", {}))
    if name != _SCHEMA:
        raise Corrupt("The backup does not begin with its schema; it is no backup of Trainyard's records, or cut.")
    if first.get("revision") != REVISION:
        raise Conflict(
            "backup",
            f"schema {first.get('revision')}",
            f"was written by Trainyard {first.get('written_by')}; this is Trainyard {__version__}, which "
            f"reads schema {REVISION}. Restore it with that version, and let this one upgrade the database",
        )


def _insert(connection: Connection, rows: list[tuple[str, Body]]) -> None:
    for table in _TABLES:
        mine = [_checked(table, row) for name, row in rows if name == table.name]
        if mine:
            connection.execute(insert(_plain(table)), mine)
    unknown = {name for name, _ in rows} - {table.name for table in _TABLES}
    if unknown:
        raise Corrupt(f'The backup holds rows of an unknown table "{unknown.pop()}"; take another.')


def _checked(table: Table, row: Body) -> dict[str, Any]:
    """The row, if it has every column with a value of its type; SQLite would keep anything."""
    if row.keys() != set(table.columns.keys()):
        raise Corrupt(f"A row of {table.name} in the backup has other columns than the table; take another.")
    for one in table.columns:
        value = row[one.name]
        if not (one.nullable if value is None else type(value) is _plain_type(one).python_type):
            raise Corrupt(f'A row of {table.name} in the backup has "{value}" as its {one.name}; take another.')
    return dict(row)


def _defer_foreign_keys(connection: Connection) -> None:
    """Until the end, because a child may come before its parent."""
    is_sqlite = connection.dialect.name == "sqlite"
    connection.execute(text("PRAGMA defer_foreign_keys = ON" if is_sqlite else "SET CONSTRAINTS ALL DEFERRED"))


def _check_foreign_keys(connection: Connection) -> None:
    """Now rather than at the commit, while we can still say what is wrong."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SET CONSTRAINTS ALL IMMEDIATE"))
        return
    orphan = connection.execute(text("PRAGMA foreign_key_check")).first()
    if orphan is not None:
        raise Corrupt(f"The backup contradicts itself (a row of {orphan[0]} lacks its {orphan[2]}); take another.")


def _advance_sequence(connection: Connection) -> None:
    """PostgreSQL does not notice numbers that it has not handed out itself."""
    if connection.dialect.name == "postgresql":
        counter = func.pg_get_serial_sequence("events", "sequence")
        last = select(func.max(events.c.sequence)).scalar_subquery()
        connection.execute(select(func.setval(counter, last)))


def _plain(table: Table) -> TableClause:
    """The same table without our types, so that rows pass as they are kept."""
    return table_clause(table.name, *(column(one.name, _plain_type(one)) for one in table.columns))


def _plain_type(one: Column[Any]) -> TypeEngine[Any]:
    kind = one.type
    return kind.impl_instance if isinstance(kind, TypeDecorator) else kind

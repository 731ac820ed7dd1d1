"""Export of all records as rows, and restore of such an export.

A row has the stored values of its table: text, integers, booleans, null; times are UTC microseconds and bodies JSON
text. The first row names the schema of the others. A restore reads every schema up to the current one: it inserts the
rows of an older one into tables of that schema, and then upgrades them.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    MetaData,
    Table,
    TableClause,
    TypeDecorator,
    column,
    func,
    insert,
    select,
    text,
)
from sqlalchemy import table as table_clause
from sqlalchemy.exc import IntegrityError
from sqlalchemy.types import TypeEngine

from trainyard import __version__
from trainyard.foundation.errors import Conflict, Corrupt
from trainyard.server.records import migrations
from trainyard.server.records.contract import Body
from trainyard.server.records.schema import (
    REVISION,
    access_keys,
    associations,
    counters,
    events,
    metadata,
    resource_values,
    resources,
    tags,
    users,
    version,
)

ROWS_AT_ONCE = 500

_SCHEMA = "schema"
# Each table comes after those it refers to.
_TABLES = (users, access_keys, resources, resource_values, tags, associations, counters, events)


def export(connection: Connection) -> Iterator[tuple[str, Body]]:
    """Yield every row. The connection must see one snapshot until the last row is read."""
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
    revision = _read_revision(remaining)
    tables = _TABLES if revision == REVISION else _create_older_tables(connection, revision)
    try:
        _defer_foreign_keys(connection)
        while some := list(islice(remaining, ROWS_AT_ONCE)):
            _insert(connection, some, tables)
        _check_foreign_keys(connection)
    except IntegrityError as error:
        raise Corrupt(f"The backup contradicts itself ({error.orig}); take another.") from error
    _advance_sequence(connection)
    if revision != REVISION:
        migrations.upgrade_tables(connection)


def _read_revision(rows: Iterator[tuple[str, Body]]) -> str:
    """Return the schema revision of a backup. Conflict when this code does not know it."""
    name, first = next(rows, ("", {}))
    if name != _SCHEMA:
        raise Corrupt("The backup does not start with its schema; it is not a backup of Trainyard's records, or cut.")
    revision = str(first.get("revision"))
    if not revision.isdecimal() or int(revision) > int(REVISION):
        raise Conflict(
            "backup",
            f"schema {revision}",
            f"was written by Trainyard {first.get('written_by')}; this is Trainyard {__version__}, which "
            f"reads schemas up to {REVISION}. Restore it with that version or a later one",
        )
    return revision


def _create_older_tables(connection: Connection, revision: str) -> tuple[Table, ...]:
    """Replace the empty tables by those of an older schema, and return them."""
    metadata.drop_all(connection)
    version.drop(connection)
    migrations.upgrade_tables(connection, revision)
    older = MetaData()
    older.reflect(connection)
    return tuple(older.tables[table.name] for table in _TABLES if table.name in older.tables)


def _insert(connection: Connection, rows: list[tuple[str, Body]], tables: tuple[Table, ...]) -> None:
    for table in tables:
        mine = [_check_row(table, row) for name, row in rows if name == table.name]
        if mine:
            connection.execute(insert(_plain(table)), mine)
    unknown = {name for name, _ in rows} - {table.name for table in tables}
    if unknown:
        raise Corrupt(f'The backup holds rows of an unknown table "{unknown.pop()}"; take another.')


def _check_row(table: Table, row: Body) -> dict[str, Any]:
    """Return the row if every column has a value of its type. SQLite itself would store anything."""
    if row.keys() != set(table.columns.keys()):
        raise Corrupt(f"A row of {table.name} in the backup has other columns than the table; take another.")
    for one in table.columns:
        value = row[one.name]
        if not (one.nullable if value is None else type(value) is _plain_type(one).python_type):
            raise Corrupt(f'A row of {table.name} in the backup has "{value}" as its {one.name}; take another.')
    return dict(row)


def _defer_foreign_keys(connection: Connection) -> None:
    """Check foreign keys at the end only, because a child may come before its parent."""
    is_sqlite = connection.dialect.name == "sqlite"
    connection.execute(text("PRAGMA defer_foreign_keys = ON" if is_sqlite else "SET CONSTRAINTS ALL DEFERRED"))


def _check_foreign_keys(connection: Connection) -> None:
    """Check foreign keys before the commit, while the error can still say what is wrong."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SET CONSTRAINTS ALL IMMEDIATE"))
        return
    orphan = connection.execute(text("PRAGMA foreign_key_check")).first()
    if orphan is not None:
        raise Corrupt(f"The backup contradicts itself (a row of {orphan[0]} lacks its {orphan[2]}); take another.")


def _advance_sequence(connection: Connection) -> None:
    """Continue the sequence of PostgreSQL after the restored numbers, which it did not assign itself."""
    if connection.dialect.name == "postgresql":
        counter = func.pg_get_serial_sequence("events", "sequence")
        last = select(func.max(events.c.sequence)).scalar_subquery()
        connection.execute(select(func.setval(counter, last)))


def _plain(table: Table) -> TableClause:
    """Return the table without our types, so that rows pass as they are stored."""
    return table_clause(table.name, *(column(one.name, _plain_type(one)) for one in table.columns))


def _plain_type(one: Column[Any]) -> TypeEngine[Any]:
    kind = one.type
    return kind.impl_instance if isinstance(kind, TypeDecorator) else kind

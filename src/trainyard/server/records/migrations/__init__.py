"""The schema of a database: made when it has none, upgraded when it is older, refused when it is newer."""

from sqlalchemy import Connection, func, insert, inspect, select

from trainyard import __version__
from trainyard.foundation.errors import Conflict, Corrupt
from trainyard.server.records.database import Database
from trainyard.server.records.schema import REVISION, facts, metadata, version

_WRITTEN_BY = "written_by"
_LOCK = select(func.pg_advisory_xact_lock(0x73636865))  # differs from the one of events


def prepare(database: Database) -> None:
    """Leave the database with the schema of this code; a kill at any moment leaves the one it had, or the new one."""
    if database.read(lambda connection: _revision(connection, database.title)) != REVISION:
        database.write(lambda connection: _change(connection, database.title))


def _revision(connection: Connection, title: str) -> str | None:
    """The revision the database has, None when it is empty, or the error why it is not ours to use."""
    tables = set(inspect(connection).get_table_names())
    if not tables:
        return None
    if version.name not in tables:
        raise Conflict("database", title, "holds tables that Trainyard did not make; give it a database of its own")
    found = connection.execute(select(version.c.version_num)).scalar_one_or_none() or ""
    if not found.isdecimal() or int(found) > int(REVISION):
        raise _newer(connection, title, found)
    missing = metadata.tables.keys() - tables if found == REVISION else set()
    if missing:
        raise Corrupt(
            f"{title} is damaged: it has no table {', '.join(sorted(missing))}. Stop the yard and run "
            "`trainyard restore BACKUP`."
        )
    return found


def _newer(connection: Connection, title: str, found: str) -> Conflict:
    writer = connection.execute(select(facts.c.value).where(facts.c.name == _WRITTEN_BY)).scalar_one_or_none()
    maker = f"Trainyard {writer}" if writer else "a newer Trainyard"
    return Conflict(
        "database",
        title,
        f'has the schema "{found}" of {maker}; this is Trainyard {__version__}, which knows schemas up to '
        f"{REVISION}. Nothing was changed. Install {maker} or later, or use another home",
    )


def _change(connection: Connection, title: str) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(_LOCK)
    found = _revision(connection, title)  # again, because another process may have been quicker
    if found is None and connection.dialect.name == "sqlite":
        _create(connection)
    elif found != REVISION:
        from trainyard.server.records.migrations.upgrade import upgrade  # here, for it imports Alembic

        upgrade(connection)
    connection.execute(facts.delete().where(facts.c.name == _WRITTEN_BY))
    connection.execute(insert(facts).values(name=_WRITTEN_BY, value=__version__))


def _create(connection: Connection) -> None:
    """What all migrations in turn would leave, without the time that Alembic takes at a first start."""
    metadata.create_all(connection)
    version.create(connection)
    connection.execute(insert(version).values(version_num=REVISION))

"""The schema of a database: created when missing, upgraded when older, rejected when newer."""

from pathlib import Path

from sqlalchemy import Connection, func, insert, inspect, select

from trainyard import __version__
from trainyard.foundation.errors import Conflict, Corrupt
from trainyard.server.records.database import RecordsDatabase
from trainyard.server.records.schema import REVISION, facts, metadata, version

_WRITTEN_BY = "written_by"
# An arbitrary number that differs from the lock of events.
_LOCK = select(func.pg_advisory_xact_lock(0x73636865))


def prepare(database: RecordsDatabase) -> None:
    """Bring the database to the schema of this code. A kill at any moment leaves the old schema or the new one."""
    if database.read(lambda connection: _read_revision(connection, database.title)) != REVISION:
        database.write(lambda connection: _create_or_upgrade(connection, database.title))


def pending_migrations(database: RecordsDatabase) -> list[str]:
    """Return the migrations that `prepare` would run, each by its revision and its title. Raises as `prepare` does."""
    found = database.read(lambda connection: _read_revision(connection, database.title))
    if found is None or found == REVISION:
        return []
    from alembic.script import ScriptDirectory

    # Alembic reads from the newest to the oldest.
    scripts = reversed(list(ScriptDirectory(str(Path(__file__).parent)).walk_revisions(found, REVISION)))
    return [f"{each.revision} {each.doc.rstrip('.')}" for each in scripts if each.revision != found]


def _read_revision(connection: Connection, title: str) -> str | None:
    """Return the revision of the database, or None when it is empty. Raise if this code cannot use it."""
    tables = set(inspect(connection).get_table_names())
    if not tables:
        return None
    if version.name not in tables:
        raise Conflict("database", title, "holds tables that Trainyard did not make; use a database of its own")
    found = connection.execute(select(version.c.version_num)).scalar_one_or_none() or ""
    if not found.isdecimal() or int(found) > int(REVISION):
        raise _newer_schema_error(connection, title, found)
    missing = metadata.tables.keys() - tables if found == REVISION else set()
    if missing:
        raise Corrupt(
            f"{title} is damaged: it has no table {', '.join(sorted(missing))}. Stop the yard and run "
            "`trainyard restore BACKUP`."
        )
    return found


def _newer_schema_error(connection: Connection, title: str, found: str) -> Conflict:
    writer = connection.execute(select(facts.c.value).where(facts.c.name == _WRITTEN_BY)).scalar_one_or_none()
    maker = f"Trainyard {writer}" if writer else "a newer Trainyard"
    return Conflict(
        "database",
        title,
        f'has the schema "{found}" of {maker}; this is Trainyard {__version__}, which knows schemas up to '
        f"{REVISION}. Nothing was changed. Install {maker} or later, or use another home",
    )


def _create_or_upgrade(connection: Connection, title: str) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(_LOCK)
    # Read it again, because another process may have been faster.
    found = _read_revision(connection, title)
    if found is None and connection.dialect.name == "sqlite":
        _create(connection)
    elif found != REVISION:
        upgrade_tables(connection)
    _write_version(connection)


def upgrade_tables(connection: Connection, revision: str = "head") -> None:
    """Run the missing migrations up to a revision, in a transaction that the caller commits.

    At the newest revision, record the version of this code. `env.py` takes the connection from the attributes.
    """
    # Imported here, because a normal start does not need Alembic.
    from alembic import command
    from alembic.config import Config

    config = Config()
    # Doubled, because options in Alembic's configuration expand percent signs.
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
    if revision == "head":
        _write_version(connection)


def _write_version(connection: Connection) -> None:
    connection.execute(facts.delete().where(facts.c.name == _WRITTEN_BY))
    connection.execute(insert(facts).values(name=_WRITTEN_BY, value=__version__))


def _create(connection: Connection) -> None:
    """Create what all migrations would leave, without the time that Alembic adds to a first start."""
    metadata.create_all(connection)
    version.create(connection)
    connection.execute(insert(version).values(version_num=REVISION))

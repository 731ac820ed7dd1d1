"""A database behind the records: how work is run in it, and how its troubles become ours."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, IntegrityError, StatementError
from sqlalchemy.exc import TimeoutError as NoConnectionFree

from trainyard.foundation.errors import InvalidRequest, TrainyardError, Unavailable

T = TypeVar("T")
Work = Callable[[Connection], T]


class Database(Protocol):
    """Runs work in transactions. Safe to share between threads.

    Work may run again after a failure that left no trace, so it must have no effect but in the database, and must have
    fetched all it needs when it returns. What SQLAlchemy raises is translated; errors of ours pass through, and
    IntegrityError too, which only the work can explain.
    """

    title: str  # how messages name it; holds no password
    engine: Engine

    def read(self, work: Work[T]) -> T:
        """Run work that reads; each statement sees what was committed before it."""
        ...

    def write(self, work: Work[T]) -> T:
        """Run work in one transaction, durable when this returns."""
        ...

    def write_once(self, work: Work[T]) -> T:
        """The same for work that cannot run again, because it uses something up."""
        ...

    def snapshot(self) -> AbstractContextManager[Connection]:
        """A connection whose every read sees one moment."""
        ...

    def close(self) -> None: ...


def open_database(url: str) -> Database:
    """Connect to `sqlite:///path` or `postgresql://…`, and create a missing SQLite file."""
    # Imported here, because each brings a driver that the other's users may not have.
    if url.startswith("sqlite:///"):
        from trainyard.server.records.sqlite import SqliteDatabase

        return SqliteDatabase(url)
    if url.startswith("postgresql://"):
        from trainyard.server.records.postgresql import PostgresDatabase

        return PostgresDatabase(url)
    scheme = url.partition(":")[0]
    raise InvalidRequest(f'Records cannot be kept in "{scheme}:…"; write sqlite:///PATH or postgresql://HOST/DATABASE.')


@contextmanager
def translated(title: str, translate: Callable[[DBAPIError], TrainyardError | None]) -> Iterator[None]:
    """Turn what SQLAlchemy raises into errors of ours; what `translate` does not know is a bug and stays as it is."""
    try:
        yield
    except IntegrityError:
        raise
    except DBAPIError as error:
        known = translate(error)
        if known is None:
            raise
        raise known from error
    except StatementError as error:
        if isinstance(error.orig, TrainyardError):  # a value that one of our column types refuses
            raise error.orig from error
        raise
    except NoConnectionFree as error:
        raise Unavailable(f"{title} has no connection free; try again.") from error


def breaks_foreign_key(error: IntegrityError) -> bool:
    """Whether a row was missing that another refers to; otherwise a key was there already."""
    names = (getattr(error.orig, "sqlite_errorname", ""), getattr(error.orig, "sqlstate", ""))
    return "SQLITE_CONSTRAINT_FOREIGNKEY" in names or "23503" in names

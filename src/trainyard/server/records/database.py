"""The database of the records: runs work in transactions, and translates its errors."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, IntegrityError, StatementError
from sqlalchemy.exc import TimeoutError as NoConnectionFree

from trainyard.foundation.errors import InvalidRequest, TrainyardError, Unavailable

T = TypeVar("T")
Work = Callable[[Connection], T]


class RecordsDatabase(Protocol):
    """Runs work in transactions. Safe to share between threads.

    Work may run again after a failure that left no trace, so its only effects must be in the database, and it must have
    fetched everything when it returns. Errors of SQLAlchemy are translated, except IntegrityError, which only the work
    can explain. Our own errors pass through.
    """

    # The name of the database in messages, without a password.
    title: str
    engine: Engine

    def read(self, work: Work[T]) -> T:
        """Run work that only reads. Each statement sees what was committed before it."""
        ...

    def write(self, work: Work[T]) -> T:
        """Run work in one transaction. It is durable when this returns."""
        ...

    def write_once(self, work: Work[T]) -> T:
        """Run work in one transaction, and never retry it, because it consumes its input."""
        ...

    def snapshot(self) -> AbstractContextManager[Connection]:
        """Open a connection whose reads all see the same snapshot."""
        ...

    def close(self) -> None: ...


def open_database(url: str) -> RecordsDatabase:
    """Connect to `sqlite:///path` or `postgresql://…`, and create a missing SQLite file."""
    # Imported here, because each needs a driver that users of the other may not have.
    if url.startswith("sqlite:///"):
        from trainyard.server.records.sqlite import SqliteDatabase

        return SqliteDatabase(url)
    if url.startswith("postgresql://"):
        from trainyard.server.records.postgresql import PostgresDatabase

        return PostgresDatabase(url)
    scheme = url.partition(":")[0]
    raise InvalidRequest(
        f'Records cannot be stored in "{scheme}:…"; write sqlite:///PATH or postgresql://HOST/DATABASE.'
    )


@contextmanager
def translate_errors(title: str, translate: Callable[[DBAPIError], TrainyardError | None]) -> Iterator[None]:
    """Translate errors of SQLAlchemy into ours. An error that `translate` does not know is a bug and passes through."""
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
        # One of our column types rejected a value.
        if isinstance(error.orig, TrainyardError):
            raise error.orig from error
        raise
    except NoConnectionFree as error:
        raise Unavailable(f"{title} has no free connection; try again.") from error


def breaks_foreign_key(error: IntegrityError) -> bool:
    """Whether a referenced row was missing. Otherwise a key existed already."""
    names = (getattr(error.orig, "sqlite_errorname", ""), getattr(error.orig, "sqlstate", ""))
    return "SQLITE_CONSTRAINT_FOREIGNKEY" in names or "23503" in names

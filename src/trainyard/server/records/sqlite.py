"""SQLite: one file in WAL mode, many readers, one writer at a time."""

import errno
import fcntl
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import QueuePool

from trainyard.foundation.errors import Corrupt, LimitExceeded, TrainyardError, Unavailable
from trainyard.server.records.database import T, Work, translate_errors

BUSY_TIMEOUT_S = 15.0
# The pool opens more while more threads read at once, and closes them afterwards.
POOLED_CONNECTIONS = 8

_REMEDIES = {
    "SQLITE_FULL": "the disk is full; free some space there and try again",
    "SQLITE_READONLY": "it is read-only; make the file and its folder writable for the user that runs the yard",
    "SQLITE_PERM": "the user that runs the yard may not use it; correct its owner or mode",
    "SQLITE_CANTOPEN": "it cannot be opened; check that its folder exists and belongs to the user that runs the yard",
    "SQLITE_BUSY": "another process has locked it for too long; end that process or try again",
    "SQLITE_LOCKED": "another process has locked it for too long; end that process or try again",
    "SQLITE_IOERR": "reading or writing it failed; check the disk and its free space, then try again",
    "SQLITE_NOMEM": "there is too little memory; free some and try again",
}


class SqliteDatabase:
    """Gives every working thread its own connection, and lets one thread write at a time."""

    def __init__(self, url: str) -> None:
        self._path = Path(url.removeprefix("sqlite:///"))
        self.title = str(self._path)
        # Writers in this process wait for this lock, which is fair and fast. SQLite itself would poll.
        self._writer = threading.Lock()
        self.engine = create_engine(
            "sqlite+pysqlite://",
            creator=self._connect,
            poolclass=QueuePool,
            pool_size=POOLED_CONNECTIONS,
            max_overflow=-1,
            pool_use_lifo=True,
        )
        if not self._has_content():
            self._initialize()

    def read(self, work: Work[T]) -> T:
        with self._translate_errors(), self.engine.connect() as connection:
            return work(connection)

    def write(self, work: Work[T]) -> T:
        if not self._writer.acquire(timeout=BUSY_TIMEOUT_S):
            raise Unavailable(f"{self.title} is busy with other writes; try again.")
        try:
            with self._translate_errors(), self.engine.connect() as connection:
                # Not deferred: a transaction that reads first and then cannot write would have to start again.
                connection.exec_driver_sql("BEGIN IMMEDIATE")
                result = work(connection)
                connection.commit()
                return result
        finally:
            self._writer.release()

    def write_once(self, work: Work[T]) -> T:
        return self.write(work)

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        with self._translate_errors(), self.engine.connect() as connection:
            connection.exec_driver_sql("BEGIN")
            yield connection

    def close(self) -> None:
        self.engine.dispose()

    def _has_content(self) -> bool:
        """Whether anything has been written to the file.

        Does not open it, because closing it again would drop the locks that other connections of this process have on
        it (https://www.sqlite.org/howtocorrupt.html, 2.2).
        """
        try:
            size = self._path.stat().st_size
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._unreadable(str(error.strerror)) from error
        if not os.access(self._path, os.R_OK, effective_ids=True):
            raise self._unreadable(os.strerror(errno.EACCES))
        return size > 0

    def _initialize(self) -> None:
        """Create the file and set WAL mode, in one process at a time.

        If two processes change the mode at once, SQLite tells the second that the file is locked, whatever its timeout.
        """
        try:
            with _lock_folder(self._path.parent) as folder:
                self._create_file(folder)
                if not self._has_content():
                    self.read(lambda connection: connection.exec_driver_sql("PRAGMA journal_mode = WAL"))
        except OSError as error:
            raise Unavailable(f"{self.title} cannot be created ({error.strerror}); check its folder.") from error

    def _create_file(self, folder: int) -> None:
        """Create the file before SQLite does, for the owner only. SQLite gives its side files the same mode."""
        try:
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return
        os.fsync(folder)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path,
            timeout=BUSY_TIMEOUT_S,
            # Transactions start only where this module says BEGIN.
            isolation_level=None,
            # The pool gives a connection to one thread at a time.
            check_same_thread=False,
            cached_statements=256,
        )
        try:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _translate_errors(self) -> AbstractContextManager[None]:
        return translate_errors(self.title, self._translate)

    def _translate(self, error: DBAPIError) -> TrainyardError | None:
        name: str = getattr(error.orig, "sqlite_errorname", "")
        primary = "_".join(name.split("_")[:2])
        if primary in ("SQLITE_CORRUPT", "SQLITE_NOTADB"):
            return self._corrupt(str(error.orig))
        if primary == "SQLITE_TOOBIG":
            return LimitExceeded("The value is larger than the database can store; make it smaller.")
        if primary in _REMEDIES:
            return Unavailable(f"{self.title}: {_REMEDIES[primary]} ({error.orig}).")
        return None

    def _unreadable(self, why: str) -> Unavailable:
        return Unavailable(f"{self.title} cannot be read ({why}); check its owner and mode.")

    def _corrupt(self, why: str) -> Corrupt:
        return Corrupt(f"{self.title} is damaged: {why}. Stop the yard and run `trainyard restore BACKUP`.")


@contextmanager
def _lock_folder(folder: Path) -> Iterator[int]:
    """Open a folder and hold an exclusive lock on it. Yield its descriptor."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)

"""One SQLite file shared by many threads: reads run concurrently, writes share commits."""

import json
import sqlite3
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import TypeVar, cast

from trainyard.foundation.errors import Corrupt, InvalidRequest, TrainyardError, Unavailable

T = TypeVar("T")
Parameters = Sequence[object] | dict[str, object]
Work = Callable[[sqlite3.Connection], T]

# Transactions in one commit.
_MAX_BATCH = 256
# A write-ahead log that grew under load is truncated to this size.
_MAX_JOURNAL_BYTES = 64 << 20
# How long to wait for another process that writes.
_BUSY_TIMEOUT_S = 20.0


class DiskFull(Unavailable):
    """There is no space for the change."""


class Database:
    """Opens a database of one version, or creates it from `schema`.

    Every change is durable when `write` returns: WAL mode, synchronised at each commit. Threads that write at the same
    time share one commit and its cost. Raises Unavailable if the disk is full or read-only, Corrupt if the file is not
    a readable database, and InvalidRequest if a newer version created it.
    """

    def __init__(
        self,
        path: Path,
        *,
        schema: str,
        version: int,
        additions: Mapping[str, str] = MappingProxyType({}),
        first_version: int = 0,
        erases: bool = False,
    ) -> None:
        """`additions` are tables added later, by name, with the script that creates each.

        They do not change the version, so that older releases can still open the file. A new file gets the
        `first_version`, if one is given, until `raise_version`. With `erases`, deleted rows are overwritten in the
        file; `empty_journal` erases them from the journal, too.
        """
        self._path = path
        self._erases = erases
        self._queue: deque[_QueuedWrite] = deque()
        self._queue_lock = Lock()
        self._has_leader = False
        self._deferred: list[Work[object]] = []
        self._connections: list[sqlite3.Connection] = []
        self._idle: deque[sqlite3.Connection] = deque()
        try:
            with self._translate_errors():
                self._writer = self._connect()
                self._version = version
                self._prepare(schema, first_version or version)
                self._add_tables(additions)
        except TrainyardError:
            self._close_connections()
            raise

    def row(self, statement: str, parameters: Parameters, *, read: Callable[..., T]) -> T | None:
        """Return `read` of the columns of the first row; None if there is no row."""
        with self.reading() as connection:
            row = connection.execute(statement, parameters).fetchone()
        return None if row is None else read(*row)

    def rows(self, statement: str, parameters: Parameters, *, read: Callable[..., T]) -> list[T]:
        """Return `read` of the columns of each row. The statement must return all rows as one JSON text of lists.

        The `sqlite3` module releases the GIL at every row and waits to get it back: beside two busy threads, a page of
        1,000 keys took 500 ms instead of 1.4.
        """
        text = self.row(statement, parameters, read=str)
        assert text is not None, "an aggregate always has one row"
        return [read(*row) for row in json.loads(text)]

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection for exclusive use, for several statements or many rows."""
        try:
            connection = self._idle.pop()
        except IndexError:
            with self._translate_errors():
                connection = self._connect()
        try:
            yield connection
        except sqlite3.Error as error:
            raise translate_error(error, self._path) from error
        finally:
            self._idle.append(connection)

    def write(self, work: Work[T]) -> T:
        """Run `work` in a transaction and return its result once that is durable.

        `work` must read before it changes anything: if it raises a TrainyardError, it must have changed nothing.
        """
        entry = _QueuedWrite(work)
        if not self._enqueue(entry):
            # Wait for the result, or for our turn to lead the next commit.
            entry.turn.acquire()
        if not entry.has_ended:
            self._lead_commit(entry)
        return cast(T, entry.outcome())

    def write_later(self, work: Work[object]) -> None:
        """Run `work` with the next commit. Only for changes that may be lost."""
        with self._queue_lock:
            self._deferred.append(work)

    def raise_version(self) -> None:
        """Make the file unreadable for releases that do not know the version of this one."""
        if self.row("PRAGMA user_version", (), read=int) != self._version:
            self.write(lambda writer: writer.execute(f"PRAGMA user_version = {self._version}"))

    def empty_journal(self) -> None:
        """Write all changes to the file itself, and truncate the journal, which has the rows as they were before."""
        with self.reading() as connection:
            is_busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if is_busy:
            raise Unavailable(f"{self._path} is in use; its journal cannot be emptied now.")

    @property
    def waiting(self) -> int:
        """How many transactions wait for the next commit."""
        return len(self._queue)

    def back_up(self, target: Path) -> None:
        """Copy one consistent state to a new file."""
        with self.reading() as connection:
            copy = sqlite3.connect(target)
            try:
                connection.backup(copy)
            finally:
                copy.close()

    def close(self) -> None:
        if self._deferred:
            with suppress(TrainyardError):
                self.write(lambda _: None)
        self._close_connections()

    def _close_connections(self) -> None:
        with suppress(sqlite3.Error):
            for connection in self._connections:
                connection.close()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        self._connections.append(connection)
        connection.execute("PRAGMA synchronous = FULL")
        if self._erases:
            connection.execute("PRAGMA secure_delete = ON")
        return connection

    def _prepare(self, schema: str, version: int) -> None:
        writer = self._writer
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute(f"PRAGMA journal_size_limit = {_MAX_JOURNAL_BYTES}")
        if writer.execute("PRAGMA user_version").fetchone()[0] == 0:
            writer.executescript(f"BEGIN IMMEDIATE; {schema} PRAGMA user_version = {version}; COMMIT;")
        found: int = writer.execute("PRAGMA user_version").fetchone()[0]
        if found > self._version:
            writer.close()
            raise InvalidRequest(
                f"{self._path} was created by a newer Trainyard (its version is {found}, this one supports "
                f"{self._version}). "
                "Upgrade Trainyard. Nothing was changed."
            )

    def _add_tables(self, additions: Mapping[str, str]) -> None:
        for table, script in additions.items():
            if not self._has_table(table):
                self._writer.execute("BEGIN IMMEDIATE")
                try:
                    # Another process may have been first.
                    if not self._has_table(table):
                        for statement in _statements(script):
                            self._writer.execute(statement)
                    self._writer.execute("COMMIT")
                except BaseException:
                    self._writer.execute("ROLLBACK")
                    raise

    def _has_table(self, name: str) -> bool:
        found = self._writer.execute("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", (name,))
        return found.fetchone() is not None

    def _enqueue(self, entry: "_QueuedWrite") -> bool:
        """Queue a write; return whether the caller leads the next commit."""
        with self._queue_lock:
            self._queue.append(entry)
            leads = not self._has_leader
            self._has_leader = True
            return leads

    def _lead_commit(self, own: "_QueuedWrite") -> None:
        """Commit the queued writes, pass the lead to the next in the queue, and wake the waiting threads."""
        with self._queue_lock:
            batch = [self._queue.popleft() for _ in range(min(_MAX_BATCH, len(self._queue)))]
            deferred, self._deferred = self._deferred, []
        try:
            self._commit(batch, deferred)
        finally:
            with self._queue_lock:
                if self._queue:
                    self._queue[0].turn.release()
                else:
                    self._has_leader = False
            for entry in batch:
                entry.has_ended = True
                if entry is not own:
                    entry.turn.release()

    def _commit(self, batch: Sequence["_QueuedWrite"], deferred: Sequence[Work[object]]) -> None:
        writer = self._writer
        try:
            writer.execute("BEGIN IMMEDIATE")
            for entry in batch:
                entry.run(writer)
            for work in deferred:
                work(writer)
            writer.execute("COMMIT")
        except BaseException as error:
            with suppress(sqlite3.Error):
                writer.execute("ROLLBACK")
            for entry in batch:
                entry.fail(error, self._path)
            if not isinstance(error, Exception):
                raise

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise translate_error(error, self._path) from error


def _statements(script: str) -> Iterator[str]:
    """Yield the statements of a script one by one, because `executescript` would end the transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def translate_error(error: sqlite3.Error, path: Path) -> Exception:
    """Translate an SQLite error to ours; return it unchanged if it is a bug."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return Corrupt(
            f"{path} is damaged ({error}). Stop the yard and restore a backup with `trainyard restore`; "
            "the data files beside it were not changed."
        )
    if code == sqlite3.SQLITE_FULL:
        return DiskFull(f"The disk of {path} is full. Free some space, then try again.")
    if code == sqlite3.SQLITE_READONLY:
        return Unavailable(f"Cannot write {path}: its disk or the file is read-only. Make it writable, then try again.")
    if code in _TRANSIENT_CODES:
        return Unavailable(f"{path} is unavailable ({error}). Check its disk and try again.")
    return error


_TRANSIENT_CODES = frozenset(
    {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOMEM}
    | {sqlite3.SQLITE_PERM, sqlite3.SQLITE_PROTOCOL}
)


class _QueuedWrite:
    """A transaction in the queue for the next commit."""

    __slots__ = ("_error", "_result", "_work", "has_ended", "turn")

    def __init__(self, work: Work[object]) -> None:
        self.turn = Lock()
        self.turn.acquire()
        self.has_ended = False
        self._work = work
        self._result: object = None
        self._error: Exception | None = None

    def run(self, writer: sqlite3.Connection) -> None:
        before = writer.total_changes
        try:
            self._result = self._work(writer)
        except TrainyardError as error:
            # No savepoint: it would cost every transaction two statements to serve the few that fail.
            assert writer.total_changes == before, f"{self._work} changed the database before it raised"
            self._error = error

    def fail(self, error: BaseException, path: Path) -> None:
        """End with the error of the whole commit, as a new exception, since each is raised in another thread."""
        if self._error is not None:
            return
        if isinstance(error, sqlite3.Error):
            self._error = translate_error(error, path)
        else:
            self._error = Unavailable(f"A commit to {path} was interrupted ({error!r}); try again.")
        self._error.__cause__ = error

    def outcome(self) -> object:
        if self._error is not None:
            raise self._error
        return self._result

"""One SQLite file shared by many threads: reads run side by side, writes share their commits."""

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

_BATCH = 256  # transactions in one commit
_JOURNAL_BYTES = 64 << 20  # what a write-ahead log that grew under load is cut to afterwards
_BUSY_S = 20.0  # how long to wait for another process that writes


class DiskFull(Unavailable):
    """There is no space for the change."""


class Database:
    """Opens, or makes from `schema`, a database of one version.

    Every change is durable when `write` returns: WAL mode, synchronised at each commit. Transactions of threads that
    write at the same time go into one commit, whose cost they share. Raises Unavailable when the disk is full or
    read-only, Corrupt when the file cannot be read as a database, InvalidRequest when a newer version made it.
    """

    def __init__(
        self, path: Path, *, schema: str, version: int, additions: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """`additions` are tables that came later, each by its name with the script that makes it.

        They leave the version as it is, so that what was made for it can still open the file.
        """
        self._path = path
        self._queue: deque[_Entry] = deque()
        self._queue_lock = Lock()
        self._is_led = False
        self._later: list[Work[object]] = []
        self._connections: list[sqlite3.Connection] = []
        self._idle: deque[sqlite3.Connection] = deque()
        with self._explained():
            self._writer = self._connect()
            self._prepare(schema, version)
            self._add(additions)

    def row(self, statement: str, parameters: Parameters, *, read: Callable[..., T]) -> T | None:
        """What `read` makes of the columns of the first row of the newest commit; None when there is no row."""
        with self.reading() as connection:
            row = connection.execute(statement, parameters).fetchone()
        return None if row is None else read(*row)

    def listed(self, statement: str, parameters: Parameters, *, read: Callable[..., T]) -> list[T]:
        """What `read` makes of the columns of each row, which leave the statement as one JSON text of lists.

        The `sqlite3` module gives up the interpreter lock at every row and waits for its turn again, which beside two
        busy threads made a page of 1,000 keys cost 500 ms instead of 1.4.
        """
        text = self.row(statement, parameters, read=str)
        assert text is not None, "an aggregate always has one row"
        return [read(*row) for row in json.loads(text)]

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection of one's own, for several statements or many rows."""
        try:
            connection = self._idle.pop()
        except IndexError:
            with self._explained():
                connection = self._connect()
        try:
            yield connection
        except sqlite3.Error as error:
            raise explain(error, self._path) from error
        finally:
            self._idle.append(connection)

    def write(self, work: Work[T]) -> T:
        """Run `work` in a transaction and return its result once that is durable.

        `work` looks first and changes afterwards: when it raises one of our errors, it must have changed nothing.
        """
        entry = _Entry(work)
        if not self._enqueue(entry):
            entry.turn.acquire()  # until the result is there, or it is our turn to lead
        if not entry.has_ended:
            self._lead(entry)
        return cast(T, entry.outcome())

    def write_later(self, work: Work[object]) -> None:
        """Let `work` ride with the next commit. Only for changes that may be lost."""
        with self._queue_lock:
            self._later.append(work)

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
        if self._later:
            with suppress(TrainyardError):
                self.write(lambda _: None)
        with suppress(sqlite3.Error):
            for connection in self._connections:
                connection.close()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA synchronous = FULL")
        self._connections.append(connection)
        return connection

    def _prepare(self, schema: str, version: int) -> None:
        writer = self._writer
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute(f"PRAGMA journal_size_limit = {_JOURNAL_BYTES}")
        if writer.execute("PRAGMA user_version").fetchone()[0] == 0:
            writer.executescript(f"BEGIN IMMEDIATE; {schema} PRAGMA user_version = {version}; COMMIT;")
        found: int = writer.execute("PRAGMA user_version").fetchone()[0]
        if found > version:
            writer.close()
            raise InvalidRequest(
                f"{self._path} was made by a newer Trainyard (its version is {found}, this one knows {version}); "
                "upgrade Trainyard. Nothing was changed."
            )

    def _add(self, additions: Mapping[str, str]) -> None:
        for table, script in additions.items():
            if not self._has_table(table):
                self._writer.execute("BEGIN IMMEDIATE")
                try:
                    if not self._has_table(table):  # another process may have been first
                        for statement in _statements(script):
                            self._writer.execute(statement)
                    self._writer.execute("COMMIT")
                except BaseException:
                    self._writer.execute("ROLLBACK")
                    raise

    def _has_table(self, name: str) -> bool:
        found = self._writer.execute("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", (name,))
        return found.fetchone() is not None

    def _enqueue(self, entry: "_Entry") -> bool:
        """Whether the caller leads the next commit."""
        with self._queue_lock:
            self._queue.append(entry)
            leads = not self._is_led
            self._is_led = True
            return leads

    def _lead(self, own: "_Entry") -> None:
        """Commit what has queued up, pass the lead to the first that came since, and wake those who waited."""
        with self._queue_lock:
            batch = [self._queue.popleft() for _ in range(min(_BATCH, len(self._queue)))]
            later, self._later = self._later, []
        try:
            self._commit(batch, later)
        finally:
            with self._queue_lock:
                if self._queue:
                    self._queue[0].turn.release()
                else:
                    self._is_led = False
            for entry in batch:
                entry.has_ended = True
                if entry is not own:
                    entry.turn.release()

    def _commit(self, batch: Sequence["_Entry"], later: Sequence[Work[object]]) -> None:
        writer = self._writer
        try:
            writer.execute("BEGIN IMMEDIATE")
            for entry in batch:
                entry.run(writer)
            for work in later:
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
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise explain(error, self._path) from error


def _statements(script: str) -> Iterator[str]:
    """The statements of a script one by one, because `executescript` would end the transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def explain(error: sqlite3.Error, path: Path) -> Exception:
    """What SQLite says, in the yard's words; the error itself when it is a mistake of ours."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return Corrupt(
            f"{path} is damaged ({error}). Stop the yard and bring back a backup with `trainyard restore`; "
            "the data files beside it were not touched."
        )
    if code == sqlite3.SQLITE_FULL:
        return DiskFull(f"The disk of {path} is full. Free some space, then try again.")
    if code == sqlite3.SQLITE_READONLY:
        return Unavailable(
            f"{path} cannot be written: its disk or the file is read-only. Make it writable, then try again."
        )
    if code in _PASSING:
        return Unavailable(f"{path} cannot be used now ({error}). Check its disk and try again.")
    return error


_PASSING = frozenset(
    {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOMEM}
    | {sqlite3.SQLITE_PERM, sqlite3.SQLITE_PROTOCOL}
)


class _Entry:
    """One transaction that waits for its commit."""

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
            # No savepoint: it would cost every transaction two statements for the sake of the few that fail.
            assert writer.total_changes == before, f"{self._work} changed the database before it raised"
            self._error = error

    def fail(self, error: BaseException, path: Path) -> None:
        """End with what ended the whole commit, in an error of its own, for each is raised in another thread."""
        if self._error is not None:
            return
        if isinstance(error, sqlite3.Error):
            self._error = explain(error, path)
        else:
            self._error = Unavailable(f"A commit to {path} was cut short ({error!r}); try again.")
        self._error.__cause__ = error

    def outcome(self) -> object:
        if self._error is not None:
            raise self._error
        return self._result

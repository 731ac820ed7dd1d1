"""PostgreSQL through psycopg. Several yards may share one database."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from trainyard.foundation.errors import Corrupt, InvalidRequest, LimitExceeded, TrainyardError, Unavailable
from trainyard.server.records.database import T, Work, translate_errors

POOLED_CONNECTIONS = 5
EXTRA_CONNECTIONS = 10
CONNECT_TIMEOUT_S = 10
LOCK_TIMEOUT_S = 15
ATTEMPTS = 3

# https://www.postgresql.org/docs/current/errcodes-appendix.html
_LOST_RACE = ("40001", "40P01")
_REMEDIES = {
    "53100": "its disk is full; free some space there and try again",
    "53": "it has no connections or memory left; close other clients or raise its limits, then try again",
    "55P03": "another transaction has locked a row for too long; try again",
    "57014": "it took too long and was cancelled; try again",
    "57P": "it is shutting down or starting; try again when it is up",
    "25006": "it is read-only (a standby?); give the address of the primary",
    "42501": "its user may not do this; grant it the schema",
}


class PostgresDatabase:
    """Reads in autocommit mode and writes in read-committed transactions, through one small pool."""

    def __init__(self, url: str) -> None:
        address = _address(url)
        self.title = address.set(drivername="postgresql").render_as_string(hide_password=True)
        self.engine = _engine(address)
        self._reader = self.engine.execution_options(isolation_level="AUTOCOMMIT")

    def read(self, work: Work[T]) -> T:
        return self._attempt(lambda: self._run(self._reader, work))

    def write(self, work: Work[T]) -> T:
        return self._attempt(lambda: self._run(self.engine, work))

    def write_once(self, work: Work[T]) -> T:
        with self._translate_errors():
            return self._run(self.engine, work)

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        options = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        with self._translate_errors(), self.engine.connect().execution_options(**options) as connection:
            yield connection

    def close(self) -> None:
        self.engine.dispose()

    def _attempt(self, run: Callable[[], T]) -> T:
        """Retry work that a lost race or a dead connection interrupted before its commit."""
        with self._translate_errors():
            for _ in range(ATTEMPTS - 1):
                try:
                    return run()
                except DBAPIError as error:
                    if not (error.connection_invalidated or _state(error) in _LOST_RACE):
                        raise
            return run()

    def _run(self, engine: Engine, work: Work[T]) -> T:
        with engine.connect() as connection:
            result = work(connection)
            self._commit(connection)
            return result

    def _commit(self, connection: Connection) -> None:
        try:
            connection.commit()
        except DBAPIError as error:
            if not error.connection_invalidated:
                raise
            # The answer to the commit was lost, so it may have succeeded. A retry could apply the work twice.
            raise Unavailable(
                f"The connection to {self.title} broke during a commit; check whether it took effect, then try again."
            ) from error

    def _translate_errors(self) -> AbstractContextManager[None]:
        return translate_errors(self.title, self._translate)

    def _translate(self, error: DBAPIError) -> TrainyardError | None:
        state = _state(error)
        if state.startswith("XX"):
            return Corrupt(
                f"{self.title} is damaged: {error.orig}. Stop the yard, give it an empty database and run "
                "`trainyard restore BACKUP`."
            )
        if state.startswith("54"):
            return LimitExceeded("A name, an ARN or a tag is longer than the database can index; make it shorter.")
        for known, remedy in _REMEDIES.items():
            if state.startswith(known):
                return Unavailable(f"{self.title}: {remedy} ({error.orig}).")
        if not state or state.startswith("08"):
            return Unavailable(f"{self.title} cannot be reached ({error.orig}); check the URL and that it runs.")
        return None


def _address(url: str) -> URL:
    try:
        return make_url(url).set(drivername="postgresql+psycopg")
    except (ArgumentError, ValueError) as error:
        raise InvalidRequest("The URL of the records cannot be read; write postgresql://USER@HOST/DATABASE.") from error


def _engine(address: URL) -> Engine:
    defaults: dict[str, Any] = {
        "connect_timeout": CONNECT_TIMEOUT_S,
        "application_name": "trainyard",
        "options": f"-c lock_timeout={LOCK_TIMEOUT_S}s",
        # A prepared statement has one plan for all values, which is wrong for a rare kind or status.
        "prepare_threshold": None,
    }
    try:
        return create_engine(
            address,
            connect_args={name: value for name, value in defaults.items() if name not in address.query},
            pool_size=POOLED_CONNECTIONS,
            max_overflow=EXTRA_CONNECTIONS,
            pool_use_lifo=True,
            # It would cost one query per new connection.
            use_native_hstore=False,
        )
    except ImportError as error:
        raise InvalidRequest(
            'Records in PostgreSQL need psycopg, which is not installed; run `pip install "trainyard[postgres]"`.'
        ) from error


def _state(error: DBAPIError) -> str:
    return getattr(error.orig, "sqlstate", None) or ""

"""A real PostgreSQL server for tests, in a temporary folder and reached by a unix socket only."""

import contextlib
import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0

SUPERUSER = "postgres"
PR_SET_PDEATHSIG = 1


class PostgresMissing(Exception):
    """This machine cannot run PostgreSQL; the message says why, in words for a skipped test."""


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A running server whose databases are the caller's to make."""

    folder: Path
    process: subprocess.Popen[bytes]

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://{SUPERUSER}@/{database}?host={self.folder}"

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        """The URL of a database of its own, dropped afterwards with whoever is still connected."""
        name = f"test_{uuid.uuid4().hex}"
        self.execute(f"CREATE DATABASE {name}")
        try:
            yield self.url(name)
        finally:
            self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def execute(self, statement: str) -> None:
        import psycopg  # here, so that the module can be imported where psycopg is absent, and the tests skipped

        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement.encode())


@contextlib.contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """Start a server and stop it at the end; PostgresMissing where that cannot be done."""
    programs = _programs()
    owner = _owner()
    # Short, because the path of a unix socket may have no more than 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="ty-pg-", dir="/tmp"))
    try:
        os.chown(folder, owner.pw_uid, owner.pw_gid)
        _initialise(programs, folder, owner=owner)
        process = _start(programs, folder, owner=owner)
        try:
            server = PostgresServer(folder, process)
            _wait_until_ready(server)
            yield server
        finally:
            _stop(process)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _programs() -> Path:
    """The folder of initdb and postgres; the newest where Debian keeps several."""
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise PostgresMissing('psycopg is not installed; pip install "trainyard[postgres]"') from error
    on_path = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: path.parent.name, reverse=True)
    for folder in (*on_path, *debian):
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder.resolve()
    raise PostgresMissing("PostgreSQL is not installed here; on Debian, apt-get install postgresql")


def _owner() -> pwd.struct_passwd:
    """Whom to run as: PostgreSQL refuses root, and anyone else runs it as themselves."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid())
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise PostgresMissing("PostgreSQL refuses to run as root, and there is neither a user postgres nor nobody")


def _initialise(programs: Path, folder: Path, *, owner: pwd.struct_passwd) -> None:
    """Make the server's files; in English order where it can, so that code which relies on the order of bytes fails."""
    command = [str(programs / "initdb"), "-D", str(folder / "data"), "-U", SUPERUSER]
    command += ["-A", "trust", "-E", "UTF8", "--no-sync"]
    for order in ("--locale-provider=icu --icu-locale=en-US", ""):  # the first since PostgreSQL 15
        done = subprocess.run(
            command + order.split(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd="/",
            check=False,
            **_identity(owner),
        )
        if done.returncode == 0:
            return
    raise PostgresMissing(f"initdb failed: {done.stdout.decode(errors='replace').strip()}")


def _start(programs: Path, folder: Path, *, owner: pwd.struct_passwd) -> subprocess.Popen[bytes]:
    options = {"listen_addresses": "", "unix_socket_directories": folder, "fsync": "off"}
    flags = [flag for name, value in options.items() for flag in ("-c", f"{name}={value}")]
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            [programs / "postgres", "-D", folder / "data", *flags],
            stdout=log,
            stderr=log,
            cwd="/",
            preexec_fn=_end_with_parent,
            **_identity(owner),
        )


def _identity(owner: pwd.struct_passwd) -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    return {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}


def _end_with_parent() -> None:
    """Ask the kernel for an interrupt, PostgreSQL's quick shutdown, when the tests are killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGINT)


def _wait_until_ready(server: PostgresServer) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            server.execute("SELECT 1")
            return
        except Exception as error:
            if server.process.poll() is not None or time.monotonic() > deadline:
                log = (server.folder / "log").read_text(errors="replace")
                raise PostgresMissing(f"PostgreSQL did not start: {log.strip()}") from error
        time.sleep(0.02)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

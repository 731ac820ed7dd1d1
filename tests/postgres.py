"""A real PostgreSQL server for tests, in a temporary folder and with a unix socket only."""

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
    """This machine cannot run PostgreSQL; the message says why, as the reason of a skipped test."""


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A running server without databases."""

    folder: Path
    process: subprocess.Popen[bytes]

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://{SUPERUSER}@/{database}?host={self.folder}"

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        """Create a database and provide its URL. Drop it afterwards and close its connections."""
        name = f"test_{uuid.uuid4().hex}"
        self.execute(f"CREATE DATABASE {name}")
        try:
            yield self.url(name)
        finally:
            self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def execute(self, statement: str) -> None:
        # Imported here, so that tests are skipped where psycopg is missing.
        import psycopg

        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement.encode())


@contextlib.contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """Run a server for the length of a block, or raise PostgresMissing."""
    programs = _programs()
    owner = _owner()
    # A short path, because that of a unix socket may have 107 bytes at most.
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
    """Return the folder of initdb and postgres; the newest if Debian has several."""
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
    """Return the user to run as: this one, unless it is root, which PostgreSQL refuses."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid())
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise PostgresMissing("PostgreSQL refuses to run as root, and there is neither a user postgres nor nobody")


def _initialise(programs: Path, folder: Path, *, owner: pwd.struct_passwd) -> None:
    """Create the files of the server, with English collation if possible: code that relies on byte order then fails."""
    command = [str(programs / "initdb"), "-D", str(folder / "data"), "-U", SUPERUSER]
    command += ["-A", "trust", "-E", "UTF8", "--no-sync"]
    # ICU needs PostgreSQL 15.
    for order in ("--locale-provider=icu --icu-locale=en-US", ""):
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
    """Let the kernel send an interrupt, which shuts PostgreSQL down quickly, when the tests are killed."""
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

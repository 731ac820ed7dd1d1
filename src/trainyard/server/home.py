"""Opens a home folder: creates it if needed, checks it, and locks it for one yard at a time."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainyard import __version__
from trainyard.foundation.errors import Conflict, InvalidRequest, Unavailable
from trainyard.foundation.files import PRIVATE_FILE, PRIVATE_FOLDER, replace_file
from trainyard.foundation.home import FORMAT, Credentials, Home, HomeVersion, Runtime

__all__ = ["Credentials", "Home", "Runtime", "lock_home", "open_home"]


def open_home(path: Path) -> Home:
    """Open the home folder at `path`, and create its layout on first use.

    InvalidRequest, with nothing changed, when a newer version created it, when the folder holds something else, or when
    it cannot be written; Unavailable when its disk is full.
    """
    home = Home(path.expanduser().absolute())
    version = home.check()
    try:
        _create_layout(home, version)
    except OSError as error:
        raise _home_error(home, error) from error
    return home


@contextmanager
def lock_home(home: Home) -> Iterator[None]:
    """Lock the home until the block ends or the process dies. Conflict while another process has it."""
    descriptor = os.open(home.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Conflict("home folder", str(home.root), _holder(home)) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _create_layout(home: Home, version: HomeVersion | None) -> None:
    home.root.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    _check_writable(home)
    if version is None:
        home.root.chmod(PRIVATE_FOLDER)
        home.write_version(HomeVersion(FORMAT, __version__))
    for folder in home.folders:
        folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)


def _check_writable(home: Home) -> None:
    """Find out now, and not at the first call, whether the disk is full or read-only."""
    trial = home.root / "trial"
    replace_file(trial, os.urandom(64 * 1024))
    trial.unlink()


def _home_error(home: Home, error: OSError) -> InvalidRequest | Unavailable:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Unavailable(f"The disk of {home.root} is full; free some space, or choose another folder with --home.")
    why = f"{home.root} cannot be written ({error.strerror})"
    return InvalidRequest(f"The home folder {why}; make it writable, or choose another with --home.")


def _holder(home: Home) -> str:
    pid = home.lock_file.read_text().strip() or "unknown"
    runtime = home.runtime()
    where = f" at {runtime.http}" if runtime is not None else ""
    return f"is in use by process {pid}{where}; stop it with `trainyard down`, or choose another folder with --home"

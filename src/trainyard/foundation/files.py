"""Files that are replaced whole or not at all, and folders that one process has to itself."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700


def replace_file(path: Path, data: bytes, *, mode: int = PRIVATE_FILE) -> None:
    """Write a file so that a reader, also after a power cut, sees the old bytes or the new ones.

    The bytes go to `<name>.new` first; a crash may leave that behind, and the next write takes it over.
    """
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)  # the umask may have taken bits away
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path, *, parents: bool = False) -> None:
    """Make a folder for its owner alone, if it is not there; its name is durable when this returns.

    With `parents`, folders above it that are missing are made likewise.
    """
    if folder.is_dir():
        return
    if parents:
        make_folder(folder.parent, parents=True)
    folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
    sync_folder(folder.parent)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Wait for a folder and have it alone for the length of a block, of all threads and processes that ask so."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)

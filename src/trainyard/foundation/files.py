"""Atomic file replacement, private folders, and folder locks.

Clients use this module on systems other than Linux too, where a folder can be neither synced nor locked.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700

# Windows has no O_CLOEXEC, since programs inherit no descriptors there, and would translate line ends without O_BINARY.
_WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def replace_file(path: Path, data: bytes, *, mode: int = PRIVATE_FILE) -> None:
    """Write a file so that a reader sees the old bytes or the new ones, even after a power cut.

    The bytes go to `<name>.new` first. A crash may leave that file behind; the next write replaces it.
    """
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, _WRITE_FLAGS, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            # The umask may have removed some bits. On Windows, a user's folders are private.
            if hasattr(os, "fchmod"):
                os.fchmod(file.fileno(), mode)
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
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path, *, parents: bool = False) -> None:
    """Create a folder that only its owner can enter, if missing; its name is durable when this returns.

    With `parents`, missing folders above it are created in the same way.
    """
    if folder.is_dir():
        return
    if parents:
        make_folder(folder.parent, parents=True)
    folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
    sync_folder(folder.parent)


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock on a folder, against all threads and processes that use this function."""
    try:
        import fcntl
    except ModuleNotFoundError:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)

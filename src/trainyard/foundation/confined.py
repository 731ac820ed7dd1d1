"""Opening what a program left in its folder, without being led out of it.

The agent may be root, and a program may have put a link to any place where a folder or a file was.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe must not block


@contextmanager
def open_folder(root: Path, path: str) -> Iterator[int | None]:
    """A descriptor of a folder below a trusted one; None when it is not there, or is no folder all the way."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in path.split("/"):
            try:
                inner = _open(name, _FOLDER, descriptor)
            except OSError:
                yield None
                return
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def open_inner(name: str, folder: int) -> int:
    """A descriptor of a folder in an open folder; OSError when it is a link, or no folder."""
    return _open(name, _FOLDER, folder)


def open_file(name: str, folder: int) -> int:
    """A descriptor of a file in an open folder; OSError when it is a link, or no file."""
    descriptor = _open(name, _FILE, folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "It is not a file", name)
    return descriptor


def read_text(root: Path, path: str, *, limit_bytes: int) -> str | None:
    """The beginning of a file below a trusted folder; None when it is not there, or is not a file."""
    parent, _, name = path.rpartition("/")
    with open_folder(root, parent) as folder:
        if folder is None:
            return None
        try:
            descriptor = open_file(name, folder)
        except OSError:
            return None
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            return (file.read(limit_bytes) or b"").decode(errors="replace")


def replace_text(root: Path, path: str, text: str) -> bool:
    """Write a file below a trusted folder, whole or not at all; whether its folder was there. OSError of the disk."""
    parent, _, name = path.rpartition("/")
    new = f".{name}.new"
    with open_folder(root, parent) as folder:
        if folder is None:
            return False
        with suppress(FileNotFoundError):
            os.unlink(new, dir_fd=folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(new, flags, 0o644, dir_fd=folder), "w") as file:
            file.write(text)
        os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)
    return True


def _open(name: str, flags: int, folder: int) -> int:
    """Open what may have been closed to everybody; only a link is refused for other reasons, so none is followed."""
    try:
        return os.open(name, flags, dir_fd=folder)
    except PermissionError:
        os.chmod(name, 0o700, dir_fd=folder)
        return os.open(name, flags, dir_fd=folder)

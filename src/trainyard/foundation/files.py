"""Files that are replaced whole or not at all, and folders that go whatever is in them."""

import os
from pathlib import Path

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_NAMES = 10_000  # of folders in one that are kept in mind


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


def remove_tree(folder: Path) -> None:
    """Remove a folder, if it is there, in which a program may have done what it liked, and which nobody changes now.

    It may be deeper than a path can be long, and lack the rights to enter it. Links are removed, never followed. Files
    keep their rights: they are removed without any, and may be shared with others.
    """
    try:
        descriptor = _enter(str(folder))
    except FileNotFoundError:
        return
    # One folder at a time is open, because there may be more on the way than a process can hold open or stack up.
    inner = [_clear(descriptor)]
    try:
        while inner:
            if inner[-1]:
                descriptor = _moved(descriptor, _enter(inner[-1][-1], descriptor))
                inner.append(_clear(descriptor))
            elif again := _clear(descriptor):
                inner[-1] = again
            else:
                inner.pop()
                if inner:
                    descriptor = _moved(descriptor, os.open("..", _FOLDER, dir_fd=descriptor))
                    os.rmdir(inner[-1].pop(), dir_fd=descriptor)
    finally:
        os.close(descriptor)
    folder.rmdir()


def _clear(folder: int) -> list[str]:
    """Remove what is no folder from an open one, and name folders in it: none only when there are none."""
    found: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.name, dir_fd=folder)
            elif len(found) < _MOST_NAMES:
                found.append(entry.name)
    return found


def _enter(name: str, parent: int | None = None) -> int:
    try:
        descriptor = os.open(name, _FOLDER, dir_fd=parent)
    except PermissionError:  # not of a link, which cannot be opened at all
        os.chmod(name, PRIVATE_FOLDER, dir_fd=parent)
        descriptor = os.open(name, _FOLDER, dir_fd=parent)
    os.fchmod(descriptor, PRIVATE_FOLDER)
    return descriptor


def _moved(old: int, new: int) -> int:
    os.close(old)
    return new

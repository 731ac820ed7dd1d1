"""File operations in a tree that a program could have written, by code with more rights than the program.

The agent may be root, and a program may have put a link, a pipe or a folder of its own wherever a file was expected,
and may change it again at any moment. So a folder that the program cannot replace is opened once, and all that lies
below it is reached from there name by name, each opened relative to the folder before it and never through a link.
Nothing is done twice by the same name: rights and owners are changed through the descriptor that was opened.

Names are resolved here and not by `openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS)`, which gives the same guarantee for
paths without "..": a folder that was closed to its own user has to be opened up on the way.
"""

import errno
import os
import socket
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PLACE = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_FOLDER = (errno.ENOTDIR, errno.ELOOP)  # what opening a link or a file as a folder fails with
_ENTER = stat.S_IRUSR | stat.S_IXUSR
_MOST_NAMES = 10_000  # of folders in one that are kept in mind while it is removed


class Entry(NamedTuple):
    """Something that a walk came to, with what is only valid until the next one.

    `above` are the names of the folders on the way, and `folder` is a descriptor of the one that it lies in.
    """

    name: str
    status: os.stat_result
    above: Sequence[str]
    folder: int

    def read(self, *, limit_bytes: int) -> bytes:
        """The beginning of a file; nothing of what is none."""
        return ConfinedFolder(self.folder).read(self.name, limit_bytes=limit_bytes) or b""


class ConfinedFolder:
    """An open folder, and what is done in it and below.

    Paths are relative to it, "" is the folder itself. OSError for everything that cannot be done, which is so where a
    part of a path is a link, and where a path has "..".
    """

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def open(cls, root: Path, below: str = "") -> Self:
        """The folder at a path below `root`, which no program can replace."""
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        if not below:
            return cls(descriptor)
        try:
            return cls(_descend(descriptor, _names(below)))
        finally:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        os.close(self._descriptor)

    def fileno(self) -> int:
        return self._descriptor

    def open_folder(self, path: str) -> "ConfinedFolder":
        return ConfinedFolder(_descend(self._descriptor, _names(path)))

    def make_folder(self, path: str, *, owner: int | None = None, mode: int = 0o755) -> "ConfinedFolder":
        """Open a folder, made if need be; those that are made on the way belong to `owner`."""
        descriptor = os.open(".", _FOLDER, dir_fd=self._descriptor)
        try:
            for name in _names(path):
                descriptor = _exchange(descriptor, _make_folder(name, descriptor, owner=owner, mode=mode))
        except BaseException:
            os.close(descriptor)
            raise
        return ConfinedFolder(descriptor)

    def open_file(self, path: str) -> int:
        """A descriptor of a regular file, for reading; nothing else is opened, which for a device may have effects."""
        with self._parent(path) as (folder, name):
            place = os.open(name, _PLACE, dir_fd=folder)
        try:
            kind = stat.S_IFMT(os.fstat(place).st_mode)
            if kind != stat.S_IFREG:
                raise OSError(errno.ELOOP if kind == stat.S_IFLNK else errno.EINVAL, "It is not a file", name)
            return _open_place(place, _FILE)
        finally:
            os.close(place)

    def create_file(self, path: str, *, owner: int | None = None, mode: int = 0o644) -> int:
        """A descriptor of a new file, for writing; FileExistsError where anything has its name."""
        with self._parent(path) as (folder, name):
            return _create_file(name, folder, owner=owner, mode=mode)

    def read(self, path: str, *, limit_bytes: int, offset: int = 0) -> bytes | None:
        """So many bytes of a file; None when it is not there, or is not a file."""
        try:
            descriptor = self.open_file(path)
        except OSError:
            return None
        try:
            left = max(0, os.fstat(descriptor).st_size - offset)
            return os.pread(descriptor, min(limit_bytes, left), offset)
        finally:
            os.close(descriptor)

    def read_text(self, path: str, *, limit_bytes: int) -> str | None:
        data = self.read(path, limit_bytes=limit_bytes)
        return None if data is None else data.decode(errors="replace")

    def replace_file(self, path: str, data: bytes, *, owner: int | None = None, mode: int = 0o644) -> None:
        """Write a file so that a reader sees all of it, or what was there before."""
        with self._parent(path) as (folder, name):
            new = f".{name[:200]}.{os.urandom(8).hex()}"  # which nobody can have put there before
            try:
                with os.fdopen(_create_file(new, folder, owner=owner, mode=mode), "wb") as file:
                    file.write(data)
                os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:
                with suppress(OSError):
                    os.unlink(new, dir_fd=folder)
                raise

    def make_link(self, path: str, target: str) -> None:
        with self._parent(path) as (folder, name):
            os.symlink(target, name, dir_fd=folder)

    def link_file(self, source: str | Path, path: str) -> None:
        """Give a file from elsewhere a name here."""
        with self._parent(path) as (folder, name):
            os.link(source, name, dst_dir_fd=folder, follow_symlinks=False)

    def bind_socket(self, listener: socket.socket, path: str, *, owner: int | None = None, mode: int = 0o600) -> None:
        """Bind a unix socket, in place of what has its name; the path may be longer than an address can be."""
        self.remove(path)
        with self._parent(path) as (folder, name):
            listener.bind(f"/proc/self/fd/{folder}/{name}")
            place = os.open(name, _PLACE, dir_fd=folder)
        try:
            if not stat.S_ISSOCK(os.fstat(place).st_mode):
                raise OSError(errno.ENOTSOCK, "It is not the socket any more", path)
            _by_descriptor(place).chmod(mode)
            if owner is not None:
                os.chown(_by_descriptor(place), owner, owner)
        finally:
            os.close(place)

    def status(self, path: str) -> os.stat_result | None:
        """What lies at a path, a link as itself; None when nothing does, or something on the way is no folder."""
        try:
            with self._parent(path) as (folder, name):
                return os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError as error:
            if error.errno in (errno.ENOENT, *_NO_FOLDER):
                return None
            raise

    def has_folder(self, path: str) -> bool:
        found = self.status(path)
        return found is not None and stat.S_ISDIR(found.st_mode)

    def has_file(self, path: str) -> bool:
        found = self.status(path)
        return found is not None and stat.S_ISREG(found.st_mode)

    def names(self) -> list[str]:
        return os.listdir(self._descriptor)  # noqa: PTH208 - it is an open one

    def read_link(self, path: str) -> str:
        with self._parent(path) as (folder, name):
            return os.readlink(name, dir_fd=folder)

    def set_mode(self, path: str, mode: int) -> None:
        """Change the rights to a file or a folder; OSError where there is a link."""
        with self._parent(path) as (folder, name):
            place = os.open(name, _PLACE, dir_fd=folder)
        try:
            if stat.S_ISLNK(os.fstat(place).st_mode):
                raise OSError(errno.ELOOP, "It is a link", path)
            _by_descriptor(place).chmod(mode)
        finally:
            os.close(place)

    def walk(self) -> Iterator[Entry]:
        """All that lies below, however deep, what is in a folder before what is below that; no link is followed.

        What vanishes meanwhile or is closed to us is passed over. OSError when a folder is moved elsewhere while it is
        looked through.
        """
        return _walk(os.open(".", _FOLDER, dir_fd=self._descriptor))

    def give(self, owner: int) -> None:
        """Make this folder and all that lies in it somebody's, each link as itself."""
        os.fchown(self._descriptor, owner, owner)
        for entry in self.walk():
            with suppress(FileNotFoundError):
                os.chown(entry.name, owner, owner, dir_fd=entry.folder, follow_symlinks=False)

    def unlink(self, path: str) -> None:
        """Remove what is no folder."""
        with self._parent(path) as (folder, name):
            os.unlink(name, dir_fd=folder)

    def remove(self, path: str) -> None:
        """Remove whatever lies at a path, a folder with all that is in it; nothing happens when nothing is there.

        It may be deeper than a path can be long, and lack the rights to enter it. Files keep their rights: they are
        removed without any, and may be shared with others.
        """
        with suppress(FileNotFoundError), self._parent(path) as (folder, name):
            _remove(name, folder)

    @contextmanager
    def _parent(self, path: str) -> Iterator[tuple[int, str]]:
        """A descriptor of the folder that a path leads to, and the last name."""
        *above, name = _names(path) or ["."]
        if not above:
            yield self._descriptor, name
            return
        descriptor = _descend(self._descriptor, above)
        try:
            yield descriptor, name
        finally:
            os.close(descriptor)


def remove_tree(folder: Path) -> None:
    """Remove a folder in which a program may have done what it liked, if it is there; its parent is no program's."""
    with suppress(FileNotFoundError), ConfinedFolder.open(folder.parent) as parent:
        parent.remove(folder.name)


def tree_size(folder: Path) -> int:
    """The bytes of all files in a folder in which a program may have done what it liked; nothing where there is none.

    Links count as nothing. What was moved elsewhere meanwhile, with all that comes after it, is not counted.
    """
    total = 0
    with suppress(OSError), ConfinedFolder.open(folder.parent, folder.name) as opened:
        for entry in opened.walk():
            total += entry.status.st_size if stat.S_ISREG(entry.status.st_mode) else 0
    return total


def _names(path: str) -> list[str]:
    names = [name for name in path.split("/") if name not in ("", ".")]
    if path.startswith("/") or ".." in names:
        raise OSError(errno.EXDEV, "It leads out of its folder", path)
    return names


def _descend(folder: int, names: Sequence[str]) -> int:
    """A descriptor of the folder that names lead to from an open one."""
    first, *others = names or (".",)
    descriptor = _open_folder(first, folder)
    try:
        for name in others:
            descriptor = _exchange(descriptor, _open_folder(name, descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _exchange(old: int, new: int) -> int:
    os.close(old)
    return new


def _open_folder(name: str, folder: int, *, to_change: bool = False) -> int:
    descriptor = _open_closed_folder(name, folder)
    if os.geteuid():
        _permit(descriptor, stat.S_IRWXU if to_change else _ENTER)
    return descriptor


def _open_searchable(name: str, folder: int) -> int:
    """Open a folder as it is; PermissionError also for one whose names can be read, but from which no way leads up."""
    descriptor = os.open(name, _FOLDER, dir_fd=folder)
    try:
        os.stat(".", dir_fd=descriptor)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _open_closed_folder(name: str, folder: int) -> int:
    """Open a folder that may have been closed to everybody, in one that is open."""
    with suppress(PermissionError):
        return os.open(name, _FOLDER, dir_fd=folder)
    place = os.open(name, _PLACE, dir_fd=folder)
    try:
        return _open_place(place, _FOLDER & ~os.O_NOFOLLOW)
    finally:
        os.close(place)


def _open_place(place: int, flags: int) -> int:
    """Open what was found, which may have been closed to everybody."""
    with suppress(PermissionError):
        return os.open(_by_descriptor(place), flags)
    _permit(place, _ENTER)
    return os.open(_by_descriptor(place), flags)


def _by_descriptor(place: int) -> Path:
    """What is open, whatever its name stands for by now."""
    return Path(f"/proc/self/fd/{place}")


def _permit(place: int, needed: int) -> None:
    """Have these rights to an open folder or file, if it is ours and in no other place by another name."""
    found = os.fstat(place)
    if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
        needed &= ~stat.S_IXUSR
    elif not stat.S_ISDIR(found.st_mode):
        raise PermissionError(errno.EACCES, "It is closed, and neither a folder nor a file of its own")
    if found.st_mode & needed != needed:
        with suppress(PermissionError):  # it is another user's; whoever opens it is told so
            _by_descriptor(place).chmod(stat.S_IMODE(found.st_mode) | needed)


def _make_folder(name: str, folder: int, *, owner: int | None, mode: int) -> int:
    try:
        os.mkdir(name, mode, dir_fd=folder)
    except FileExistsError:
        return _open_folder(name, folder)
    descriptor = _open_folder(name, folder)
    if owner is not None:
        os.fchown(descriptor, owner, owner)
    return descriptor


def _create_file(name: str, folder: int, *, owner: int | None, mode: int) -> int:
    descriptor = os.open(name, _NEW_FILE, mode, dir_fd=folder)
    os.fchmod(descriptor, mode)  # the umask may have taken bits away
    if owner is not None:
        os.fchown(descriptor, owner, owner)
    return descriptor


def _identity(descriptor: int) -> tuple[int, int]:
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


class _Descent:
    """Where a walk stands, which has one folder open at a time: more may lie on the way than a process can hold open.

    It goes up by "..", which leads elsewhere when somebody moves a folder meanwhile: so it is compared.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.names: list[str] = []
        self._above: list[tuple[int, int]] = []

    def enter(self, name: str, *, to_change: bool) -> None:
        """Go down; a folder that is to be changed is opened up, any other that is closed raises PermissionError."""
        if to_change:
            inner = _open_folder(name, self.descriptor, to_change=True)
        else:
            inner = _open_searchable(name, self.descriptor)
        self.names.append(name)
        self._above.append(_identity(self.descriptor))
        self.descriptor = _exchange(self.descriptor, inner)

    def leave(self) -> None:
        outer = os.open("..", _FOLDER, dir_fd=self.descriptor)
        self.descriptor = _exchange(self.descriptor, outer)
        self.names.pop()
        if _identity(outer) != self._above.pop():
            raise OSError(errno.ESTALE, "A folder was moved while it was looked through")

    def close(self) -> None:
        os.close(self.descriptor)


def _walk(descriptor: int) -> Iterator[Entry]:
    descent = _Descent(descriptor)
    try:
        waiting: list[list[str]] = [[]]  # folders to enter, of each on the way
        yield from _entries(descent, waiting[0])
        while waiting:
            if not waiting[-1]:
                waiting.pop()
                if waiting:
                    descent.leave()
                continue
            try:
                descent.enter(waiting[-1].pop(), to_change=False)
            except OSError:  # it is gone, something else has taken its place, or it is closed
                continue
            waiting.append([])
            yield from _entries(descent, waiting[-1])
    finally:
        descent.close()


def _entries(descent: _Descent, inner: list[str]) -> Iterator[Entry]:
    """What lies in the folder that was come to; the names of folders are added to `inner`."""
    with os.scandir(descent.descriptor) as entries:
        for each in entries:
            try:
                found = each.stat(follow_symlinks=False)
            except (FileNotFoundError, PermissionError):
                continue
            if stat.S_ISDIR(found.st_mode):
                inner.append(each.name)
            yield Entry(each.name, found, descent.names, descent.descriptor)


def _remove(name: str, folder: int) -> None:
    try:
        descent = _Descent(_open_folder(name, folder, to_change=True))
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno not in _NO_FOLDER:
            raise
        os.unlink(name, dir_fd=folder)
        return
    try:
        waiting = [_clear(descent.descriptor)]
        while waiting:
            if waiting[-1]:
                descent.enter(waiting[-1][-1], to_change=True)
                waiting.append(_clear(descent.descriptor))
            elif again := _clear(descent.descriptor):
                waiting[-1] = again
            else:
                waiting.pop()
                if waiting:
                    descent.leave()
                    os.rmdir(waiting[-1].pop(), dir_fd=descent.descriptor)
    finally:
        descent.close()
    os.rmdir(name, dir_fd=folder)


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

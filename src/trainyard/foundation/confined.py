"""File operations in a tree that a program could have written, by code with more rights than the program.

The agent may be root, and a program may have put a link, a pipe or a folder of its own wherever a file was expected,
and may change it again at any moment. So a folder that the program cannot replace is opened once, and everything below
it is reached from there name by name, each opened relative to the folder before it and never through a link. No name is
resolved twice: permissions and owners are changed through the descriptor that was opened.

Names are resolved here and not by `openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS)`, which gives the same guarantee for
paths without "..": a folder without permissions for its own user has to be made accessible on the way.
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
_PATH_ONLY = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
# How opening a link or a file as a folder fails.
_NOT_A_FOLDER = (errno.ENOTDIR, errno.ELOOP)
_READ_AND_ENTER = stat.S_IRUSR | stat.S_IXUSR
# How many names of subfolders are kept in memory while a folder is removed.
_MAX_NAMES = 10_000


class TreeEntry(NamedTuple):
    """An entry of a walk, valid only until the next one.

    `above` are the names of the folders on the way, and `folder` is a descriptor of the folder that contains it.
    """

    name: str
    status: os.stat_result
    above: Sequence[str]
    folder: int

    def read(self, *, limit_bytes: int) -> bytes:
        """Read the beginning of a file; empty if it is not a file."""
        return ConfinedFolder(self.folder).read(self.name, limit_bytes=limit_bytes) or b""


class ConfinedFolder:
    """An open folder, and operations in it and below.

    Paths are relative to it; "" is the folder itself. Everything that fails raises OSError, also if a part of a path is
    a link, or if a path has "..".
    """

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def open(cls, root: Path, below: str = "") -> Self:
        """Open the folder at a path below `root`, which no program can replace."""
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
        """Open a folder, created if need be. Folders that are created on the way belong to `owner`."""
        descriptor = os.open(".", _FOLDER, dir_fd=self._descriptor)
        try:
            for name in _names(path):
                descriptor = _close_and_return(descriptor, _make_folder(name, descriptor, owner=owner, mode=mode))
        except BaseException:
            os.close(descriptor)
            raise
        return ConfinedFolder(descriptor)

    def open_file(self, path: str) -> int:
        """Open a regular file for reading. Nothing else is opened, because opening a device may have effects."""
        with self._parent(path) as (folder, name):
            handle = os.open(name, _PATH_ONLY, dir_fd=folder)
        try:
            kind = stat.S_IFMT(os.fstat(handle).st_mode)
            if kind != stat.S_IFREG:
                raise OSError(errno.ELOOP if kind == stat.S_IFLNK else errno.EINVAL, "It is not a file", name)
            return _open_handle(handle, _FILE)
        finally:
            os.close(handle)

    def create_file(self, path: str, *, owner: int | None = None, mode: int = 0o644) -> int:
        """Create a file and open it for writing. Raises FileExistsError if anything has its name."""
        with self._parent(path) as (folder, name):
            return _create_file(name, folder, owner=owner, mode=mode)

    def read(self, path: str, *, limit_bytes: int, offset: int = 0) -> bytes | None:
        """Read up to `limit_bytes` of a file; None if it does not exist or is not a file."""
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
            # Nobody can guess this name.
            new = f".{name[:200]}.{os.urandom(8).hex()}"
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
        """Bind a unix socket, replacing what has its name. The path may be longer than a socket address."""
        self.remove(path)
        with self._parent(path) as (folder, name):
            listener.bind(f"/proc/self/fd/{folder}/{name}")
            handle = os.open(name, _PATH_ONLY, dir_fd=folder)
        try:
            if not stat.S_ISSOCK(os.fstat(handle).st_mode):
                raise OSError(errno.ENOTSOCK, "It is not the socket any more", path)
            _path_of(handle).chmod(mode)
            if owner is not None:
                os.chown(_path_of(handle), owner, owner)
        finally:
            os.close(handle)

    def status(self, path: str) -> os.stat_result | None:
        """Return the status at a path, of a link itself; None if nothing is there or the path leads through a file."""
        try:
            with self._parent(path) as (folder, name):
                return os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError as error:
            if error.errno in (errno.ENOENT, *_NOT_A_FOLDER):
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
        """Change the permissions of a file or a folder. Raises OSError for a link."""
        with self._parent(path) as (folder, name):
            handle = os.open(name, _PATH_ONLY, dir_fd=folder)
        try:
            if stat.S_ISLNK(os.fstat(handle).st_mode):
                raise OSError(errno.ELOOP, "It is a link", path)
            _path_of(handle).chmod(mode)
        finally:
            os.close(handle)

    def walk(self) -> Iterator[TreeEntry]:
        """Yield everything below, however deep, entries of a folder before those of its subfolders. Follows no link.

        Entries that vanish meanwhile or cannot be read are skipped. Raises OSError if a folder is moved while it is
        being walked.
        """
        return _walk(os.open(".", _FOLDER, dir_fd=self._descriptor))

    def give(self, owner: int) -> None:
        """Change the owner of this folder and everything in it, of links themselves."""
        os.fchown(self._descriptor, owner, owner)
        for entry in self.walk():
            with suppress(FileNotFoundError):
                os.chown(entry.name, owner, owner, dir_fd=entry.folder, follow_symlinks=False)

    def unlink(self, path: str) -> None:
        """Remove anything but a folder."""
        with self._parent(path) as (folder, name):
            os.unlink(name, dir_fd=folder)

    def remove(self, path: str) -> None:
        """Remove whatever is at a path, a folder with its content. Does nothing if there is nothing.

        It may be deeper than a path can be long, and lack the permission to enter it. The permissions of files do not
        change: removing them takes none, and they may have other names.
        """
        with suppress(FileNotFoundError), self._parent(path) as (folder, name):
            _remove(name, folder)

    @contextmanager
    def _parent(self, path: str) -> Iterator[tuple[int, str]]:
        """Yield a descriptor of the parent folder of a path, and the last name."""
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
    """Remove a folder that a program could write, if it exists. No program can replace its parent."""
    with suppress(FileNotFoundError), ConfinedFolder.open(folder.parent) as parent:
        parent.remove(folder.name)


def tree_size(folder: Path) -> int:
    """Return the bytes of all files in a folder that a program could write; 0 if there is none.

    Links do not count. If a folder is moved meanwhile, it and everything after it is not counted.
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
    """Return a descriptor of the folder to which names lead from an open one."""
    first, *others = names or (".",)
    descriptor = _open_folder(first, folder)
    try:
        for name in others:
            descriptor = _close_and_return(descriptor, _open_folder(name, descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _close_and_return(old: int, new: int) -> int:
    os.close(old)
    return new


def _open_folder(name: str, folder: int, *, is_writable: bool = False) -> int:
    descriptor = _open_closed_folder(name, folder)
    if os.geteuid():
        _add_rights(descriptor, stat.S_IRWXU if is_writable else _READ_AND_ENTER)
    return descriptor


def _open_searchable(name: str, folder: int) -> int:
    """Open a folder as it is. Raises PermissionError also if its names can be read but it cannot be entered."""
    descriptor = os.open(name, _FOLDER, dir_fd=folder)
    try:
        os.stat(".", dir_fd=descriptor)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _open_closed_folder(name: str, folder: int) -> int:
    """Open a folder that may lack all permissions, in one that is open."""
    with suppress(PermissionError):
        return os.open(name, _FOLDER, dir_fd=folder)
    handle = os.open(name, _PATH_ONLY, dir_fd=folder)
    try:
        return _open_handle(handle, _FOLDER & ~os.O_NOFOLLOW)
    finally:
        os.close(handle)


def _open_handle(handle: int, flags: int) -> int:
    """Open what a path-only descriptor refers to, which may lack all permissions."""
    with suppress(PermissionError):
        return os.open(_path_of(handle), flags)
    _add_rights(handle, _READ_AND_ENTER)
    return os.open(_path_of(handle), flags)


def _path_of(handle: int) -> Path:
    """Return a path to what is open, whatever its name refers to by now."""
    return Path(f"/proc/self/fd/{handle}")


def _add_rights(handle: int, needed: int) -> None:
    """Add permissions to an open folder or file, if it is ours and has no other name."""
    found = os.fstat(handle)
    if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
        needed &= ~stat.S_IXUSR
    elif not stat.S_ISDIR(found.st_mode):
        raise PermissionError(errno.EACCES, "It is closed, and neither a folder nor a file of its own")
    if found.st_mode & needed != needed:
        # If it is another user's, opening it will fail.
        with suppress(PermissionError):
            _path_of(handle).chmod(stat.S_IMODE(found.st_mode) | needed)


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
    # The umask may have removed some bits.
    os.fchmod(descriptor, mode)
    if owner is not None:
        os.fchown(descriptor, owner, owner)
    return descriptor


def _identity(descriptor: int) -> tuple[int, int]:
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


class _TreeCursor:
    """The position of a walk. Only one folder is open at a time: the tree may be deeper than a process can have open.

    It goes up through "..", which leads elsewhere if somebody moves a folder meanwhile, so the result is compared.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.names: list[str] = []
        self._above: list[tuple[int, int]] = []

    def descend(self, name: str, *, is_writable: bool) -> None:
        """Enter a subfolder. If `is_writable`, missing permissions are added; otherwise they raise PermissionError."""
        if is_writable:
            inner = _open_folder(name, self.descriptor, is_writable=True)
        else:
            inner = _open_searchable(name, self.descriptor)
        self.names.append(name)
        self._above.append(_identity(self.descriptor))
        self.descriptor = _close_and_return(self.descriptor, inner)

    def ascend(self) -> None:
        outer = os.open("..", _FOLDER, dir_fd=self.descriptor)
        self.descriptor = _close_and_return(self.descriptor, outer)
        self.names.pop()
        if _identity(outer) != self._above.pop():
            raise OSError(errno.ESTALE, "A folder was moved while it was walked")

    def close(self) -> None:
        os.close(self.descriptor)


def _walk(descriptor: int) -> Iterator[TreeEntry]:
    cursor = _TreeCursor(descriptor)
    try:
        # For each folder on the way, the subfolders to enter.
        pending: list[list[str]] = [[]]
        yield from _entries(cursor, pending[0])
        while pending:
            if not pending[-1]:
                pending.pop()
                if pending:
                    cursor.ascend()
                continue
            try:
                cursor.descend(pending[-1].pop(), is_writable=False)
            except OSError:
                # It is gone, something else has taken its place, or it cannot be entered.
                continue
            pending.append([])
            yield from _entries(cursor, pending[-1])
    finally:
        cursor.close()


def _entries(cursor: _TreeCursor, inner: list[str]) -> Iterator[TreeEntry]:
    """Yield the entries of the current folder, and add the names of subfolders to `inner`."""
    with os.scandir(cursor.descriptor) as entries:
        for each in entries:
            try:
                found = each.stat(follow_symlinks=False)
            except (FileNotFoundError, PermissionError):
                continue
            if stat.S_ISDIR(found.st_mode):
                inner.append(each.name)
            yield TreeEntry(each.name, found, cursor.names, cursor.descriptor)


def _remove(name: str, folder: int) -> None:
    try:
        cursor = _TreeCursor(_open_folder(name, folder, is_writable=True))
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno not in _NOT_A_FOLDER:
            raise
        os.unlink(name, dir_fd=folder)
        return
    try:
        pending = [_clear(cursor.descriptor)]
        while pending:
            if pending[-1]:
                cursor.descend(pending[-1][-1], is_writable=True)
                pending.append(_clear(cursor.descriptor))
            elif again := _clear(cursor.descriptor):
                pending[-1] = again
            else:
                pending.pop()
                if pending:
                    cursor.ascend()
                    os.rmdir(pending[-1].pop(), dir_fd=cursor.descriptor)
    finally:
        cursor.close()
    os.rmdir(name, dir_fd=folder)


def _clear(folder: int) -> list[str]:
    """Remove everything but folders from an open one. Return names of its folders; empty only if there are none."""
    found: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.name, dir_fd=folder)
            elif len(found) < _MAX_NAMES:
                found.append(entry.name)
    return found

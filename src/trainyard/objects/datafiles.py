"""The files that hold the bytes: written once, never changed, removed when nothing names them.

    incoming/<id>          on its way in; also the record that it is
    data/<2 hex>/<id>      in place
    use.lock               shared by every process that has the store open
    hold.lock              held by a backup; nothing is removed meanwhile
    ballast                space that is given up when the disk is full, so that things can still be deleted

A file is written and synchronised under `incoming`, linked to its place, and loses its first name only when the index
names it durably. So after a crash only what is still in `incoming` has to be judged.
"""

import errno
import fcntl
import io
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

from trainyard.foundation.disk import Reserve, require_room, reserve_of
from trainyard.foundation.errors import Corrupt, Unavailable
from trainyard.foundation.files import PRIVATE_FOLDER, sync_folder

# The folders above are the owner's alone. A job sees single files, copy-on-write, where it may write what its user may.
DATA_FILE_MODE = 0o644

P = ParamSpec("P")
T = TypeVar("T")

_CHUNK = 1 << 20
_BALLAST = 8 << 20  # what the index needs to forget 1,000 keys scattered over as many pages
_KERNEL_CANNOT_COPY = frozenset({errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM})


class DataFileMissing(Corrupt):
    """A data file that the index named is not there: removed since, or lost."""


@contextmanager
def hold(root: Path) -> Iterator[None]:
    """Keep every data file of the store at `root` in place, also beside a running yard; removals wait until the end."""
    with _locked(root / "hold.lock", fcntl.LOCK_EX):
        yield


def data_path(root: Path, data: str) -> Path:
    """Where a data file lies in the store at `root`."""
    return root / "data" / data[-2:] / data


def explain(error: OSError) -> Unavailable:
    """What the operating system says, in the yard's words."""
    where = error.filename or "the object store"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Unavailable(f"There is no space left for {where}. Free some (`trainyard gc` may help), then try again.")
    if error.errno == errno.EROFS:
        return Unavailable(f"The disk of {where} is read-only. Make it writable, then try again.")
    return Unavailable(f"{where} cannot be used now ({error.strerror}). Check the disk and its permissions.")


def _explained(function: Callable[P, T]) -> Callable[P, T]:
    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except OSError as error:
            raise explain(error) from error

    return wrapper


class DataFiles:
    """The data files under one root. All methods may be called from any thread."""

    @_explained
    def __init__(self, root: Path, *, reserve_bytes: int = 0) -> None:
        self.root = root
        self._reserve_bytes = reserve_bytes
        self._incoming = root / "incoming"
        self._data = root / "data"
        self._places = str(self._data)
        self._ballast = root / "ballast"
        self._prepare()
        self._use = (root / "use.lock").open("ab")
        self.is_alone = self._try_lock(fcntl.LOCK_EX)

    def share(self) -> None:
        """Let other processes in, once what a crash left is cleared up."""
        fcntl.flock(self._use, fcntl.LOCK_SH)

    def close(self) -> None:
        self._use.close()

    def path(self, data: str) -> Path:
        return data_path(self.root, data)

    @property
    def folder(self) -> str:
        """Where all of them lie."""
        return self._places

    def place(self, data: str) -> str:
        """Its path as text, for a Path costs more than the call that takes it."""
        return f"{self._places}/{data[-2:]}/{data}"

    def incoming(self, data: str) -> Path:
        return self._incoming / data

    @_explained
    def open(self, data: str) -> io.FileIO:
        try:
            return io.FileIO(self.place(data))
        except FileNotFoundError as error:
            raise _missing(self.path(data)) from error

    def chunks(self, data: str, *, offset: int = 0, size: int | None = None) -> Iterator[bytes]:
        """The bytes of a file, or some of them, in pieces."""
        with self.open(data) as file:
            file.seek(offset)
            left = os.fstat(file.fileno()).st_size - offset if size is None else size
            while left > 0 and (chunk := file.read(min(left, _CHUNK))):
                yield chunk
                left -= len(chunk)

    def size(self, data: str) -> int | None:
        """None when there is no such file."""
        try:
            return self.path(data).stat().st_size
        except FileNotFoundError:
            return None

    @_explained
    def begin(self, beside: "Arrival | None" = None) -> "Arrival":
        """A new, empty file, in the same folder as another one where that is to spare the disk work."""
        self.require_room(0)
        data = _new_id() if beside is None else _new_id()[:-2] + beside.data[-2:]
        path = self._incoming / data
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        return Arrival(self, data, descriptor)

    @_explained
    def link(self, data: str, size: int) -> "Arrival":
        """A new name for the bytes of another file, or a copy of them where it has too many names already."""
        arrival = _new_id()
        try:
            os.link(self.path(data), self._incoming / arrival)
        except FileNotFoundError as error:
            raise _missing(self.path(data)) from error
        except OSError as error:
            if error.errno != errno.EMLINK:
                raise
            return self.join([(data, size)])
        return Arrival(self, arrival, None)

    @_explained
    def join(self, pieces: Sequence[tuple[str, int]]) -> "Arrival":
        """A new file with the bytes of others, each named with its size, one after another."""
        self.require_room(sum(size for _, size in pieces))
        arrival = self.begin()
        try:
            for data, size in pieces:
                with self.open(data) as piece:
                    arrival.append(piece, size)
        except BaseException:
            arrival.discard()
            raise
        return arrival

    @_explained
    def settle(self, arrivals: "Sequence[Arrival]") -> None:
        """Make many files durable in their places, for far less than one by one costs."""
        for arrival in arrivals:
            arrival.hand_over()
        for arrival in arrivals:
            arrival.synchronise()
        for arrival in arrivals:
            arrival.take_place()
        for folder in {self.path(arrival.data).parent for arrival in arrivals}:
            sync_folder(folder)

    @_explained
    def remove(self, datas: Sequence[str]) -> int:
        """Remove files; how many were still there. Unavailable, with nothing done, while a backup holds them."""
        try:
            with _locked(self.root / "hold.lock", fcntl.LOCK_SH | fcntl.LOCK_NB):
                return sum(_unlink(self.path(data)) for data in datas)
        except BlockingIOError as error:
            raise Unavailable(f"A backup holds the files in {self.root}; try again when it has ended.") from error

    @property
    def reserve(self) -> Reserve:
        """How much of the disk stays free, and is."""
        return reserve_of(self.root, wanted_bytes=self._reserve_bytes)

    @_explained
    def require_room(self, size: int) -> None:
        """Unavailable when so much more would use what is kept for the yard's own records."""
        require_room(self.reserve, size)

    def drop_ballast(self) -> None:
        with suppress(OSError):
            self._ballast.unlink(missing_ok=True)

    def load_ballast(self) -> None:
        """Set space aside, where there is some."""
        with suppress(OSError), self._ballast.open("ab") as file:
            try:
                os.posix_fallocate(file.fileno(), 0, _BALLAST)
            except OSError:
                file.truncate(0)

    def arrivals(self) -> Sequence[str]:
        return [path.name for path in self._incoming.iterdir()]

    def is_arriving(self, data: str) -> bool:
        return self.incoming(data).exists()

    def __iter__(self) -> Iterator[str]:
        """Every data file in place."""
        for folder in sorted(self._data.iterdir()):
            yield from sorted(path.name for path in folder.iterdir())

    def _prepare(self) -> None:
        self.root.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        self._incoming.mkdir(exist_ok=True)
        self._data.mkdir(exist_ok=True)
        missing = {f"{number:02x}" for number in range(256)} - {path.name for path in self._data.iterdir()}
        for name in missing:
            (self._data / name).mkdir(exist_ok=True)
        for folder in (self._data, self.root, self.root.parent) if missing else ():
            sync_folder(folder)

    def _try_lock(self, kind: int) -> bool:
        try:
            fcntl.flock(self._use, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


class Arrival:
    """A file on its way in. `settle`, then `release` once the index names it; `discard` at any time before."""

    __slots__ = ("_descriptor", "_files", "_incoming", "data")

    def __init__(self, files: DataFiles, data: str, descriptor: int | None) -> None:
        self.data = data
        self._files = files
        self._incoming = files.incoming(data)
        self._descriptor = descriptor

    @_explained
    def write(self, data: bytes) -> None:
        assert self._descriptor is not None, "the file is closed"
        self._files.require_room(len(data))
        written = os.write(self._descriptor, data)
        while written < len(data):
            written += os.write(self._descriptor, memoryview(data)[written:])

    def append(self, source: io.FileIO, size: int) -> None:
        """Take the first `size` bytes of another file, inside the kernel where it can."""
        assert self._descriptor is not None, "the file is closed"
        left = size
        with suppress(_KernelCannotCopy):
            while left > 0:
                left -= _copy_in_kernel(source.fileno(), self._descriptor, left)
        while left > 0:
            chunk = source.read(min(left, _CHUNK))
            if not chunk:
                raise Corrupt(f"{source.name!r} has {left} bytes fewer than it should; run `trainyard doctor`.")
            self.write(chunk)
            left -= len(chunk)

    def chunks(self) -> Iterator[bytes]:
        """The bytes written so far, from the start."""
        assert self._descriptor is not None, "the file is closed"
        offset = 0
        while chunk := os.pread(self._descriptor, _CHUNK, offset):
            yield chunk
            offset += len(chunk)

    @_explained
    def settle(self) -> None:
        """Make it durable in its place."""
        self.synchronise()
        self.take_place()
        sync_folder(self._files.path(self.data).parent)

    def hand_over(self) -> None:
        """Let the disk have the bytes soon, without waiting for it.

        Linux begins to write what it is told to forget. Of 128 small files on ext4 each then costs 0.2 ms to
        synchronise instead of 0.7, for the first one commits what all of them need (2026).
        """
        if self._descriptor is not None:
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def synchronise(self) -> None:
        """Make the bytes durable; the first part of `settle`."""
        if self._descriptor is not None:
            os.fchmod(self._descriptor, DATA_FILE_MODE)
            os.fsync(self._descriptor)
            self._close()

    def take_place(self) -> None:
        """The second part of `settle`, after which the folder is to be synchronised."""
        os.link(self._incoming, self._files.path(self.data))

    def release(self) -> None:
        with suppress(OSError):  # what stays is judged at the next start
            self._incoming.unlink()

    def discard(self) -> None:
        """Leave nothing behind."""
        self._close()
        with suppress(OSError):
            self._files.path(self.data).unlink(missing_ok=True)
            self._incoming.unlink(missing_ok=True)

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _missing(path: Path) -> DataFileMissing:
    return DataFileMissing(f"The data file {path} is missing; bring back a backup with `trainyard restore`.")


def _unlink(path: Path) -> bool:
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True


class _KernelCannotCopy(Exception):
    """The bytes have to come through this process."""


def _copy_in_kernel(source: int, target: int, size: int) -> int:
    try:
        copied = os.copy_file_range(source, target, size)
    except OSError as error:
        if error.errno in _KERNEL_CANNOT_COPY:
            raise _KernelCannotCopy from error
        raise
    if copied == 0:
        raise _KernelCannotCopy
    return copied


@contextmanager
def _locked(path: Path, operation: int) -> Iterator[None]:
    """Each lock has a description of its own, so that threads of one process count one by one."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, operation)
        yield
    finally:
        os.close(descriptor)


def _new_id() -> str:
    """A name that was never used; it begins with the time, so that the index grows at one end."""
    return f"{time.time_ns():016x}{secrets.token_hex(4)}"

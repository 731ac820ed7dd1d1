"""Files of a program's folder as objects, each whole or not at all."""

import errno
import fcntl
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from trainyard.foundation.clock import utc_now
from trainyard.foundation.confined import ConfinedFolder
from trainyard.foundation.errors import NotFound, TrainyardError
from trainyard.foundation.locations import Location
from trainyard.instance.agent.syncing.changes import Candidate
from trainyard.instance.agent.syncing.looks import Look
from trainyard.objects.contract import (
    ANY_STATE,
    Attributes,
    NewObject,
    ObjectAccess,
    ObjectInfo,
    Precondition,
    PreconditionFailed,
    WritesTogether,
    Written,
)

_CHUNK_BYTES = 1 << 20
_MOST_HOLES = 64 * 1024**3  # bytes of a file that take no space on the disk, but would in the store
_NOT_THERE = (errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.EINVAL, errno.ENXIO)  # gone, or no file any more
_JOB, _INSTANCE = "trainyard-job", "trainyard-instance"  # metadata of what instances store


@dataclass(frozen=True, slots=True)
class Place:
    """A folder of the program: its path below one that the program cannot replace."""

    root: Path
    path: str


@dataclass(frozen=True, slots=True)
class Writer:
    """Who stores: one instance of a job. `is_alone`: the job has no other, so that whatever it restored is its own."""

    job: str
    instance: str
    is_alone: bool


@dataclass(frozen=True, slots=True)
class Small:
    """A small file, read whole."""

    candidate: Candidate
    look: Look
    body: bytes


@dataclass(frozen=True, slots=True)
class _Known:
    etag: str
    is_own: bool


class Sender:
    """Stores and deletes the objects of one folder, and knows which of them are its own.

    An object that another instance has put under the same key is replaced, and `note` is told. Several threads may send
    different files at once. `check` is called between two pieces of a file and before anything is changed in the store,
    and may raise to give up.
    """

    def __init__(
        self,
        place: Place,
        location: Location,
        *,
        writer: Writer,
        note: Callable[[str], None],
        check: Callable[[], None],
    ) -> None:
        self._place = place
        self._location = location
        self._writer = writer
        self._note = note
        self._check = check
        self._attributes = Attributes(metadata={_JOB: writer.job, _INSTANCE: writer.instance})
        self._known: dict[str, _Known] = {}

    def where(self, path: str) -> Location:
        return Location(self._location.bucket, self._location.key + path)

    def has_stored(self, path: str) -> bool:
        """Whether an object of this file is known."""
        return path in self._known

    def restored(self, path: str, info: ObjectInfo) -> None:
        """A file was made of this object."""
        is_own = self._writer.is_alone or info.attributes.metadata.get(_INSTANCE) == self._writer.instance
        self._known[path] = _Known(info.etag, is_own)

    def send(self, store: ObjectAccess, candidate: Candidate) -> Look | None:
        """Store a file; the look at it that the object is the same as. None when it is gone, changes, or is written."""
        with self._opened(candidate.path) as descriptor:
            if descriptor is None or not (candidate.even_if_open or is_at_rest(descriptor)):
                return None
            look = Look.of(found := os.fstat(descriptor))
            if found.st_size - found.st_blocks * 512 > _MOST_HOLES:
                self._note(f"{self.where(candidate.path)} is not stored: the file is nearly empty but very large.")
                return look
            written = self._put(store, candidate, descriptor, look=look)
        if written is None:
            return None
        self._known[candidate.path] = _Known(written.etag, is_own=True)
        return look

    def read_small(self, candidate: Candidate, most_bytes: int) -> "Small | None":
        """A file of a few bytes, to be stored together with others. None when it has to go by itself, or not at all."""
        with self._opened(candidate.path) as descriptor:
            if descriptor is None or not (candidate.even_if_open or is_at_rest(descriptor)):
                return None
            look = Look.of(os.fstat(descriptor))
            if look.size > most_bytes:
                return None
            self._check()
            body = os.pread(descriptor, look.size, 0)
            is_same = candidate.as_it_is or Look.of(os.fstat(descriptor)) == look
            return Small(candidate, look, body) if len(body) == look.size and is_same else None

    def send_together(self, store: WritesTogether, files: "Sequence[Small]") -> "list[Look | TrainyardError | None]":
        """Store small files at one moment; what `send` gives of each, or why that one could not be stored."""
        new = [
            NewObject(self.where(path), each.body, self._attributes, self._expected(path))
            for each, path in ((each, each.candidate.path) for each in files)
        ]
        outcomes: list[Look | TrainyardError | None] = []
        self._check()
        for each, outcome in zip(files, store.put_together(new, now=utc_now()), strict=True):
            if isinstance(outcome, Written):
                self._known[each.candidate.path] = _Known(outcome.etag, is_own=True)
            outcomes.append(each.look if isinstance(outcome, Written) else outcome)
        return outcomes

    def delete(self, store: ObjectAccess, path: str) -> None:
        """Delete the object of a file that is gone, unless it is another's, or was replaced by somebody."""
        known = self._known.get(path)
        if known is not None and known.is_own:
            self._check()
            with suppress(PreconditionFailed):
                store.delete(self.where(path), precondition=Precondition(etag=known.etag))
        self._known.pop(path, None)

    @contextmanager
    def _opened(self, path: str) -> Iterator[int | None]:
        try:
            with ConfinedFolder.open(self._place.root) as root:
                descriptor = root.open_file(f"{self._place.path}/{path}")
        except OSError as error:
            if error.errno not in _NOT_THERE:
                raise
            yield None
            return
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _put(self, store: ObjectAccess, candidate: Candidate, descriptor: int, *, look: Look) -> Written | None:
        expected = self._expected(candidate.path)
        try:
            return self._put_once(store, candidate, descriptor, look=look, precondition=expected)
        except PreconditionFailed:
            self._note_clash(store, candidate.path)
            return self._put_once(store, candidate, descriptor, look=look, precondition=ANY_STATE)

    def _put_once(
        self, store: ObjectAccess, candidate: Candidate, descriptor: int, *, look: Look, precondition: Precondition
    ) -> Written | None:
        writer = store.writer(self.where(candidate.path), self._attributes)
        try:
            offset = 0
            while offset < look.size and (data := os.pread(descriptor, _CHUNK_BYTES, offset)):
                self._check()
                data = data[: look.size - offset]
                writer.write(data)
                offset += len(data)
            is_same = candidate.as_it_is or Look.of(os.fstat(descriptor)) == look
            if offset < look.size or not is_same:
                writer.abort()
                return None
            self._check()
            return writer.commit(now=utc_now(), precondition=precondition)
        except BaseException:
            writer.abort()
            raise

    def _expected(self, path: str) -> Precondition:
        known = self._known.get(path)
        return Precondition(etag=known.etag) if known else Precondition(absent=True)

    def _note_clash(self, store: ObjectAccess, path: str) -> None:
        try:
            metadata: Mapping[str, str] = store.info(self.where(path)).attributes.metadata
        except NotFound:
            return
        other = metadata.get(_JOB), metadata.get(_INSTANCE)
        if None not in other and other != (self._writer.job, self._writer.instance):
            self._note(
                f"{self.where(path)} is written by {other[1]} of {other[0]} and by {self._writer.instance}; what comes "
                "last replaces the other. Names with SM_CURRENT_HOST in them do not clash."
            )


def catch_lease_signals() -> None:
    """Let `is_at_rest` ask; without that it takes every file for one that nobody writes. For the main thread."""
    if threading.current_thread() is threading.main_thread():
        # A handler, not SIG_IGN: programs would inherit that.
        signal.signal(signal.SIGIO, _ignore)


def is_at_rest(descriptor: int) -> bool:
    """Whether nobody has an open file open for writing; True also where that cannot be known.

    The kernel grants a lease for reading only then. Should somebody open the file while we have it, that waits until we
    gave it back a moment later, and a signal tells us.
    """
    if signal.getsignal(signal.SIGIO) is not _ignore:
        return True
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except BlockingIOError:
        return False
    except OSError:  # not the owner, or a file system without leases
        return True
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return True


def _ignore(_number: int, _frame: object) -> None:
    return

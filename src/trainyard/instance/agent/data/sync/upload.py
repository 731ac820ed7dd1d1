"""Uploads files of a program's folder as objects, each completely or not at all."""

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
from trainyard.instance.agent.data.sync.changes import UploadCandidate
from trainyard.instance.agent.data.sync.scan import FileStamp
from trainyard.objects.contract import (
    ANY_STATE,
    Attributes,
    NewObject,
    ObjectAccess,
    ObjectInfo,
    Precondition,
    PreconditionFailed,
    WriteResult,
    WritesBatches,
)
from trainyard.objects.encryption.headers import key_headers

_CHUNK_BYTES = 1 << 20
# Bytes of a sparse file that take no space on the disk, but would in the store.
_MAX_HOLE_BYTES = 64 * 1024**3
# The file is gone, or something else has replaced it.
_MISSING = (errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.EINVAL, errno.ENXIO)
# The metadata of objects that instances upload.
_JOB, _INSTANCE = "trainyard-job", "trainyard-instance"


@dataclass(frozen=True, slots=True)
class SyncedPath:
    """A folder of the program: its path below a root that the program cannot replace."""

    root: Path
    path: str


@dataclass(frozen=True, slots=True)
class UploadIdentity:
    """The instance that uploads. With `is_alone` the job has no other, so everything it restored is its own.

    `output_key` encrypts what it uploads; without one, the bucket decides.
    """

    job: str
    instance: str
    is_alone: bool
    output_key: str = ""

    @property
    def attributes(self) -> Attributes:
        """What every object that it uploads has."""
        return Attributes(key_headers(self.output_key), metadata={_JOB: self.job, _INSTANCE: self.instance})


@dataclass(frozen=True, slots=True)
class SmallFile:
    """A small file with its content."""

    candidate: UploadCandidate
    stamp: FileStamp
    body: bytes


@dataclass(frozen=True, slots=True)
class _StoredVersion:
    etag: str
    is_own: bool


class FileUploader:
    """Uploads and deletes the objects of one folder, and knows which of them are its own.

    An object that another instance has written under the same key is replaced, with a note. Several threads may upload
    different files at once. `check` is called between two chunks of a file and before every change in the store, and
    may raise.
    """

    def __init__(
        self,
        place: SyncedPath,
        location: Location,
        *,
        writer: UploadIdentity,
        note: Callable[[str], None],
        check: Callable[[], None],
    ) -> None:
        self._path = place
        self._location = location
        self._identity = writer
        self._note = note
        self._check = check
        self._attributes = writer.attributes
        self._known: dict[str, _StoredVersion] = {}

    def location_of(self, path: str) -> Location:
        return Location(self._location.bucket, self._location.key + path)

    def has_stored(self, path: str) -> bool:
        """Whether the file is known to have an object."""
        return path in self._known

    def record_restored(self, path: str, info: ObjectInfo) -> None:
        """Record that a file was restored from this object."""
        is_own = self._identity.is_alone or info.attributes.metadata.get(_INSTANCE) == self._identity.instance
        self._known[path] = _StoredVersion(info.etag, is_own)

    def upload(self, store: ObjectAccess, candidate: UploadCandidate) -> FileStamp | None:
        """Upload a file; return the stamp of what was stored, None when it is gone, changes, or is being written."""
        with self._open_file(candidate.path) as descriptor:
            if descriptor is None or not (candidate.even_if_open or is_closed_for_writing(descriptor)):
                return None
            stamp = FileStamp.of(status := os.fstat(descriptor))
            if status.st_size - status.st_blocks * 512 > _MAX_HOLE_BYTES:
                self._note(
                    f"{self.location_of(candidate.path)} is not stored: the file is nearly empty but very large."
                )
                return stamp
            written = self._put(store, candidate, descriptor, stamp=stamp)
        if written is None:
            return None
        self._known[candidate.path] = _StoredVersion(written.etag, is_own=True)
        return stamp

    def read_small(self, candidate: UploadCandidate, max_bytes: int) -> "SmallFile | None":
        """Read a small file to upload together with others; None when it must be uploaded alone or not at all."""
        with self._open_file(candidate.path) as descriptor:
            if descriptor is None or not (candidate.even_if_open or is_closed_for_writing(descriptor)):
                return None
            stamp = FileStamp.of(os.fstat(descriptor))
            if stamp.size > max_bytes:
                return None
            self._check()
            body = os.pread(descriptor, stamp.size, 0)
            is_same = candidate.even_if_changing or FileStamp.of(os.fstat(descriptor)) == stamp
            return SmallFile(candidate, stamp, body) if len(body) == stamp.size and is_same else None

    def upload_together(
        self, store: WritesBatches, files: "Sequence[SmallFile]"
    ) -> "list[FileStamp | TrainyardError | None]":
        """Upload small files in one write; return for each what `upload` returns, or why it could not be stored."""
        new = [
            NewObject(self.location_of(path), each.body, self._attributes, self._precondition(path))
            for each, path in ((each, each.candidate.path) for each in files)
        ]
        outcomes: list[FileStamp | TrainyardError | None] = []
        self._check()
        for each, outcome in zip(files, store.put_batch(new, now=utc_now()), strict=True):
            if isinstance(outcome, WriteResult):
                self._known[each.candidate.path] = _StoredVersion(outcome.etag, is_own=True)
            outcomes.append(each.stamp if isinstance(outcome, WriteResult) else outcome)
        return outcomes

    def delete(self, store: ObjectAccess, path: str) -> None:
        """Delete the object of a file that is gone, unless another instance owns or has replaced it."""
        known = self._known.get(path)
        if known is not None and known.is_own:
            self._check()
            with suppress(PreconditionFailed):
                store.delete(self.location_of(path), precondition=Precondition(etag=known.etag))
        self._known.pop(path, None)

    @contextmanager
    def _open_file(self, path: str) -> Iterator[int | None]:
        try:
            with ConfinedFolder.open(self._path.root) as root:
                descriptor = root.open_file(f"{self._path.path}/{path}")
        except OSError as error:
            if error.errno not in _MISSING:
                raise
            yield None
            return
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _put(
        self, store: ObjectAccess, candidate: UploadCandidate, descriptor: int, *, stamp: FileStamp
    ) -> WriteResult | None:
        expected = self._precondition(candidate.path)
        try:
            return self._put_once(store, candidate, descriptor, stamp=stamp, precondition=expected)
        except PreconditionFailed:
            self._note_clash(store, candidate.path)
            return self._put_once(store, candidate, descriptor, stamp=stamp, precondition=ANY_STATE)

    def _put_once(
        self,
        store: ObjectAccess,
        candidate: UploadCandidate,
        descriptor: int,
        *,
        stamp: FileStamp,
        precondition: Precondition,
    ) -> WriteResult | None:
        writer = store.writer(self.location_of(candidate.path), self._attributes)
        try:
            offset = 0
            while offset < stamp.size and (data := os.pread(descriptor, _CHUNK_BYTES, offset)):
                self._check()
                data = data[: stamp.size - offset]
                writer.write(data)
                offset += len(data)
            is_same = candidate.even_if_changing or FileStamp.of(os.fstat(descriptor)) == stamp
            if offset < stamp.size or not is_same:
                writer.abort()
                return None
            self._check()
            return writer.commit(now=utc_now(), precondition=precondition)
        except BaseException:
            writer.abort()
            raise

    def _precondition(self, path: str) -> Precondition:
        known = self._known.get(path)
        return Precondition(etag=known.etag) if known else Precondition(absent=True)

    def _note_clash(self, store: ObjectAccess, path: str) -> None:
        try:
            metadata: Mapping[str, str] = store.info(self.location_of(path)).attributes.metadata
        except NotFound:
            return
        other = metadata.get(_JOB), metadata.get(_INSTANCE)
        if None not in other and other != (self._identity.job, self._identity.instance):
            self._note(
                f"{self.location_of(path)} is written by {other[1]} of {other[0]} and by {self._identity.instance}; "
                "the last write replaces the other. Put SM_CURRENT_HOST into the names to avoid this."
            )


def catch_lease_signals() -> None:
    """Enable `is_closed_for_writing`, which returns True for every file without this. Call it from the main thread."""
    if threading.current_thread() is threading.main_thread():
        # A handler, not SIG_IGN, because programs would inherit that.
        signal.signal(signal.SIGIO, _ignore)


def is_closed_for_writing(descriptor: int) -> bool:
    """Whether no process has the file open for writing; True also when that cannot be known.

    The kernel grants a read lease only then. A process that opens the file meanwhile waits until the lease is released
    a moment later, and the kernel sends a signal.
    """
    if signal.getsignal(signal.SIGIO) is not _ignore:
        return True
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except BlockingIOError:
        return False
    except OSError:
        # Not the owner, or a file system without leases.
        return True
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return True


def _ignore(_number: int, _frame: object) -> None:
    return

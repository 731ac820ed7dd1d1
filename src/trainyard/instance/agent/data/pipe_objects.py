"""Opens the objects of a Pipe channel in the order in which they are sent."""

import io
import os
import select
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol, Self

from trainyard.foundation.errors import Corrupt
from trainyard.foundation.locations import Location
from trainyard.objects.contract import HasLocalFile, ObjectReader
from trainyard.objects.filesystem import FilesystemObjects, StoredFile
from trainyard.objects.reader_files import ReaderFile

# Objects that are looked up together.
BATCH_OBJECTS = 500
_READ = os.O_RDONLY | os.O_CLOEXEC
# Bytes of other items in one batch.
_BATCH_BYTES = 8 << 20
_CHUNK_BYTES = 1 << 20


class FeedClosing(Exception):
    """The feeder must stop, because the program has ended."""


class FifoWriter:
    """The non-blocking write end of a FIFO; `wake` becomes readable when the feeder must stop.

    Every method may raise BrokenPipeError, when the reader is gone, and FeedClosing.
    """

    def __init__(self, fifo: int, wake: int) -> None:
        self._fifo = fifo
        self._wake = wake
        self._poll = select.poll()
        self._poll.register(fifo, select.POLLOUT)
        self._poll.register(wake, select.POLLIN)

    def write(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._fifo, view) :]
            except BlockingIOError:
                self._wait()

    def send(self, file: int, offset: int, size: int) -> None:
        """Let the kernel send bytes of a file; Corrupt when the file is too short."""
        end = offset + size
        while offset < end:
            try:
                sent = os.sendfile(self._fifo, file, offset, end - offset)
            except BlockingIOError:
                self._wait()
                continue
            if not sent:
                raise Corrupt(f"The file ends {end - offset} bytes too early.")
            offset += sent

    def check(self) -> None:
        """Raise FeedClosing when the feeder must stop. For work that writes nothing for long."""
        if select.select([self._wake], [], [], 0)[0]:
            raise FeedClosing

    def _wait(self) -> None:
        if any(descriptor == self._wake for descriptor, _ in self._poll.poll()):
            raise FeedClosing


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """An object to send: its position in the channel and, if it was listed, its ETag and size."""

    where: Location
    position: int
    etag: str = ""
    size: int = 0


class Body(Protocol):
    """One version of an object, open for one thread."""

    etag: str
    size: int

    def send(self, sink: FifoWriter, size: int) -> None:
        """Send the next `size` bytes."""
        ...

    def raw(self) -> io.RawIOBase:
        """Return the object as a file that the body owns, which can be read from its beginning several times."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class PendingObject(Protocol):
    """An object that is next to be sent."""

    ref: ObjectRef

    def open(self) -> Body:
        """Open the object; raises what an ObjectAccess raises."""
        ...


class BodySource(Protocol):
    """The objects of one epoch, for one thread. `close` stops background work at once."""

    def prefetch(self, items: Iterable[bytes | ObjectRef]) -> Iterator[bytes | PendingObject]:
        """Yield the same items in the same order, while later ones are prepared.

        An error of `items` is raised after all items before it.
        """
        ...

    def close(self) -> None: ...


class LocalBodySource:
    """Objects that are files on this machine, looked up in batches."""

    def __init__(self, store: FilesystemObjects) -> None:
        self._store = store

    def prefetch(self, items: Iterable[bytes | ObjectRef]) -> "Iterator[bytes | LocalPendingObject]":
        rest = iter(items)
        while batch := _next_batch(rest):
            files = self._find_files([item for item in batch if isinstance(item, ObjectRef)])
            for item in batch:
                if isinstance(item, ObjectRef):
                    yield LocalPendingObject(self._store, item, files.get(item.where))
                elif isinstance(item, Exception):
                    raise item
                else:
                    yield item

    def close(self) -> None:
        """Do nothing: there is no background work."""

    def _find_files(self, refs: Iterable[ObjectRef]) -> dict[Location, StoredFile]:
        found_files: dict[Location, StoredFile] = {}
        for bucket, group in groupby(refs, key=lambda ref: ref.where.bucket):
            keys = [ref.where.key for ref in group]
            files = zip(keys, self._store.stored_files(bucket, keys), strict=True)
            found_files |= {Location(bucket, key): file for key, file in files if file is not None}
        return found_files


class StoreFolder:
    """An open folder of the store. Opening a file relative to it takes half the time of an absolute path."""

    def __init__(self, path: str) -> None:
        self._skipped = len(path) + 1
        self._descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def open(self, path: str) -> int:
        """Open a file below the folder by its absolute path."""
        return os.open(path[self._skipped :], _READ, dir_fd=self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


class LocalPendingObject:
    """An object on this machine, and the file that it had when it was looked up."""

    __slots__ = ("_file", "_store", "ref")

    def __init__(self, store: FilesystemObjects, ref: ObjectRef, file: StoredFile | None) -> None:
        self.ref = ref
        self._store = store
        self._file = file

    def open(self) -> "LocalBody | DecryptedBody":
        """Open that file, or the object anew if the file is gone or encrypted."""
        if self._file is not None and not self._file.is_sealed:
            try:
                descriptor = os.open(self._file.path, _READ)
            except FileNotFoundError:
                pass
            else:
                return LocalBody(descriptor, self._file.size, self._file.etag)
        reader = self._store.open(self.ref.where)
        if not isinstance(reader, HasLocalFile):
            return DecryptedBody(reader)
        with reader:
            return LocalBody(os.dup(reader.file.fileno()), reader.info.size, reader.info.etag)


class LocalBody:
    """A file of the store, sent by the kernel."""

    __slots__ = ("_descriptor", "_sent", "etag", "size")

    def __init__(self, descriptor: int, size: int, etag: str) -> None:
        self.size, self.etag = size, etag
        self._descriptor = descriptor
        self._sent = 0

    def send(self, sink: FifoWriter, size: int) -> None:
        sink.send(self._descriptor, self._sent, size)
        self._sent += size

    def raw(self) -> io.RawIOBase:
        return open(self._descriptor, "rb", buffering=0, closefd=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


class DecryptedBody:
    """An encrypted object of the store, decrypted while it is sent."""

    __slots__ = ("_reader", "_sent", "etag", "size")

    def __init__(self, reader: ObjectReader) -> None:
        self.size, self.etag = reader.info.size, reader.info.etag
        self._reader = reader
        self._sent = 0

    def send(self, sink: FifoWriter, size: int) -> None:
        end = self._sent + size
        while self._sent < end:
            data = self._reader.read(self._sent, min(_CHUNK_BYTES, end - self._sent))
            sink.write(data)
            self._sent += len(data)

    def raw(self) -> io.RawIOBase:
        return ReaderFile(self._reader)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()


def _next_batch(items: Iterator[bytes | ObjectRef]) -> list[bytes | ObjectRef | Exception]:
    """Take the next items, and the error after them if there is one; empty at the end."""
    batch: list[bytes | ObjectRef | Exception] = []
    size = 0
    try:
        for item in items:
            batch.append(item)
            size += len(item) if isinstance(item, bytes) else 0
            if len(batch) >= BATCH_OBJECTS or size >= _BATCH_BYTES:
                break
    except Exception as error:
        batch.append(error)
    return batch

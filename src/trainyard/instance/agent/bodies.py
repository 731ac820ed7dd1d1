"""The objects of a Pipe channel, found and opened in the order in which they are sent."""

import io
import os
import select
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol, Self

from trainyard.foundation.errors import Corrupt
from trainyard.foundation.locations import Location
from trainyard.objects.filesystem import FilesystemObjects, StoredFile

AT_ONCE = 500  # objects looked up together
_READ = os.O_RDONLY | os.O_CLOEXEC
_HELD_BYTES = 8 << 20  # of other items meanwhile


class Closing(Exception):
    """The feeder shall end, for the program has."""


class Sink:
    """The writing end of a FIFO, which must not block; `wake` becomes readable when the feeder shall end.

    Every method may raise BrokenPipeError, when nobody reads any more, and Closing.
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
        """Bytes of a file, by the kernel; Corrupt when it ends before."""
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
        """Raise Closing when it is time; for work that writes nothing for long."""
        if select.select([self._wake], [], [], 0)[0]:
            raise Closing

    def _wait(self) -> None:
        if any(descriptor == self._wake for descriptor, _ in self._poll.poll()):
            raise Closing


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """An object that is to be sent: its place in the channel and, where a list told them, its ETag and size."""

    where: Location
    position: int
    etag: str = ""
    size: int = 0


class Body(Protocol):
    """One version of an object, open for one thread."""

    etag: str
    size: int

    def send(self, sink: Sink, size: int) -> None:
        """The next so many bytes."""
        ...

    def raw(self) -> io.RawIOBase:
        """All of it as a file, which the body owns, to be read from its beginning, as often as need be."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class Candidate(Protocol):
    """An object whose turn it is."""

    ref: ObjectRef

    def open(self) -> Body:
        """What an ObjectAccess raises, when it cannot be read."""
        ...


class Bodies(Protocol):
    """The objects of one epoch, for one thread. `close` ends at once what is done behind the scenes."""

    def ahead(self, items: Iterable[bytes | ObjectRef]) -> Iterator[bytes | Candidate]:
        """The same items in the same order, while later ones are prepared.

        An error of `items` comes when all before it have been given.
        """
        ...

    def close(self) -> None: ...


class LocalBodies:
    """Objects that are files of this machine, many of which are looked up at once."""

    def __init__(self, store: FilesystemObjects) -> None:
        self._store = store

    def ahead(self, items: Iterable[bytes | ObjectRef]) -> "Iterator[bytes | LocalCandidate]":
        rest = iter(items)
        while batch := _batch(rest):
            files = self._files([item for item in batch if isinstance(item, ObjectRef)])
            for item in batch:
                if isinstance(item, ObjectRef):
                    yield LocalCandidate(self._store, item, files.get(item.where))
                elif isinstance(item, Exception):
                    raise item
                else:
                    yield item

    def close(self) -> None:
        """There is nothing behind the scenes."""

    def _files(self, refs: Iterable[ObjectRef]) -> dict[Location, StoredFile]:
        found: dict[Location, StoredFile] = {}
        for bucket, group in groupby(refs, key=lambda ref: ref.where.bucket):
            keys = [ref.where.key for ref in group]
            files = zip(keys, self._store.stored_files(bucket, keys), strict=True)
            found |= {Location(bucket, key): file for key, file in files if file is not None}
        return found


class Folder:
    """A folder from which files are opened, in half the time that it takes to walk to each from the root."""

    def __init__(self, path: str) -> None:
        self._skipped = len(path) + 1
        self._descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def open(self, path: str) -> int:
        """A descriptor of a file below, by its whole path."""
        return os.open(path[self._skipped :], _READ, dir_fd=self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


class LocalCandidate:
    """An object of this machine, and the file that it had a moment ago."""

    __slots__ = ("_file", "_store", "ref")

    def __init__(self, store: FilesystemObjects, ref: ObjectRef, file: StoredFile | None) -> None:
        self.ref = ref
        self._store = store
        self._file = file

    def open(self) -> "LocalBody":
        """By that file, if it is still there."""
        if self._file is not None:
            try:
                descriptor = os.open(self._file.path, _READ)
            except FileNotFoundError:
                pass
            else:
                return LocalBody(descriptor, self._file.size, self._file.etag)
        with self._store.open(self.ref.where) as reader:
            return LocalBody(os.dup(reader.file.fileno()), reader.info.size, reader.info.etag)


class LocalBody:
    """A file of the store, which the kernel sends."""

    __slots__ = ("_descriptor", "_sent", "etag", "size")

    def __init__(self, descriptor: int, size: int, etag: str) -> None:
        self.size, self.etag = size, etag
        self._descriptor = descriptor
        self._sent = 0

    def send(self, sink: Sink, size: int) -> None:
        sink.send(self._descriptor, self._sent, size)
        self._sent += size

    def raw(self) -> io.RawIOBase:
        return open(self._descriptor, "rb", buffering=0, closefd=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def _batch(items: Iterator[bytes | ObjectRef]) -> list[bytes | ObjectRef | Exception]:
    """Some of the items, and what went wrong after them; nothing at the end."""
    batch: list[bytes | ObjectRef | Exception] = []
    held = 0
    try:
        for item in items:
            batch.append(item)
            held += len(item) if isinstance(item, bytes) else 0
            if len(batch) >= AT_ONCE or held >= _HELD_BYTES:
                break
    except Exception as error:
        batch.append(error)
    return batch

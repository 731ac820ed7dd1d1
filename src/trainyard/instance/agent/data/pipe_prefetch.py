"""Prefetches objects of a remote S3 for a Pipe channel while earlier ones are sent.

Objects are fetched in chunks, several at a time and in order, within a limit in bytes.
"""

import io
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import suppress
from queue import SimpleQueue
from typing import Self

from trainyard.instance.agent.data.pipe_objects import FifoWriter, ObjectRef
from trainyard.objects.contract import ObjectVersion, ObjectVersions

CHUNK_BYTES = 4 << 20
# Requested but not sent yet.
BUFFER_BYTES = 64 << 20

_THREADS = 16
# Started but not sent yet.
_MAX_OBJECTS = 1024
_CHECK_INTERVAL_S = 0.05


class RemoteBodySource:
    """Implements `BodySource`. `check` is called while waiting for the remote, and may raise."""

    def __init__(self, versions: ObjectVersions, *, check: Callable[[], None]) -> None:
        self._versions = versions
        self._check = check
        self._is_over = threading.Event()
        self._threads = _PrefetchThreads()
        self._held_bytes = 0
        self._queue: deque[bytes | RemotePendingObject | Exception] = deque()
        # Large objects whose chunks have not all been requested.
        self._unfinished: deque[RemotePendingObject] = deque()

    def prefetch(self, items: Iterable[bytes | ObjectRef]) -> "Iterator[bytes | RemotePendingObject]":
        rest = iter(items)
        while self._fill(rest) or self._queue:
            item = self._queue.popleft()
            if isinstance(item, Exception):
                raise item
            if isinstance(item, bytes):
                self._held_bytes -= len(item)
                yield item
            else:
                yield item
                item.discard()

    def close(self) -> None:
        self._is_over.set()
        self._threads.close()

    def submit(self, work: "Callable[[], ObjectChunk]") -> "Future[ObjectChunk]":
        return self._threads.submit(work)

    def wait_for(self, chunk: "Future[ObjectChunk]") -> "ObjectChunk":
        """Wait for a chunk; raises its error, or what `check` raises."""
        while not chunk.done():
            wait((chunk,), timeout=_CHECK_INTERVAL_S)
            self._check()
        return chunk.result()

    def pause(self, seconds: float) -> None:
        if self._is_over.wait(seconds):
            raise _PrefetchCancelled

    def add_held_bytes(self, size: int) -> None:
        self._held_bytes += size

    def request_more(self) -> None:
        """Request more chunks of the objects that were started, the oldest first."""
        while self._unfinished and self._held_bytes < BUFFER_BYTES:
            if not self._unfinished[0].request_next():
                self._unfinished.popleft()

    def request_first(self, pending: "RemotePendingObject") -> None:
        """Request the rest of an object before all others, because it is sent next."""
        self._unfinished.appendleft(pending)
        self.request_more()

    def newest(self, ref: ObjectRef) -> ObjectVersion:
        return self._versions.newest(ref.where, pause=self.pause)

    def _fill(self, rest: Iterator[bytes | ObjectRef]) -> bool:
        """Start the next objects while there is room. Return whether there are more."""
        self.request_more()
        while self._held_bytes < BUFFER_BYTES and len(self._queue) < _MAX_OBJECTS:
            try:
                item = next(rest, None)
            except Exception as error:
                self._queue.append(error)
                return True
            if item is None:
                return False
            if isinstance(item, bytes):
                self._held_bytes += len(item)
                self._queue.append(item)
            else:
                self._queue.append(self._start_object(item))
        return True

    def _start_object(self, ref: ObjectRef) -> "RemotePendingObject":
        known = self._versions.from_listing(ref.where, etag=ref.etag, size=ref.size) if ref.etag else None
        pending = RemotePendingObject(self, ref, known)
        pending.request_next()
        if known is not None and known.size > CHUNK_BYTES:
            self._unfinished.append(pending)
        return pending


class ObjectChunk:
    """Bytes of one version of an object."""

    __slots__ = ("data", "version")

    def __init__(self, version: ObjectVersion, data: bytes) -> None:
        self.version, self.data = version, data


class _PrefetchCancelled(Exception):
    """The source was closed while a chunk was being fetched."""


class RemotePendingObject:
    """An object that is being fetched. The size of one that was not listed is known with its first chunk."""

    def __init__(self, bodies: RemoteBodySource, ref: ObjectRef, version: ObjectVersion | None) -> None:
        self.ref = ref
        self._source = bodies
        self._version = version
        self._requested_bytes = 0
        # Chunks and the bytes that are reserved for each.
        self._chunks: deque[tuple[int, Future[ObjectChunk]]] = deque()

    def request_next(self) -> bool:
        """Request the next chunk; False when all are requested."""
        version, offset = self._version, self._requested_bytes
        if version is None:
            if offset:
                return False
            size = CHUNK_BYTES
            future = self._source.submit(self._fetch_first)
        else:
            size = min(CHUNK_BYTES, version.size - offset)
            if size <= 0:
                return False
            pause = self._source.pause
            future = self._source.submit(lambda: ObjectChunk(version, version.read(offset, size, pause=pause)))
        self._requested_bytes += size
        self._source.add_held_bytes(size)
        self._chunks.append((size, future))
        return True

    def open(self) -> "RemoteBody":
        if self._version is None:
            self._version = self._source.wait_for(self._chunks[0][1]).version
            self._source.request_first(self)
        return RemoteBody(self, self._version)

    def next_chunk(self) -> bytes:
        """Return the next chunk; empty at the end."""
        if not self._chunks and not self.request_next():
            return b""
        held, future = self._chunks.popleft()
        try:
            data = self._source.wait_for(future).data
        finally:
            self._source.add_held_bytes(-held)
        self._source.request_more()
        return data

    def restart(self) -> "RemotePendingObject":
        """Return the same version from its beginning."""
        other = RemotePendingObject(self._source, self.ref, self._version)
        self._source.request_first(other)
        return other

    def discard(self) -> None:
        """Release the chunks that were not read."""
        while self._chunks:
            self._source.add_held_bytes(-self._chunks.popleft()[0])
        self._requested_bytes = self._version.size if self._version is not None else CHUNK_BYTES

    def _fetch_first(self) -> ObjectChunk:
        version = self._source.newest(self.ref)
        return ObjectChunk(version, version.read(0, CHUNK_BYTES, pause=self._source.pause))


class RemoteBody:
    """Implements `Body`."""

    def __init__(self, pending: RemotePendingObject, version: ObjectVersion) -> None:
        self.size, self.etag = version.size, version.etag
        self._pending = pending
        self._rest = memoryview(b"")

    def send(self, sink: FifoWriter, size: int) -> None:
        while size:
            if not self._rest:
                self._rest = memoryview(self._pending.next_chunk())
            part, self._rest = self._rest[:size], self._rest[size:]
            sink.write(part)
            size -= len(part)

    def raw(self) -> io.RawIOBase:
        return _RemoteBodyFile(self._pending)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: the rest is released when the next object is sent."""


class _RemoteBodyFile(io.RawIOBase):
    """The chunks of an object as a file that is read from front to back, and can be rewound."""

    def __init__(self, pending: RemotePendingObject) -> None:
        self._pending = pending
        self._rest = memoryview(b"")
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if (offset, whence) != (0, io.SEEK_SET):
            raise io.UnsupportedOperation("this file can only be rewound to its beginning")
        self._pending.discard()
        self._pending = self._pending.restart()
        self._rest, self._position = memoryview(b""), 0
        return 0

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if not self._rest:
            self._rest = memoryview(self._pending.next_chunk())
        part = self._rest[: len(buffer)]
        buffer[: len(part)] = part
        self._rest = self._rest[len(part) :]
        self._position += len(part)
        return len(part)

    def close(self) -> None:
        self._pending.discard()
        super().close()


class _PrefetchThreads:
    """Daemon threads that are started when there is work."""

    def __init__(self) -> None:
        self._work: SimpleQueue[tuple[Callable[[], ObjectChunk], Future[ObjectChunk]] | None] = SimpleQueue()
        self._count = 0
        self._is_closed = False

    def submit(self, work: Callable[[], ObjectChunk]) -> "Future[ObjectChunk]":
        future: Future[ObjectChunk] = Future()
        self._work.put((work, future))
        if self._count < _THREADS:
            self._count += 1
            threading.Thread(target=self._run, name=f"prefetch-{self._count}", daemon=True).start()
        return future

    def close(self) -> None:
        self._is_closed = True
        for _ in range(self._count):
            self._work.put(None)

    def _run(self) -> None:
        while (task := self._work.get()) is not None:
            work, future = task
            if self._is_closed or not future.set_running_or_notify_cancel():
                continue
            with suppress(_PrefetchCancelled):
                try:
                    future.set_result(work())
                except Exception as error:
                    future.set_exception(error)

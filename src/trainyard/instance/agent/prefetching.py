"""Objects of a remote S3 for a Pipe channel: those that come next are fetched while one is sent.

Objects are fetched in pieces, several at a time and in their order, never more of them at once than a bound in bytes.
"""

import io
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import suppress
from queue import SimpleQueue
from typing import Self

from trainyard.instance.agent.bodies import ObjectRef, Sink
from trainyard.objects.contract import ObjectVersion, ObjectVersions

PIECE_BYTES = 4 << 20
HELD_BYTES = 64 << 20  # fetched or under way, and not sent yet

_THREADS = 16  # each with a request under way
_MOST_OBJECTS = 1024  # begun and not sent yet
_LOOK_S = 0.05  # between two calls of `check` while nothing comes


class RemoteBodies:
    """Implements `Bodies`. `check` may raise while one waits for the remote, to end it."""

    def __init__(self, versions: ObjectVersions, *, check: Callable[[], None]) -> None:
        self._versions = versions
        self._check = check
        self._is_over = threading.Event()
        self._workers = _Workers()
        self._held = 0
        self._line: deque[bytes | RemoteCandidate | Exception] = deque()
        self._unfinished: deque[RemoteCandidate] = deque()  # large ones of which not all pieces are asked for

    def ahead(self, items: Iterable[bytes | ObjectRef]) -> "Iterator[bytes | RemoteCandidate]":
        rest = iter(items)
        while self._fill(rest) or self._line:
            item = self._line.popleft()
            if isinstance(item, Exception):
                raise item
            if isinstance(item, bytes):
                self._held -= len(item)
                yield item
            else:
                yield item
                item.forget()

    def close(self) -> None:
        self._is_over.set()
        self._workers.close()

    def ask(self, work: "Callable[[], Piece]") -> "Future[Piece]":
        return self._workers.ask(work)

    def wait_for(self, piece: "Future[Piece]") -> "Piece":
        """What a piece is; or what went wrong with it, or `check` raises."""
        while not piece.done():
            wait((piece,), timeout=_LOOK_S)
            self._check()
        return piece.result()

    def pause(self, seconds: float) -> None:
        if self._is_over.wait(seconds):
            raise _GivenUp

    def hold(self, size: int) -> None:
        self._held += size

    def go_on(self) -> None:
        """Ask for more of what was begun, the oldest first."""
        while self._unfinished and self._held < HELD_BYTES:
            if not self._unfinished[0].ask_next():
                self._unfinished.popleft()

    def hurry(self, candidate: "RemoteCandidate") -> None:
        """Ask for the rest of an object, which is wanted now, before all others."""
        self._unfinished.appendleft(candidate)
        self.go_on()

    def newest(self, ref: ObjectRef) -> ObjectVersion:
        return self._versions.newest(ref.where, pause=self.pause)

    def _fill(self, rest: Iterator[bytes | ObjectRef]) -> bool:
        """Begin what comes next, as long as there is room; whether there is more."""
        self.go_on()
        while self._held < HELD_BYTES and len(self._line) < _MOST_OBJECTS:
            try:
                item = next(rest, None)
            except Exception as error:
                self._line.append(error)
                return True
            if item is None:
                return False
            if isinstance(item, bytes):
                self._held += len(item)
                self._line.append(item)
            else:
                self._line.append(self._begin(item))
        return True

    def _begin(self, ref: ObjectRef) -> "RemoteCandidate":
        known = self._versions.known(ref.where, etag=ref.etag, size=ref.size) if ref.etag else None
        candidate = RemoteCandidate(self, ref, known)
        candidate.ask_next()
        if known is not None and known.size > PIECE_BYTES:
            self._unfinished.append(candidate)
        return candidate


class Piece:
    """Some bytes of a version."""

    __slots__ = ("data", "version")

    def __init__(self, version: ObjectVersion, data: bytes) -> None:
        self.version, self.data = version, data


class _GivenUp(Exception):
    """Nobody waits for it any more."""


class RemoteCandidate:
    """An object that is being fetched. Where no list has told its size, it is known with its first piece."""

    def __init__(self, bodies: RemoteBodies, ref: ObjectRef, version: ObjectVersion | None) -> None:
        self.ref = ref
        self._bodies = bodies
        self._version = version
        self._asked = 0  # bytes
        self._pieces: deque[tuple[int, Future[Piece]]] = deque()  # with the bytes that are held for it

    def ask_next(self) -> bool:
        """Whether there was another piece to ask for."""
        version, offset = self._version, self._asked
        if version is None:
            if offset:
                return False
            size = PIECE_BYTES
            future = self._bodies.ask(self._first)
        else:
            size = min(PIECE_BYTES, version.size - offset)
            if size <= 0:
                return False
            pause = self._bodies.pause
            future = self._bodies.ask(lambda: Piece(version, version.read(offset, size, pause=pause)))
        self._asked += size
        self._bodies.hold(size)
        self._pieces.append((size, future))
        return True

    def open(self) -> "RemoteBody":
        if self._version is None:
            self._version = self._bodies.wait_for(self._pieces[0][1]).version
            self._bodies.hurry(self)
        return RemoteBody(self, self._version)

    def take(self) -> bytes:
        """The next piece; empty at the end."""
        if not self._pieces and not self.ask_next():
            return b""
        held, future = self._pieces.popleft()
        try:
            data = self._bodies.wait_for(future).data
        finally:
            self._bodies.hold(-held)
        self._bodies.go_on()
        return data

    def again(self) -> "RemoteCandidate":
        """The same version from its beginning."""
        other = RemoteCandidate(self._bodies, self.ref, self._version)
        self._bodies.hurry(other)
        return other

    def forget(self) -> None:
        """Let go of what was not taken."""
        while self._pieces:
            self._bodies.hold(-self._pieces.popleft()[0])
        self._asked = self._version.size if self._version is not None else PIECE_BYTES

    def _first(self) -> Piece:
        version = self._bodies.newest(self.ref)
        return Piece(version, version.read(0, PIECE_BYTES, pause=self._bodies.pause))


class RemoteBody:
    """Implements `Body`."""

    def __init__(self, candidate: RemoteCandidate, version: ObjectVersion) -> None:
        self.size, self.etag = version.size, version.etag
        self._candidate = candidate
        self._rest = memoryview(b"")

    def send(self, sink: Sink, size: int) -> None:
        while size:
            if not self._rest:
                self._rest = memoryview(self._candidate.take())
            part, self._rest = self._rest[:size], self._rest[size:]
            sink.write(part)
            size -= len(part)

    def raw(self) -> io.RawIOBase:
        return _Stream(self._candidate)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """What is left of it is let go when the next one's turn comes."""


class _Stream(io.RawIOBase):
    """The pieces of an object as a file that is read from front to back, and again from its beginning."""

    def __init__(self, candidate: RemoteCandidate) -> None:
        self._candidate = candidate
        self._rest = memoryview(b"")
        self._place = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if (offset, whence) != (0, io.SEEK_SET):
            raise io.UnsupportedOperation("only the beginning can be sought")
        self._candidate.forget()
        self._candidate = self._candidate.again()
        self._rest, self._place = memoryview(b""), 0
        return 0

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if not self._rest:
            self._rest = memoryview(self._candidate.take())
        part = self._rest[: len(buffer)]
        buffer[: len(part)] = part
        self._rest = self._rest[len(part) :]
        self._place += len(part)
        return len(part)

    def close(self) -> None:
        self._candidate.forget()
        super().close()


class _Workers:
    """Threads that are started when there is work, and that keep no process alive."""

    def __init__(self) -> None:
        self._work: SimpleQueue[tuple[Callable[[], Piece], Future[Piece]] | None] = SimpleQueue()
        self._count = 0
        self._is_closed = False

    def ask(self, work: Callable[[], Piece]) -> "Future[Piece]":
        future: Future[Piece] = Future()
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
        while (asked := self._work.get()) is not None:
            work, future = asked
            if self._is_closed or not future.set_running_or_notify_cancel():
                continue
            with suppress(_GivenUp):
                try:
                    future.set_result(work())
                except Exception as error:
                    future.set_exception(error)

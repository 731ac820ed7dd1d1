"""Write the body of a request to the store.

The event loop receives, worker threads write. A small body takes a single switch of threads. A large one is written in
batches, each while the next arrives, so that at most two are in memory.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

from trainyard.foundation.locations import Location
from trainyard.objects.contract import CountsStorage, ObjectStore, ObjectWriter
from trainyard.server.services.contract import Shape
from trainyard.server.services.s3.faults import too_large
from trainyard.wire.fault import Fault
from trainyard.wire.http import ByteStream

BATCH_BYTES = 1024 * 1024
MAX_BODY_BYTES = 5 * 1024**3

T = TypeVar("T")


def body_size(shape: Shape) -> int:
    """Return the length that the request gives for its body; an error if it gives none or exceeds the limit."""
    size: int | None = shape.get("ContentLength")
    if size is None or size < 0:
        raise Fault("MissingContentLength", "The Content-Length header is required.", status=411)
    if size > MAX_BODY_BYTES:
        raise too_large(size, MAX_BODY_BYTES)
    return size


def require_space(objects: ObjectStore, where: Location, size: int) -> None:
    """Refuse a body before it is sent if the disk or the storage quota of the bucket's account has no room for it."""
    if isinstance(objects, CountsStorage):
        objects.require_space(where, size)


async def receive_body(
    body: ByteStream, size: int, *, begin: Callable[[], ObjectWriter], finish: Callable[[ObjectWriter], T]
) -> T:
    """Write the body to the writer that `begin` opens, then call `finish`. Both run in a worker thread.

    If the body, the store or the connection fails, the writer is aborted and the error raised.
    """
    if size <= BATCH_BYTES:
        pieces = [piece async for piece in _require_length(body, size)]
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        return await asyncio.get_running_loop().run_in_executor(None, _write_at_once, data, begin, finish)
    body_writer = _BodyWriter(begin)
    try:
        # Open before reading the first byte: nobody should send gigabytes only to learn that the bucket does not exist.
        await body_writer.run(body_writer.open)
        await _write_batches(_require_length(body, size), body_writer)
        return await body_writer.run(lambda: finish(body_writer.writer))
    except BaseException:
        await body_writer.abort()
        raise


class _BodyWriter:
    """An object writer driven from the event loop, one step at a time, in worker threads."""

    def __init__(self, begin: Callable[[], ObjectWriter]) -> None:
        self._begin = begin
        self._opened: ObjectWriter | None = None
        self._step: asyncio.Future[Any] | None = None

    @property
    def writer(self) -> ObjectWriter:
        assert self._opened is not None, "a body is written to a writer that was opened"
        return self._opened

    def open(self) -> None:
        self._opened = self._begin()

    async def run(self, step: Callable[[], T]) -> T:
        """Run a step and wait for it."""
        await self._last_step()
        future = asyncio.get_running_loop().run_in_executor(None, step)
        self._step = future
        return await asyncio.shield(future)

    async def write(self, data: bytes) -> None:
        """Start to write; the next step, or `abort`, waits for it."""
        await self._last_step()
        self._step = asyncio.get_running_loop().run_in_executor(None, self.writer.write, data)

    async def abort(self) -> None:
        # A thread cannot be interrupted, and the writer allows only one: wait for the running step, even if cancelled.
        if self._step is not None:
            await asyncio.wait([self._step])
            self._step.exception()
        if self._opened is not None:
            await asyncio.to_thread(self._opened.abort)

    async def _last_step(self) -> None:
        if self._step is not None:
            await asyncio.shield(self._step)


async def _require_length(body: ByteStream, size: int) -> AsyncIterator[bytes]:
    """Yield the body; IncompleteBody if it does not have the announced length."""
    received = 0
    async for piece in body:
        received += len(piece)
        if received > size:
            break
        yield piece
    if received != size:
        raise Fault("IncompleteBody", f"The body does not have the announced {size} bytes.")


async def _write_batches(body: AsyncIterator[bytes], body_writer: _BodyWriter) -> None:
    pieces: list[bytes] = []
    size = 0
    async for piece in body:
        pieces.append(piece)
        size += len(piece)
        if size >= BATCH_BYTES:
            await body_writer.write(b"".join(pieces))
            pieces, size = [], 0
    if pieces:
        await body_writer.write(b"".join(pieces))


def _write_at_once(data: bytes, begin: Callable[[], ObjectWriter], finish: Callable[[ObjectWriter], T]) -> T:
    writer = begin()
    try:
        if data:
            writer.write(data)
        return finish(writer)
    except BaseException:
        writer.abort()
        raise

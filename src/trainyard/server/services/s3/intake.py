"""Bodies on their way into the store.

The loop receives, worker threads write. A small body costs one change of thread for everything; a large one is written
in batches, each while the next arrives, so that it never holds more than two in memory.
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
    """The length of the object or part that the request announces; it must, and within the limit."""
    size: int | None = shape.get("ContentLength")
    if size is None or size < 0:
        raise Fault("MissingContentLength", "Give the length of the body in Content-Length.", status=411)
    if size > MAX_BODY_BYTES:
        raise too_large(size, MAX_BODY_BYTES)
    return size


def require_room(objects: ObjectStore, where: Location, size: int) -> None:
    """Refuse what there is no room for before it is sent: on the disk, or in what the bucket's account may keep."""
    if isinstance(objects, CountsStorage):
        objects.require_room(where, size)


async def receive(
    body: ByteStream, size: int, *, begin: Callable[[], ObjectWriter], finish: Callable[[ObjectWriter], T]
) -> T:
    """Write the body to what `begin` makes and end with `finish`; both run in a worker thread.

    Whatever goes wrong, in the body, the store or the client's patience, the writer is aborted and the error raised.
    """
    if size <= BATCH_BYTES:
        pieces = [piece async for piece in _measured(body, size)]
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        return await asyncio.get_running_loop().run_in_executor(None, _at_once, data, begin, finish)
    intake = _Intake(begin)
    try:
        # Opened before the first byte is read: nobody should send gigabytes to learn that the bucket is not there.
        await intake.run(intake.open)
        await _pour(_measured(body, size), intake)
        return await intake.run(lambda: finish(intake.writer))
    except BaseException:
        await intake.abort()
        raise


class _Intake:
    """A writer driven from the loop: one step at a time, in a worker thread."""

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
        """Take a step and wait for it."""
        await self._last_step()
        future = asyncio.get_running_loop().run_in_executor(None, step)
        self._step = future
        return await asyncio.shield(future)

    async def write(self, data: bytes) -> None:
        """Begin to write; the next step, or `abort`, waits for it."""
        await self._last_step()
        self._step = asyncio.get_running_loop().run_in_executor(None, self.writer.write, data)

    async def abort(self) -> None:
        # A thread cannot be interrupted, and the writer bears only one: what runs is waited for, even when cancelled.
        if self._step is not None:
            await asyncio.wait([self._step])
            self._step.exception()
        if self._opened is not None:
            await asyncio.to_thread(self._opened.abort)

    async def _last_step(self) -> None:
        if self._step is not None:
            await asyncio.shield(self._step)


async def _measured(body: ByteStream, size: int) -> AsyncIterator[bytes]:
    """The body, held to the length that was announced for it."""
    received = 0
    async for piece in body:
        received += len(piece)
        if received > size:
            break
        yield piece
    if received != size:
        raise Fault("IncompleteBody", f"The body does not have the {size} bytes that were announced.")


async def _pour(body: AsyncIterator[bytes], intake: _Intake) -> None:
    pieces: list[bytes] = []
    size = 0
    async for piece in body:
        pieces.append(piece)
        size += len(piece)
        if size >= BATCH_BYTES:
            await intake.write(b"".join(pieces))
            pieces, size = [], 0
    if pieces:
        await intake.write(b"".join(pieces))


def _at_once(data: bytes, begin: Callable[[], ObjectWriter], finish: Callable[[ObjectWriter], T]) -> T:
    writer = begin()
    try:
        if data:
            writer.write(data)
        return finish(writer)
    except BaseException:
        writer.abort()
        raise

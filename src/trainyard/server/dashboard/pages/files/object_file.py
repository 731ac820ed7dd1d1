"""Reads an object as a file, within limits, for libraries that know only files."""

import asyncio
import io
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from trainyard.server.dashboard.api import ApiFault, YardApi, read_body

# Answers up to this size come from memory.
BUFFER_BYTES = 256 * 1024
# Threads that read archives and the like at the same time; the yard needs the others.
_READERS = asyncio.Semaphore(3)

Read = TypeVar("Read")


class ReadingLimit(Exception):
    """Reading a file further would take too long, or too much memory."""


@dataclass(frozen=True, slots=True)
class FoundObject:
    """An object as it was when it was opened. `owner` is the account that its bucket must belong to."""

    bucket: str
    key: str
    owner: str
    size: int
    etag: str
    modified_at: datetime

    @property
    def name(self) -> str:
        return self.key.rstrip("/").rpartition("/")[2]


async def find_object(api: YardApi, bucket: str, key: str, *, owner: str) -> FoundObject:
    """Look an object up. ApiFault if the user can see none."""
    head = await api.call("s3", "HeadObject", {"Bucket": bucket, "Key": key, "ExpectedBucketOwner": owner})
    return FoundObject(bucket, key, owner, head["ContentLength"], head["ETag"], head["LastModified"])


async def read_range(api: YardApi, found: FoundObject, first: int, size_bytes: int) -> bytes:
    """Return a part of an object, and less at its end. ApiFault if the object has changed since it was found."""
    size_bytes = min(size_bytes, found.size - first)
    if size_bytes <= 0:
        return b""
    shape = {
        "Bucket": found.bucket,
        "Key": found.key,
        "ExpectedBucketOwner": found.owner,
        "IfMatch": found.etag,
        "Range": f"bytes={first}-{first + size_bytes - 1}",
    }
    try:
        answer = await api.call("s3", "GetObject", shape)
    except ApiFault as fault:
        if fault.code == "PreconditionFailed":
            raise ApiFault("Changed", "The file has changed meanwhile; open it again.", status=409) from fault
        raise
    return await read_body(answer["Body"], size_bytes)


async def read_as_file(
    api: YardApi, found: FoundObject, read: Callable[[io.BufferedReader], Read], *, limit_bytes: int, limit_s: float
) -> Read:
    """Return what a function reads from an object, in a worker thread. It gets a ReadingLimit beyond the limits."""
    async with _READERS:
        raw = _ObjectFile(api, found, asyncio.get_running_loop(), limit_bytes, limit_s)
        return await asyncio.to_thread(read, io.BufferedReader(raw, BUFFER_BYTES))


class _ObjectFile(io.RawIOBase):
    """An object as a raw file. Only worker threads may read it: they wait for the loop."""

    def __init__(
        self, api: YardApi, found: FoundObject, loop: asyncio.AbstractEventLoop, limit_bytes: int, limit_s: float
    ) -> None:
        self._api, self._found, self._loop = api, found, loop
        self._left_bytes, self._deadline = limit_bytes, time.monotonic() + limit_s
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._found.size}[whence]
        if start + offset < 0:
            raise OSError("A file has no bytes before its first.")
        self._position = start + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        if self._left_bytes <= 0 or time.monotonic() > self._deadline:
            raise ReadingLimit
        reading = read_range(self._api, self._found, self._position, len(view))
        data = asyncio.run_coroutine_threadsafe(reading, self._loop).result()
        view[: len(data)] = data
        self._position += len(data)
        self._left_bytes -= len(data)
        return len(data)

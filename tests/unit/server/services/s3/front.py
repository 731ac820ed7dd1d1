"""Call the S3 operations as the app does, without HTTP."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import pytest

from trainyard.foundation.errors import TrainyardError
from trainyard.server.identity import Caller
from trainyard.server.services.contract import Call, Shape, Yard
from trainyard.server.services.s3 import FAULTS, OPERATIONS
from trainyard.wire.fault import Fault
from trainyard.wire.http import ClosableBytes, FileSlice, Headers, HttpRequest

NOON = datetime(2026, 7, 1, 12, 0, 0, 250_000, tzinfo=UTC)

OWNER = "111122223333"
STRANGER = "444455556666"
ADMINISTRATOR = "999900001111"

STREAMING = frozenset({"PutObject", "UploadPart"})


@dataclass
class Body:
    """The body of a request in pieces; `breaks_with` is raised at its end."""

    pieces: Sequence[bytes]
    trailing: Mapping[str, str] = field(default_factory=dict)
    breaks_with: Exception | None = None
    is_read: bool = False

    @property
    def trailers(self) -> Mapping[str, str]:
        assert self.is_read, "trailers are known only after the end"
        return self.trailing

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            await asyncio.sleep(0)
            yield piece
        if self.breaks_with is not None:
            raise self.breaks_with
        self.is_read = True


@dataclass
class Front:
    """S3 for one caller. Errors are raised as the faults that the app would return."""

    yard: Yard
    caller: Caller
    region: str = "us-west-2"
    now: datetime = NOON
    document: bytes = b""

    def __call__(self, operation: str, **shape: Any) -> Shape:
        """Call an operation with the members of the request and `headers`."""
        headers = {"host": "yard.test:7000", **shape.pop("headers", {})}
        if operation in STREAMING:
            body = shape.setdefault("Body", b"")
            if isinstance(body, bytes):
                shape["Body"] = Body([body])
                shape.setdefault("ContentLength", len(body))
        path = f"/{shape.get('Bucket', '')}/{quote(shape.get('Key', ''), errors='surrogatepass')}"
        http = HttpRequest("POST", path, "", Headers(headers.items()), self.document)
        call = Call(self.yard, self.caller, self.region, "REQUEST1", self.now, http)
        try:
            return _result(OPERATIONS[operation](call, shape))
        except TrainyardError as error:
            raise FAULTS.fault(error) from error

    def put(self, bucket: str, key: str, body: bytes = b"", **shape: Any) -> Shape:
        return self("PutObject", Bucket=bucket, Key=key, Body=body, **shape)

    def get(self, bucket: str, key: str, **shape: Any) -> Shape:
        """Call GetObject and read the whole body."""
        answer = self("GetObject", Bucket=bucket, Key=key, **shape)
        return answer | {"Body": read(answer["Body"])}

    def keys(self, bucket: str) -> list[str]:
        return [entry["Key"] for entry in self("ListObjectsV2", Bucket=bucket)["Contents"]]


def refused_put(s3: Front, *, key: str = "key", body: Any = b"hello", **shape: Any) -> Fault:
    """Return the fault of a put, which must leave nothing behind."""
    with pytest.raises(Fault) as caught:
        s3("PutObject", Bucket="data", Key=key, Body=body, **shape)
    assert s3.keys("data") == []
    return caught.value


def caller(account: str, *, is_admin: bool = False) -> Caller:
    return Caller(account, f"user-{account}", "TrainyardRole", "session", is_admin, f"AKIA{account}")


def read(body: "bytes | FileSlice | ClosableBytes") -> bytes:
    """Read the body of an answer as the app does."""
    if isinstance(body, bytes):
        return body
    if isinstance(body, FileSlice):
        with closing(body.file) as file:
            file.seek(body.offset)
            return file.read(body.size)
    return asyncio.run(_joined(body))


async def _joined(stream: ClosableBytes) -> bytes:
    try:
        return b"".join([piece async for piece in stream])
    finally:
        await stream.aclose()


def _result(returned: Shape | Awaitable[Shape]) -> Shape:
    if isinstance(returned, dict):
        return returned
    return asyncio.run(_awaited(returned))


async def _awaited(returned: Awaitable[Shape]) -> Shape:
    return await returned

"""Calls operations of the public API inside the yard's process, as the user who is signed in.

A call passes the same validation and the same authorisation as one that came over HTTP, so a page can show and change
only what its user could read and change with a client.
"""

import asyncio
import inspect
import json
import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, cast

from trainyard.foundation.clock import Clock
from trainyard.foundation.errors import NotFound, TrainyardError
from trainyard.server.identity import Caller
from trainyard.server.services.contract import Call, PlainOperation, Shape, Yard
from trainyard.server.services.registry import service
from trainyard.wire.http import ClosableBytes, FileSlice, Headers, HttpRequest
from trainyard.wire.models import Models
from trainyard.wire.validation import validator

_NO_REQUEST = HttpRequest("POST", "/", "", Headers())


class ApiFault(Exception):
    """The answer of an operation that refused or failed: the code and message that a client would get."""

    def __init__(self, code: str, message: str, *, status: int) -> None:
        super().__init__(message)
        self.code, self.message, self.status = code, message, status


@dataclass(frozen=True, slots=True)
class YardApi:
    """The public API as one caller sees it. ApiFault from any call that the operation refuses."""

    yard: Yard
    models: Models
    caller: Caller
    region: str
    clock: Clock

    async def call(self, name: str, operation: str, shape: Shape | None = None) -> Shape:
        """Call an operation of a service by its AWS name. Members without a value are left out of the answer."""
        given = {} if shape is None else shape
        table = service(name)
        call = Call(self.yard, self.caller, self.region, secrets.token_hex(8).upper(), self.clock(), _NO_REQUEST)
        try:
            model = self.models.service(name).operation_model(operation)
            validator(name, model)(given)
            function = table.operations[operation]
            if inspect.iscoroutinefunction(function):
                answer = await function(call, given)
            else:
                answer = await asyncio.to_thread(cast(PlainOperation, function), call, given)
        except TrainyardError as error:
            fault = table.faults.fault(error)
            # Most of AWS's faults are a 400, also for what does not exist.
            status = 404 if isinstance(error, NotFound) else fault.status
            raise ApiFault(fault.code, fault.message, status=status) from error
        return cast(Shape, _without_none(answer))

    async def lines(self, name: str, operation: str, shape: Shape) -> AsyncGenerator[dict[str, Any], None]:
        """Call an operation that answers with JSON lines, and yield them as they come."""
        answer = await self.call(name, operation, shape)
        body: ClosableBytes = next(value for value in answer.values() if hasattr(value, "__aiter__"))
        rest = b""
        async with aclosing(body) as pieces:
            async for piece in pieces:
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    if line:
                        yield json.loads(line)

    async def read_object(self, bucket: str, key: str, *, first: int = 0, size_bytes: int) -> bytes:
        """Return a part of an object, at most this size, and less at its end."""
        byte_range = f"bytes={first}-{first + size_bytes - 1}"
        try:
            answer = await self.call("s3", "GetObject", {"Bucket": bucket, "Key": key, "Range": byte_range})
        except ApiFault as fault:
            if fault.code == "InvalidRange":
                return b""
            raise
        return await read_body(answer["Body"], size_bytes)


async def read_body(body: bytes | FileSlice | ClosableBytes, limit_bytes: int) -> bytes:
    """Return the start of a body, at most this size, and close it."""
    if isinstance(body, bytes):
        return body[:limit_bytes]
    if isinstance(body, FileSlice):
        return await asyncio.to_thread(_read_slice, body, limit_bytes)
    pieces, size = list[bytes](), 0
    async with aclosing(body) as stream:
        async for piece in stream:
            pieces.append(piece)
            size += len(piece)
            if size >= limit_bytes:
                break
    return b"".join(pieces)[:limit_bytes]


def _read_slice(body: FileSlice, limit_bytes: int) -> bytes:
    with body.file as file:
        file.seek(body.offset)
        return file.read(min(body.size, limit_bytes))


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_none(member) for name, member in value.items() if member is not None}
    if isinstance(value, list):
        return [_without_none(member) for member in value]
    return value

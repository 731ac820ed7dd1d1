"""The body of a request as ASGI delivers it."""

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

from trainyard.wire.fault import Fault
from trainyard.wire.http import Headers

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class RequestBody:
    """The bytes as they come, to be read once; `is_read` tells whether all of them have come."""

    __slots__ = ("_receive", "is_begun", "is_read")

    def __init__(self, receive: Receive, headers: Headers) -> None:
        self._receive = receive
        self.is_begun = False
        # A request that announces no body has none, and need not be waited for.
        self.is_read = "content-length" not in headers and "transfer-encoding" not in headers

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self.is_begun = True
        while not self.is_read:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise Fault("RequestTimeout", "The client closed the connection before the end of the body.")
            self.is_read = not message.get("more_body", False)
            if body := message.get("body", b""):
                yield body


async def read_whole(stream: AsyncIterable[bytes], limit_bytes: int) -> bytes:
    """All of it; a fault as soon as it grows past the limit."""
    pieces: list[bytes] = []
    size = 0
    async for piece in stream:
        size += len(piece)
        if size > limit_bytes:
            raise Fault(
                "RequestEntityTooLarge", f"The body of this request is larger than {limit_bytes} bytes.", status=413
            )
        pieces.append(piece)
    return b"".join(pieces)

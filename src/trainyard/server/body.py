"""The body of a request as ASGI delivers it, with a clock, and a ceiling for those whose sender is not proven."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

from trainyard.wire.fault import Fault
from trainyard.wire.http import Headers, read_length
from trainyard.wire.limits import too_large
from trainyard.wire.routing import Route

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

STALL_S = 30.0  # without a byte, after which a body is ended
START_S = 20.0  # that a body may take whatever its size
SLOWEST_BYTES_PER_S = 8 * 1024  # beyond that
CEILING_BYTES = 64 * 1024 * 1024  # of all unproven bodies
ACCOUNT_BYTES = 128 * 1024 * 1024  # of the bodies of one account
STREAM_BYTES = 1024 * 1024  # that are held of a stream at once

_TICK_S = 1.0


class RequestBody:
    """The bytes as they come, to be read once; `is_read` tells whether all of them have come.

    Reading raises Fault when the client goes away, and for the reason that `end` gave. `wake` makes a `receive` that
    waits return. `hold` is told of each piece but the last, after which nobody waits for the client, and may refuse it.
    """

    __slots__ = (
        "_end_reason",
        "_intake",
        "_receive",
        "_wake",
        "announced_bytes",
        "hold",
        "is_begun",
        "is_read",
        "received_bytes",
        "waited_s",
        "waiting_since",
    )

    def __init__(self, receive: Receive, headers: Headers, *, intake: "BodyIntake", wake: Callable[[], None]) -> None:
        self._receive, self._intake, self._wake = receive, intake, wake
        self.is_begun = False
        # A request that announces no body has none, and need not be waited for.
        self.is_read = "content-length" not in headers and "transfer-encoding" not in headers
        self.announced_bytes = read_length(headers.get("content-length"))
        self.received_bytes = 0
        self.hold: Callable[[int], None] | None = None
        # Only the time that is spent waiting for the client counts, not that of whoever reads.
        self.waited_s = 0.0
        self.waiting_since: float | None = None
        self._end_reason: Fault | None = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self.is_begun = True
        now = asyncio.get_running_loop().time
        self._intake.watch(self)
        try:
            while not self.is_read:
                self.waiting_since = began = now()
                message = await self._receive()
                self.waiting_since = None
                self.waited_s += now() - began
                if self._end_reason is not None:
                    raise self._end_reason
                if message["type"] == "http.disconnect":
                    raise Fault("RequestTimeout", "The client closed the connection before the end of the body.")
                self.is_read = not message.get("more_body", False)
                if body := message.get("body", b""):
                    self.received_bytes += len(body)
                    if self.hold is not None and not self.is_read:
                        self.hold(len(body))
                    yield body
        finally:
            self.waiting_since = None
            self._intake.forget(self)

    @property
    def is_ended(self) -> bool:
        """Whether the yard gave the body up, so that nothing more is to be read on its connection."""
        return self._end_reason is not None

    def end(self, reason: Fault) -> None:
        """Have whoever reads the body, or waits for more of it, raise this fault."""
        self._end_reason = reason
        self._wake()


class BodyIntake:
    """The bodies that are being received: their clock, and the ceiling for those whose sender is not proven yet.

    A body that stalls is ended, and one that is slower than a modem. What is held of unproven bodies never comes to
    more than the ceiling: where one more piece would, the body is ended that came first from the address that holds
    most. A client that sends what it announces is done before it is the first; those who hold what they do not complete
    make room for it. An account that has proven itself is refused one more body when it holds its share, and nobody
    else is.
    """

    def __init__(self, *, ceiling_bytes: int = CEILING_BYTES) -> None:
        self._ceiling_bytes = ceiling_bytes
        self._read: set[RequestBody] = set()
        self._unproven: dict[str, dict[RequestBody, int]] = {}
        self._proven: dict[str, dict[RequestBody, int]] = {}
        self._is_ticking = False
        self.held_bytes = 0

    def watch(self, body: RequestBody) -> None:
        self._read.add(body)
        if not self._is_ticking:
            self._is_ticking = True
            asyncio.get_running_loop().call_later(_TICK_S, self._tick)

    def forget(self, body: RequestBody) -> None:
        self._read.discard(body)

    def hold_for_account(self, body: RequestBody, account: str, size_bytes: int) -> None:
        """Count a piece of a proven body, of which a mebibyte is held at once; Fault where the account has no room."""
        bodies = self._proven.setdefault(account, {})
        held = bodies.get(body, 0)
        if body not in bodies and sum(bodies.values()) > ACCOUNT_BYTES:
            raise Fault("SlowDown", _NO_ROOM_FOR_ACCOUNT, status=503)
        bodies[body] = min(held + size_bytes, STREAM_BYTES)

    def hold(self, body: RequestBody, address: str, size_bytes: int) -> None:
        """Count a piece of an unproven body; Fault when there is no room for it but in its own place."""
        while self.held_bytes + size_bytes > self._ceiling_bytes:
            first = self._first_of_the_greediest()
            reason = Fault("SlowDown", _NO_ROOM, status=503)
            if first is None or first is body:
                raise reason
            first.end(reason)
            self.release(first)
        pieces = self._unproven.setdefault(address, {})
        pieces[body] = pieces.get(body, 0) + size_bytes
        self.held_bytes += size_bytes

    def release(self, body: RequestBody) -> None:
        """Forget a body that was proven, read or given up. May be repeated."""
        self.held_bytes -= _take_out(self._unproven, body)
        _take_out(self._proven, body)

    def end_slow(self, now: float) -> None:
        """End the bodies that have brought too little for the time that was spent waiting for them."""
        for body in list(self._read):
            if body.waiting_since is None:
                continue
            waits_s = now - body.waiting_since
            allowed_s = START_S + body.received_bytes / SLOWEST_BYTES_PER_S
            if waits_s > STALL_S or body.waited_s + waits_s > allowed_s:
                body.end(_too_slow(body, body.waited_s + waits_s))

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        self.end_slow(loop.time())
        self._is_ticking = bool(self._read)
        if self._is_ticking:
            loop.call_later(_TICK_S, self._tick)

    def _first_of_the_greediest(self) -> RequestBody | None:
        bodies = max(self._unproven.values(), key=lambda bodies: sum(bodies.values()), default={})
        return next(iter(bodies), None)


def _take_out(table: dict[str, dict[RequestBody, int]], body: RequestBody) -> int:
    """Remove a body from whoever holds it, and return what was held of it."""
    for holder, bodies in table.items():
        if body in bodies:
            held = bodies.pop(body)
            if not bodies:
                del table[holder]
            return held
    return 0


_NO_ROOM_FOR_ACCOUNT = (
    f"Unfinished requests of this account hold {ACCOUNT_BYTES // 1024**2} MiB. "
    "Finish some of them, or send fewer at once."
)
_NO_ROOM = "The yard holds as much of unfinished requests as it may before it knows who sent them. Please try again."


def _too_slow(body: RequestBody, waited_s: float) -> Fault:
    return Fault(
        "RequestTimeout",
        f"The body came too slowly: {body.received_bytes} bytes in {waited_s:.0f} s. A body that brings nothing for "
        f"{STALL_S:.0f} s, or after {START_S:.0f} s less than {SLOWEST_BYTES_PER_S} bytes a second, is given up. Send "
        "it again, in smaller parts if the connection is slow.",
    )


async def read_whole(stream: AsyncIterable[bytes], limit_bytes: int, *, route: Route | None) -> bytes:
    """All of it; a fault as soon as it grows past the limit."""
    pieces: list[bytes] = []
    size = 0
    async for piece in stream:
        size += len(piece)
        if size > limit_bytes:
            raise too_large(route.operation if route is not None else None, limit_bytes)
        pieces.append(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)

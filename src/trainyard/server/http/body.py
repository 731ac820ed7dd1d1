"""Request bodies from ASGI, with time limits and memory limits, and a thread that parses long ones."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from trainyard.wire.fault import Fault
from trainyard.wire.http import Headers, read_length
from trainyard.wire.limits import too_large
from trainyard.wire.routing import Route

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

# A body that brings no byte for this time is aborted.
STALL_TIMEOUT_S = 30.0
# Every body may take this time, whatever its size, and after it must keep the minimum rate.
GRACE_S = 20.0
MIN_RATE_BYTES_PER_S = 8 * 1024
# The limits for all unauthenticated bodies together, and for the bodies of one account.
UNAUTHENTICATED_LIMIT_BYTES = 64 * 1024 * 1024
ACCOUNT_LIMIT_BYTES = 128 * 1024 * 1024
# How much of a streamed body is in memory at once.
STREAM_BUFFER_BYTES = 1024 * 1024

_TICK_S = 1.0


class RequestBody:
    """Yields the bytes of a body as they arrive, once. `is_read` is true when all have arrived.

    Reading raises Fault when the client disconnects, and the fault that `abort` was given. `wake` makes a waiting
    `receive` return. `hold` is called with the size of each piece and may refuse it. It is not called for the last
    piece, because after that nobody waits for the client.
    """

    __slots__ = (
        "_abort_reason",
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
        # A request that announces no body has none, so there is nothing to wait for.
        self.is_read = "content-length" not in headers and "transfer-encoding" not in headers
        self.announced_bytes = read_length(headers.get("content-length"))
        self.received_bytes = 0
        self.hold: Callable[[int], None] | None = None
        # Only the time spent waiting for the client counts, not the time of the reader.
        self.waited_s = 0.0
        self.waiting_since: float | None = None
        self._abort_reason: Fault | None = None

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
                if self._abort_reason is not None:
                    raise self._abort_reason
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
    def is_aborted(self) -> bool:
        """Whether the yard aborted the body. Nothing more may be read on its connection."""
        return self._abort_reason is not None

    def abort(self, reason: Fault) -> None:
        """Make the reader of the body raise this fault, even while it waits for more."""
        self._abort_reason = reason
        self._wake()


class BodyIntake:
    """Tracks the bodies that are being received, and enforces their time and memory limits.

    A body that stalls or is slower than a modem is aborted. Unauthenticated bodies never hold more memory than their
    limit: if one more piece would exceed it, the oldest body from the address that holds most is aborted. A client that
    sends what it announces is done before its body is the oldest, so only incomplete bodies make room. An account that
    holds its share is refused further bodies; other accounts are not affected.
    """

    def __init__(self, *, limit_bytes: int = UNAUTHENTICATED_LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._read: set[RequestBody] = set()
        self._unauthenticated: dict[str, dict[RequestBody, int]] = {}
        self._authenticated: dict[str, dict[RequestBody, int]] = {}
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
        """Count a piece of an authenticated body, up to STREAM_BUFFER_BYTES. Fault when the account is at its limit."""
        bodies = self._authenticated.setdefault(account, {})
        held = bodies.get(body, 0)
        if body not in bodies and sum(bodies.values()) > ACCOUNT_LIMIT_BYTES:
            raise Fault("SlowDown", _NO_ROOM_FOR_ACCOUNT, status=503)
        bodies[body] = min(held + size_bytes, STREAM_BUFFER_BYTES)

    def hold(self, body: RequestBody, address: str, size_bytes: int) -> None:
        """Count a piece of an unauthenticated body. Fault when only aborting this body would make room."""
        while self.held_bytes + size_bytes > self._limit_bytes:
            first = self._oldest_of_largest_holder()
            reason = Fault("SlowDown", _NO_ROOM, status=503)
            if first is None or first is body:
                raise reason
            first.abort(reason)
            self.release(first)
        pieces = self._unauthenticated.setdefault(address, {})
        pieces[body] = pieces.get(body, 0) + size_bytes
        self.held_bytes += size_bytes

    def release(self, body: RequestBody) -> None:
        """Forget a body that was authenticated, read or aborted. May be repeated."""
        self.held_bytes -= _remove_body(self._unauthenticated, body)
        _remove_body(self._authenticated, body)

    def abort_slow(self, now: float) -> None:
        """Abort the bodies that have brought too little for the time spent waiting for them."""
        for body in list(self._read):
            if body.waiting_since is None:
                continue
            waits_s = now - body.waiting_since
            allowed_s = GRACE_S + body.received_bytes / MIN_RATE_BYTES_PER_S
            if waits_s > STALL_TIMEOUT_S or body.waited_s + waits_s > allowed_s:
                body.abort(_slow_body_fault(body, body.waited_s + waits_s))

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        self.abort_slow(loop.time())
        self._is_ticking = bool(self._read)
        if self._is_ticking:
            loop.call_later(_TICK_S, self._tick)

    def _oldest_of_largest_holder(self) -> RequestBody | None:
        bodies = max(self._unauthenticated.values(), key=lambda bodies: sum(bodies.values()), default={})
        return next(iter(bodies), None)


def _remove_body(table: dict[str, dict[RequestBody, int]], body: RequestBody) -> int:
    """Remove a body from its holder, and return how many of its bytes were held."""
    for holder, bodies in table.items():
        if body in bodies:
            held = bodies.pop(body)
            if not bodies:
                del table[holder]
            return held
    return 0


_NO_ROOM_FOR_ACCOUNT = (
    f"Unfinished requests of this account hold {ACCOUNT_LIMIT_BYTES // 1024**2} MiB. "
    "Finish some of them, or send fewer at once."
)
_NO_ROOM = "The yard has reached its limit for unfinished requests from unknown senders. Please try again."


def _slow_body_fault(body: RequestBody, waited_s: float) -> Fault:
    return Fault(
        "RequestTimeout",
        f"The body came too slowly: {body.received_bytes} bytes in {waited_s:.0f} s. The yard aborts a body that "
        f"brings nothing for {STALL_TIMEOUT_S:.0f} s, or less than {MIN_RATE_BYTES_PER_S} bytes a second after "
        f"{GRACE_S:.0f} s. Send it again, in smaller parts if the connection is slow.",
    )


async def read_whole(stream: AsyncIterable[bytes], limit_bytes: int, *, route: Route | None) -> bytes:
    """Return the whole body. Fault as soon as it exceeds the limit."""
    pieces: list[bytes] = []
    size = 0
    async for piece in stream:
        size += len(piece)
        if size > limit_bytes:
            raise too_large(route.operation if route is not None else None, limit_bytes)
        pieces.append(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class ParserThread:
    """Parses long bodies in one thread, so that the loop does not wait for them.

    Python threads share one processor, so more threads would only make every other call wait longer. Each account has
    at most one body in the queue; its others wait outside. So an account that sends many does not delay another.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="parsing")
        self._locks: dict[str, _AccountLock] = {}

    async def run(self, account: str, work: Callable[[], None]) -> None:
        own = self._locks.setdefault(account, _AccountLock())
        own.users += 1
        try:
            async with own.lock:
                await asyncio.get_running_loop().run_in_executor(self._thread, work)
        finally:
            own.users -= 1
            if not own.users:
                del self._locks[account]


@dataclass(slots=True)
class _AccountLock:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0

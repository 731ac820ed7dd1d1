"""Client connections: uvicorn's HTTP/1.1 protocol, with sendfile and limits.

uvicorn copies every byte of a response through Python. Here a response may also be a slice of a file, which the kernel
sends: 0.4 CPU seconds per GiB against 1.4 (measured 2026). For this, the app finds the `Connection` in the ASGI scope:
`scope["extensions"][EXTENSION]["connection"]`.

This module uses internals of uvicorn, so pyproject.toml bounds its version and a unit test checks each of them.
"""

import asyncio
import logging
import resource

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from trainyard.wire.http import FileSlice

EXTENSION = "trainyard.connection"
# The request line and the headers of one request.
MAX_HEAD_BYTES = 64 * 1024
MAX_HEADERS = 500
# Chunks of a body in one read, which has up to 256 KiB. Each costs a microsecond.
MAX_CHUNKS = 8192
MAX_CONNECTIONS = 4096
# Requests on one connection that wait behind the one being answered.
MAX_PIPELINED_REQUESTS = 32
# How long the rest of a body is read and dropped after its request was answered.
LINGER_TIMEOUT_S = 30.0

log = logging.getLogger(__name__)

_HEAD_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-type: text/plain; charset=utf-8\r\ncontent-length: 35\r\nconnection: close\r\n\r\n"
    b"The request's headers are too long."
)


class Connection:
    """The connection of one request, with what ASGI does not offer."""

    __slots__ = ("_cycle", "_protocol", "sends_files")

    def __init__(self, protocol: "ConnectionProtocol", *, sends_files: bool) -> None:
        self._protocol = protocol
        self._cycle: RequestResponseCycle = protocol.cycle
        self.sends_files = sends_files

    @property
    def is_closed(self) -> bool:
        """Whether the client has disconnected, so that anything sent now is lost."""
        return self._cycle.disconnected

    def mark_authenticated(self) -> None:
        """Record that a request on this connection was authenticated."""
        if not self._protocol.is_authenticated:
            self._protocol.table.authenticate(self._protocol)

    def wake(self) -> None:
        """Make a waiting `receive` return although no data has arrived."""
        self._cycle.message_event.set()

    async def send_file(self, slice_: FileSlice) -> None:
        """Send the body of a response whose headers, sent by ASGI, announced exactly this size."""
        if self.is_closed:
            return
        cycle = self._cycle
        loop = asyncio.get_running_loop()
        try:
            sent = await loop.sendfile(cycle.transport, slice_.file, slice_.offset, slice_.size, fallback=False)
        except ConnectionError:
            cycle.disconnected = True
        else:
            cycle.expected_content_length -= sent


class ConnectionTable:
    """The open connections of all listeners, up to a limit.

    At the limit, a new connection replaces the oldest unauthenticated one of the address that has most of them, or else
    the one that has been idle longest. So clients that only connect cannot keep others out.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._unauthenticated: dict[str, dict[ConnectionProtocol, None]] = {}
        self._authenticated: dict[ConnectionProtocol, None] = {}

    def __len__(self) -> int:
        return len(self._authenticated) + sum(map(len, self._unauthenticated.values()))

    def add(self, protocol: "ConnectionProtocol") -> None:
        if len(self) >= self._limit:
            self._evict_one()
        self._unauthenticated.setdefault(protocol.address, {})[protocol] = None

    def authenticate(self, protocol: "ConnectionProtocol") -> None:
        self.remove(protocol)
        protocol.is_authenticated = True
        self._authenticated[protocol] = None

    def remove(self, protocol: "ConnectionProtocol") -> None:
        """Remove a connection. May be repeated."""
        self._authenticated.pop(protocol, None)
        unauthenticated = self._unauthenticated.get(protocol.address, {})
        unauthenticated.pop(protocol, None)
        if not unauthenticated:
            self._unauthenticated.pop(protocol.address, None)

    def _evict_one(self) -> None:
        unauthenticated = max(self._unauthenticated.values(), key=len, default={})
        idle = (protocol for protocol in self._authenticated if protocol.is_idle)
        oldest = next(iter(unauthenticated), None) or next(idle, None)
        # All connections are authenticated and in use: many keys, or a program that leaks connections.
        if oldest is None:
            log.warning("more connections than usual", extra={"connections": len(self)})
            return
        self.remove(oldest)
        oldest.transport.abort()


def connection_limit() -> int:
    """Return how many connections to allow. Half of the process's descriptors stay free for files and jobs."""
    return min(MAX_CONNECTIONS, max(64, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2))


class ConnectionProtocol(HttpToolsProtocol):
    """uvicorn's protocol, extended with a `Connection` for the app and with limits on size and time.

    The parser buffers data until a header is complete, and uvicorn limits neither the size nor the time of a head, nor
    the number of pipelined requests, nor what follows a request that was answered before its body arrived.
    """

    # Set by each listener, which makes its own subclass.
    table: ConnectionTable
    # The address of the client.
    address = ""
    # Whether a request on this connection was authenticated.
    is_authenticated = False

    # Whether a request has started whose head is incomplete.
    _head_is_open = False
    # The size of the open head, counted twice because the parser reports a header only when it is complete: the bytes
    # that the parser has reported, and the bytes of reads that lie entirely within the head.
    _head_parsed = 0
    _head_received = 0
    # The chunks of a body in the data that is being parsed.
    _chunks = 0
    _head_timeout: asyncio.TimerHandle | None = None
    _linger_timeout: asyncio.TimerHandle | None = None
    # Whether nothing more is read on this connection.
    _is_rejected = False

    @property
    def is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        self.table.add(self)
        self._start_head_timeout()

    def connection_lost(self, exc: Exception | None) -> None:
        self.table.remove(self)
        self._cancel_head_timeout()
        self._cancel_linger_timeout()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_rejected or self.transport.is_closing():
            return
        was_open = self._head_is_open
        self._chunks = 0
        self._unset_keepalive_if_required()
        self._feed(data)
        if not self._head_is_open:
            self._cancel_head_timeout()
            return
        # All of the data belongs to this head, even what the parser still buffers.
        if was_open and not self._is_rejected:
            self._head_received += len(data)
            if self._head_is_too_long:
                self.send_400_response("")
        if self._head_timeout is None:
            self._start_head_timeout()

    def send_400_response(self, msg: str) -> None:
        """Reject the last data, without breaking the response to a complete request before it."""
        self._is_rejected = True
        if self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete:
            self.cycle.keep_alive = False
        elif self._head_is_too_long:
            self.transport.write(_HEAD_TOO_LARGE)
            self.transport.close()
        else:
            super().send_400_response(msg)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_is_open, self._head_parsed, self._head_received = True, 0, 0

    def on_url(self, url: bytes) -> None:
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_head(len(name) + len(value))
        super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._chunks += 1
        if self._chunks > MAX_CHUNKS:
            raise ValueError("the chunks are too small")
        super().on_body(body)

    def on_headers_complete(self) -> None:
        if self.parser.get_method() == b"CONNECT":
            raise ValueError("the yard is not a proxy")
        if self.parser.should_upgrade():
            return
        if len(self.pipeline) >= MAX_PIPELINED_REQUESTS:
            raise ValueError("too many requests at once")
        self._head_is_open = False
        super().on_headers_complete()
        # The call above created the app's task, which runs only after this method returns.
        connection = Connection(self, sends_files=self.scheme == "http")
        self.scope["extensions"] = {EXTENSION: {"connection": connection}}

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():
            super().on_message_complete()
        if self._linger_timeout is not None:
            self._cancel_linger_timeout()
            self._start_head_timeout()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # Otherwise the client could keep sending the dropped body forever.
        if self.cycle.response_complete and self.cycle.more_body and not self.transport.is_closing():
            self._linger_timeout = self.loop.call_later(LINGER_TIMEOUT_S, self.transport.abort)

    def shutdown(self) -> None:
        # Closing an idle TLS connection waits for the client's reply, which may not come before its next request.
        if self.is_idle and self.transport.get_write_buffer_size() == 0:
            self.transport.abort()
        else:
            super().shutdown()

    def _feed(self, data: bytes) -> None:
        try:
            while data:
                data = self._parse(data)
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")

    def _parse(self, data: bytes) -> bytes:
        """Parse the data, and return what must be parsed again.

        When a request offers an upgrade to another protocol, the parser stops and drops the body. The yard accepts no
        upgrades, so a new parser gets the same request without the offer. Java's HTTP client offers one with every
        request over plain http.
        """
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            method, version = self.parser.get_method(), self.parser.get_http_version().encode()
            fields = [name + b": " + value for name, value in self.headers if name != b"upgrade"]
            self.parser = httptools.HttpRequestParser(self)
            # As uvicorn does for its own parser.
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            return b"\r\n".join([b"%s %s HTTP/%s" % (method, self.url, version), *fields, b"", data[offer.args[0] :]])
        return b""

    def _count_head(self, size: int) -> None:
        """Count bytes of the head. Raise when it is too long; the parser turns that into an HttpParserError."""
        self._head_parsed += size
        if self._head_is_too_long:
            raise ValueError("the head is too long")

    @property
    def _head_is_too_long(self) -> bool:
        return max(self._head_parsed, self._head_received) > MAX_HEAD_BYTES or len(self.headers) > MAX_HEADERS

    def _start_head_timeout(self) -> None:
        self._head_timeout = self.loop.call_later(self.timeout_keep_alive, self._close_if_idle)

    def _close_if_idle(self) -> None:
        if self.is_idle:
            self.transport.abort()
        else:
            # The response to an earlier request is still being sent.
            self._start_head_timeout()

    def _cancel_linger_timeout(self) -> None:
        if self._linger_timeout is not None:
            self._linger_timeout.cancel()
            self._linger_timeout = None

    def _cancel_head_timeout(self) -> None:
        if self._head_timeout is not None:
            self._head_timeout.cancel()
            self._head_timeout = None

"""One client's connection: HTTP/1.1 on uvicorn's protocol, with what uvicorn lacks.

uvicorn copies every byte of a response through Python. Here a response may instead be a slice of a file, which the
kernel sends: 0.4 CPU seconds per GiB against 1.4 (measured 2026). The app finds the `Connection` to do so in the ASGI
scope: `scope["extensions"][EXTENSION]["connection"]`.
"""

import asyncio
import logging
import resource

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from trainyard.wire.http import FileSlice

EXTENSION = "trainyard.connection"
HEAD_LIMIT_BYTES = 64 * 1024  # the request line and the header fields of one request
MOST_HEADERS = 500
MOST_CHUNKS = 8192  # in one read of a body, which has up to 256 KiB; each costs a microsecond
MOST_CONNECTIONS = 4096
MOST_WAITING_REQUESTS = 32  # on one connection, behind the one that is being answered
LINGER_S = 30.0  # for which the rest of a body is read and dropped after its request was answered

log = logging.getLogger(__name__)

_HEAD_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-type: text/plain; charset=utf-8\r\ncontent-length: 35\r\nconnection: close\r\n\r\n"
    b"The request's headers are too long."
)


class Connection:
    """What ASGI does not tell of the connection that one request came on."""

    __slots__ = ("_cycle", "_protocol", "sends_files")

    def __init__(self, protocol: "ConnectionProtocol", *, sends_files: bool) -> None:
        self._protocol = protocol
        self._cycle: RequestResponseCycle = protocol.cycle
        self.sends_files = sends_files

    @property
    def is_closed(self) -> bool:
        """Whether the client has gone, so that what is sent from now on is lost."""
        return self._cycle.disconnected

    def mark_proven(self) -> None:
        """Say that a request on this connection has proven who sent it."""
        if not self._protocol.is_proven:
            self._protocol.table.prove(self._protocol)

    def wake(self) -> None:
        """Make a `receive` that waits for more of the body return, although nothing has come."""
        self._cycle.message_event.set()

    async def send_file(self, slice_: FileSlice) -> None:
        """Send the body of the response, after its headers went out by ASGI and announced exactly this size."""
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
    """The open connections of all listeners, never more than there is room for.

    Where one more comes, it takes the place of the oldest on which nobody has proven who they are, of the address that
    has most of these; then of the one that has been idle for longest. So who only connects does not keep others out.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._unproven: dict[str, dict[ConnectionProtocol, None]] = {}
        self._proven: dict[ConnectionProtocol, None] = {}

    def __len__(self) -> int:
        return len(self._proven) + sum(map(len, self._unproven.values()))

    def add(self, protocol: "ConnectionProtocol") -> None:
        if len(self) >= self._most:
            self._make_room()
        self._unproven.setdefault(protocol.address, {})[protocol] = None

    def prove(self, protocol: "ConnectionProtocol") -> None:
        self.remove(protocol)
        protocol.is_proven = True
        self._proven[protocol] = None

    def remove(self, protocol: "ConnectionProtocol") -> None:
        """May be repeated."""
        self._proven.pop(protocol, None)
        unproven = self._unproven.get(protocol.address, {})
        unproven.pop(protocol, None)
        if not unproven:
            self._unproven.pop(protocol.address, None)

    def _make_room(self) -> None:
        unproven = max(self._unproven.values(), key=len, default={})
        idle = (protocol for protocol in self._proven if protocol.is_idle)
        oldest = next(iter(unproven), None) or next(idle, None)
        if oldest is None:  # all are in use, which takes that many keys or a program that has lost count
            log.warning("more connections than usual", extra={"connections": len(self)})
            return
        self.remove(oldest)
        oldest.transport.abort()


def connections_for_this_process() -> int:
    """As many as leave half of the descriptors that a process may have to files and to jobs."""
    return min(MOST_CONNECTIONS, max(64, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2))


class ConnectionProtocol(HttpToolsProtocol):
    """uvicorn's protocol, showing the app its connection, and bounding how long a head may be and may take.

    The parser keeps whatever comes until a field is complete, and uvicorn has no limit and no clock of its own: of
    heads, of requests that wait behind another one, of what follows a request that was answered before its body came.
    """

    table: ConnectionTable  # of the listener, which makes a class of its own
    address = ""  # of the client
    is_proven = False  # whether a request on this connection has proven who sent it

    _head_is_open = False  # whether a request has begun whose head has not ended
    # Two counts of the bytes of the head that is open, because the parser tells of a header only when it has all of it.
    _head_parsed = 0  # that the parser has told
    _chunks = 0  # of a body, in the data that is being parsed
    _head_received = 0  # in reads that began and ended within it
    _head_timeout: asyncio.TimerHandle | None = None
    _linger: asyncio.TimerHandle | None = None
    _is_refused = False  # whether nothing more is read on this connection

    @property
    def is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        self.table.add(self)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self.table.remove(self)
        self._end_head_timeout()
        self._end_linger()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_refused or self.transport.is_closing():
            return
        was_open = self._head_is_open
        self._chunks = 0
        self._unset_keepalive_if_required()
        self._feed(data)
        if not self._head_is_open:
            self._end_head_timeout()
            return
        if was_open and not self._is_refused:  # all of the data belongs to this head, also what the parser holds back
            self._head_received += len(data)
            if self._head_is_too_long:
                self.send_400_response("")
        if self._head_timeout is None:
            self._await_head()

    def send_400_response(self, msg: str) -> None:
        """Refuse what came last; the answer to a request that came whole before it is not torn apart by that."""
        self._is_refused = True
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
        self._measure(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._measure(len(name) + len(value))
        super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._chunks += 1
        if self._chunks > MOST_CHUNKS:
            raise ValueError("the chunks are too small")
        super().on_body(body)

    def on_headers_complete(self) -> None:
        if self.parser.get_method() == b"CONNECT":
            raise ValueError("the yard is no proxy")
        if self.parser.should_upgrade():
            return
        if len(self.pipeline) >= MOST_WAITING_REQUESTS:
            raise ValueError("too many requests at once")
        self._head_is_open = False
        super().on_headers_complete()
        # The app's task was made by the call above and runs only after this method has returned.
        connection = Connection(self, sends_files=self.scheme == "http")
        self.scope["extensions"] = {EXTENSION: {"connection": connection}}

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():
            super().on_message_complete()
        if self._linger is not None:
            self._end_linger()
            self._await_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # A body that is dropped could otherwise go on for ever.
        if self.cycle.response_complete and self.cycle.more_body and not self.transport.is_closing():
            self._linger = self.loop.call_later(LINGER_S, self.transport.abort)

    def shutdown(self) -> None:
        # Closing an idle TLS connection waits for the client's answer, which may not come before its next request.
        if self.is_idle and self.transport.get_write_buffer_size() == 0:
            self.transport.abort()
        else:
            super().shutdown()

    def _feed(self, data: bytes) -> None:
        try:
            while data:
                data = self._unread(data)
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")

    def _unread(self, data: bytes) -> bytes:
        """Parse the data, and return what is to be parsed anew.

        At the offer of another protocol the parser stops and drops the body. The yard takes no such offer, so a new
        parser is given the same request without it. Java's own client makes one with every request over plain http.
        """
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            method, version = self.parser.get_method(), self.parser.get_http_version().encode()
            fields = [name + b": " + value for name, value in self.headers if name != b"upgrade"]
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's own
            return b"\r\n".join([b"%s %s HTTP/%s" % (method, self.url, version), *fields, b"", data[offer.args[0] :]])
        return b""

    def _measure(self, size: int) -> None:
        """Raise when the head grows too long, which the parser makes an HttpParserError."""
        self._head_parsed += size
        if self._head_is_too_long:
            raise ValueError("the head is too long")

    @property
    def _head_is_too_long(self) -> bool:
        return max(self._head_parsed, self._head_received) > HEAD_LIMIT_BYTES or len(self.headers) > MOST_HEADERS

    def _await_head(self) -> None:
        self._head_timeout = self.loop.call_later(self.timeout_keep_alive, self._let_go)

    def _let_go(self) -> None:
        if self.is_idle:
            self.transport.abort()
        else:  # the answer to an earlier request is still on its way
            self._await_head()

    def _end_linger(self) -> None:
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None

    def _end_head_timeout(self) -> None:
        if self._head_timeout is not None:
            self._head_timeout.cancel()
            self._head_timeout = None

"""A proxy in front of a real S3 that injects faults into the requests that a test chooses."""

import http.client
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast
from urllib.parse import unquote, urlsplit

_HOP_BY_HOP = ("connection", "transfer-encoding", "content-length", "keep-alive")


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answers with an error, such as 503 SlowDown."""

    status: int
    code: str = "InternalError"


@dataclass(frozen=True, slots=True)
class Reset:
    """Resets the connection without an answer."""


@dataclass(frozen=True, slots=True)
class Lose:
    """Lets S3 handle the request, then resets the connection without an answer."""


@dataclass(frozen=True, slots=True)
class BreakOff:
    """Sends half of the body, then closes the connection."""


@dataclass(frozen=True, slots=True)
class Shorten:
    """Sends half of the body with a Content-Length that matches the half."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Delays the answer."""

    seconds: float


@dataclass(frozen=True, slots=True)
class First:
    """Calls `do` before it passes the request on, for example to delete the key."""

    do: Callable[[], object]


Fault = Refuse | Reset | Lose | BreakOff | Shorten | Wait | First


@dataclass(slots=True)
class Rule:
    """The faults of requests with a method whose path contains a text: one per request, in order."""

    method: str
    text: str
    faults: Iterator[Fault]

    def matches(self, method: str, path: str) -> bool:
        return method == self.method and self.text in path


@dataclass(frozen=True, slots=True)
class Request:
    """A request that arrived."""

    method: str
    path: str
    headers: dict[str, str]


@dataclass(slots=True)
class FaultyS3:
    """The faults to inject, and the requests seen so far."""

    upstream: str
    url: str = ""
    seen: "deque[Request]" = field(default_factory=deque)
    _rules: list[Rule] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def on(self, method: str, text: str, faults: Iterable[Fault]) -> None:
        """Inject one fault into each of the next requests with this method whose path contains `text`."""
        with self._lock:
            self._rules.append(Rule(method, text, iter(faults)))

    def heal(self) -> None:
        """Forget all faults and all requests seen."""
        with self._lock:
            self._rules.clear()
            self.seen.clear()

    def count(self, method: str, text: str) -> int:
        """Return how many such requests arrived."""
        return sum(request.method == method and text in request.path for request in list(self.seen))

    def fault_for(self, request: Request) -> Fault | None:
        with self._lock:
            self.seen.append(request)
            for rule in self._rules:
                if rule.matches(request.method, request.path) and (fault := next(rule.faults, None)) is not None:
                    return fault
        return None


@contextmanager
def faulty_s3(upstream: str) -> Iterator[FaultyS3]:
    """Run the proxy in front of the S3 at `upstream` for the length of a block."""
    proxy = FaultyS3(upstream)
    server = _Server(("127.0.0.1", 0), _Handler)
    server.proxy = proxy
    proxy.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    proxy: FaultyS3

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that disconnect; the tests provoke that."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the parent
        """Log nothing."""

    def _answer(self) -> None:
        proxy = cast(_Server, self.server).proxy
        headers = {name.lower(): value for name, value in self.headers.items()}
        fault = proxy.fault_for(Request(self.command, unquote(self.path), headers))
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        match fault:
            case Refuse(status, code):
                reason = f"<Error><Code>{code}</Code><Message>A fault.</Message></Error>".encode()
                self._send(status, {"Content-Length": str(len(reason))}, reason)
            case Reset():
                self._reset()
            case _:
                self._forward(proxy.upstream, body, fault)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815 - the parent looks for these

    def _forward(self, upstream: str, body: bytes, fault: Fault | None) -> None:
        if isinstance(fault, Wait):
            time.sleep(fault.seconds)
        if isinstance(fault, First):
            fault.do()
        connection = http.client.HTTPConnection(urlsplit(upstream).netloc, timeout=60)
        try:
            # Keep the Host header, which the client has signed.
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            response = connection.getresponse()
            data = response.read()
        finally:
            connection.close()
        if isinstance(fault, Lose):
            self._reset()
            return
        kept = {name: value for name, value in response.getheaders() if name.lower() not in _HOP_BY_HOP}
        data = data[: len(data) // 2] if isinstance(fault, Shorten) else data
        length = response.getheader("Content-Length", "0") if self.command == "HEAD" else str(len(data))
        self._send(response.status, kept | {"Content-Length": length}, data, breaks_off=isinstance(fault, BreakOff))

    def _send(self, status: int, headers: dict[str, str], data: bytes, *, breaks_off: bool = False) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data[: len(data) // 2] if breaks_off else data)
        self.wfile.flush()
        if breaks_off:
            self._close()

    def _reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._close()

    def _close(self) -> None:
        self.close_connection = True
        self.connection.close()

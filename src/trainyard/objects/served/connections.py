"""Keep-alive connections to a yard."""

import http.client
import select
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol
from urllib.parse import urlsplit

from trainyard.foundation.errors import InvalidRequest
from trainyard.objects.remote.failures import TransientFailure


class Readable(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...


Body = bytes | Readable

_CHUNK = 1 << 20
_MAX_IDLE = 64
_BROKE_OFF = "closed the connection in the middle of its response"


class YardResponse:
    """A response of the yard. Reading its body once, or closing it, returns the connection to the pool."""

    def __init__(self, response: http.client.HTTPResponse, *, done: Callable[[bool], None]) -> None:
        self.status = response.status
        self._response = response
        self._done = done
        self._is_finished = False

    def header(self, name: str) -> str:
        """Return a header as UTF-8 text; empty if it is missing."""
        return _decode_header(self._response.getheader(name) or "")

    def headers(self, start: str) -> dict[str, str]:
        """Return all headers with this name prefix, by the rest of their names."""
        names = {name.lower() for name in self._response.headers if name.lower().startswith(start)}
        return {name.removeprefix(start): self.header(name) for name in names}

    def read(self) -> bytes:
        """Read the whole body; TransientFailure if it is shorter than announced."""
        return b"".join(self.chunks())

    def chunks(self) -> Iterator[bytes]:
        is_whole = False
        try:
            while chunk := self._response.read(_CHUNK):
                yield chunk
            if self._response.length:
                raise TransientFailure(_BROKE_OFF)
            is_whole = True
        except (OSError, http.client.HTTPException) as error:
            raise TransientFailure(_BROKE_OFF) from error
        finally:
            self._finish(is_whole=is_whole)

    def close(self) -> None:
        """Stop reading; the rest of the body is skipped."""
        self._finish(is_whole=False)

    def _finish(self, *, is_whole: bool) -> None:
        if not self._is_finished:
            self._is_finished = True
            self._done(is_whole)


class Connections:
    """All connections to one address. Safe to share between threads."""

    def __init__(self, endpoint: str, *, read_timeout_s: float) -> None:
        address = urlsplit(endpoint)
        if address.scheme != "http" or not address.hostname:
            raise InvalidRequest(f'"{endpoint}" is not the address of a yard, such as http://10.0.0.1:8080.')
        self.host = address.netloc
        self._name, self._port = address.hostname, address.port or 80
        self._read_timeout_s = read_timeout_s
        self._lock = threading.Lock()
        self._idle: list[http.client.HTTPConnection] = []

    def request(self, method: str, target: str, *, headers: Mapping[str, str], body: Body) -> YardResponse:
        """Send a request once; TransientFailure if no response arrives, whether or not the request took effect."""
        connection = self._take_idle() or http.client.HTTPConnection(
            self._name, self._port, timeout=self._read_timeout_s, blocksize=_CHUNK
        )
        encoded = {name: value.encode().decode("latin-1") for name, value in headers.items()}
        try:
            _send(connection, method, target, headers=encoded, body=body)
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise TransientFailure(_failure_text(error)) from error

        def done(is_whole: bool) -> None:
            self._give_back(connection, is_good=is_whole and not response.will_close)

        return YardResponse(response, done=done)

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _take_idle(self) -> http.client.HTTPConnection | None:
        """Return an idle connection that the yard has not closed, or None."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if not _is_closed(connection):
                return connection
            connection.close()

    def _give_back(self, connection: http.client.HTTPConnection, *, is_good: bool) -> None:
        with self._lock:
            if is_good and len(self._idle) < _MAX_IDLE:
                self._idle.append(connection)
                return
        connection.close()


def _is_closed(connection: http.client.HTTPConnection) -> bool:
    """Whether an idle connection has become readable, which means that the yard closed it."""
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))


def _send(
    connection: http.client.HTTPConnection, method: str, target: str, *, headers: Mapping[str, str], body: Body
) -> None:
    if connection.sock is None:
        connection.connect()
        assert connection.sock is not None, "connect sets the socket"
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        connection.request(method, target, body=body or None, headers=dict(headers))
    except (BrokenPipeError, ConnectionResetError):
        # A yard that refuses a request responds without reading its body, and the response has the reason.
        return


def _failure_text(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "did not answer in time"
    if isinstance(error, ConnectionRefusedError):
        return "refused the connection"
    if isinstance(error, (ConnectionError, http.client.HTTPException)):
        return "closed the connection without a response"
    return f"could not be reached ({error.strerror if isinstance(error, OSError) and error.strerror else error})"


def _decode_header(header: str) -> str:
    return header.encode("latin-1").decode(errors="replace")

"""Connections to a yard, which are kept open from one request to the next."""

import http.client
import select
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol
from urllib.parse import urlsplit

from trainyard.foundation.errors import InvalidRequest
from trainyard.objects.remote.faults import Passing


class Readable(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...


Body = bytes | Readable

_CHUNK = 1 << 20
_KEPT = 64  # connections that wait for the next request
_BROKE_OFF = "broke off in the middle of its answer"


class Answer:
    """What the yard answered. Its body is read once, or the answer is closed; either gives the connection back."""

    def __init__(self, response: http.client.HTTPResponse, *, done: Callable[[bool], None]) -> None:
        self.status = response.status
        self._response = response
        self._done = done
        self._is_over = False

    def header(self, name: str) -> str:
        """A header's text, which is UTF-8 however http reads it; empty where there is none."""
        return _text(self._response.getheader(name) or "")

    def headers(self, start: str) -> dict[str, str]:
        """All headers whose names start so, by the rest of their names."""
        names = {name.lower() for name in self._response.headers if name.lower().startswith(start)}
        return {name.removeprefix(start): self.header(name) for name in names}

    def read(self) -> bytes:
        """All of the body; Passing when less comes than was announced."""
        return b"".join(self.chunks())

    def chunks(self) -> Iterator[bytes]:
        is_whole = False
        try:
            while chunk := self._response.read(_CHUNK):
                yield chunk
            if self._response.length:
                raise Passing(_BROKE_OFF)
            is_whole = True
        except (OSError, http.client.HTTPException) as error:
            raise Passing(_BROKE_OFF) from error
        finally:
            self._finish(is_whole=is_whole)

    def close(self) -> None:
        """Leave unread what has not been read."""
        self._finish(is_whole=False)

    def _finish(self, *, is_whole: bool) -> None:
        if not self._is_over:
            self._is_over = True
            self._done(is_whole)


class Connections:
    """All connections to one address. May be used from any thread."""

    def __init__(self, endpoint: str, *, answer_s: float) -> None:
        address = urlsplit(endpoint)
        if address.scheme != "http" or not address.hostname:
            raise InvalidRequest(f'"{endpoint}" is not the address of a yard, such as http://10.0.0.1:8080.')
        self.host = address.netloc
        self._name, self._port = address.hostname, address.port or 80
        self._answer_s = answer_s
        self._lock = threading.Lock()
        self._kept: list[http.client.HTTPConnection] = []

    def request(self, method: str, target: str, *, headers: Mapping[str, str], body: Body) -> Answer:
        """Ask once; Passing when no answer comes, whether or not it was done what is asked."""
        connection = self._take() or http.client.HTTPConnection(
            self._name, self._port, timeout=self._answer_s, blocksize=_CHUNK
        )
        sent = {name: value.encode().decode("latin-1") for name, value in headers.items()}
        try:
            _send(connection, method, target, headers=sent, body=body)
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise Passing(_what(error)) from error

        def done(is_whole: bool) -> None:
            self._give_back(connection, is_good=is_whole and not response.will_close)

        return Answer(response, done=done)

    def close(self) -> None:
        with self._lock:
            kept, self._kept = self._kept, []
        for connection in kept:
            connection.close()

    def _take(self) -> http.client.HTTPConnection | None:
        """A connection that was kept, unless the yard has closed it since."""
        while True:
            with self._lock:
                if not self._kept:
                    return None
                connection = self._kept.pop()
            if not _is_closed(connection):
                return connection
            connection.close()

    def _give_back(self, connection: http.client.HTTPConnection, *, is_good: bool) -> None:
        with self._lock:
            if is_good and len(self._kept) < _KEPT:
                self._kept.append(connection)
                return
        connection.close()


def _is_closed(connection: http.client.HTTPConnection) -> bool:
    """Whether something came on a connection on which nothing was asked: that is its end."""
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))


def _send(
    connection: http.client.HTTPConnection, method: str, target: str, *, headers: Mapping[str, str], body: Body
) -> None:
    if connection.sock is None:
        connection.connect()
        assert connection.sock is not None, "it is connected"
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        connection.request(method, target, body=body or None, headers=dict(headers))
    except (BrokenPipeError, ConnectionResetError):
        # A yard that refuses a request answers without having read its body, and that answer tells why.
        return


def _what(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "did not answer in time"
    if isinstance(error, ConnectionRefusedError):
        return "refused the connection"
    if isinstance(error, (ConnectionError, http.client.HTTPException)):
        return "closed the connection without an answer"
    return f"could not be reached ({error.strerror if isinstance(error, OSError) and error.strerror else error})"


def _text(header: str) -> str:
    return header.encode("latin-1").decode(errors="replace")

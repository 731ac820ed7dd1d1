"""The two listeners, http and https, of one app in one process, on uvicorn.

uvicorn copies every byte of a response through Python. Here a response may instead be a slice of a file, which the
kernel sends: 0.4 CPU seconds per GiB against 1.4 (measured 2026). The app finds the `Connection` to do so in the ASGI
scope: `scope["extensions"][EXTENSION]["connection"]`.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from trainyard.foundation.errors import Unavailable
from trainyard.wire.http import FileSlice

EXTENSION = "trainyard.connection"


class Connection:
    """What ASGI does not tell of the connection that one request came on."""

    __slots__ = ("_cycle", "sends_files")

    def __init__(self, cycle: RequestResponseCycle, *, sends_files: bool) -> None:
        self._cycle = cycle
        self.sends_files = sends_files

    @property
    def is_closed(self) -> bool:
        """Whether the client has gone, so that what is sent from now on is lost."""
        return self._cycle.disconnected

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


class ConnectionProtocol(HttpToolsProtocol):
    """uvicorn's protocol, showing the app its connection."""

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        # The app's task was made by the call above and runs only after this method has returned.
        connection = Connection(self.cycle, sends_files=self.scheme == "http")
        self.scope["extensions"] = {EXTENSION: {"connection": connection}}

    def shutdown(self) -> None:
        # Closing an idle TLS connection waits for the client's answer, which may not come before its next request.
        is_idle = self.cycle is None or self.cycle.response_complete
        if is_idle and self.transport.get_write_buffer_size() == 0:
            self.transport.abort()
        else:
            super().shutdown()


class Listener(uvicorn.Server):
    """A uvicorn server that leaves signals to the process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def bind(host: str, port: int) -> socket.socket:
    """A listening socket, or Unavailable that says why not and what to do."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio switches Nagle's algorithm off only on sockets that say they are TCP; with it a small answer takes 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(1024)
    except OSError as error:
        listening.close()
        raise Unavailable(
            f"Cannot listen on {host} port {port}: {error.strerror}. "
            "Stop what uses it, or choose another with `trainyard up --port PORT` (https takes the next one)."
        ) from error
    listening.setblocking(False)
    return listening


def listener(app: Any, *, keep_alive_s: int, certificate: Path | None = None, key: Path | None = None) -> Listener:
    config = uvicorn.Config(
        app,
        loop="asyncio",  # uvloop has no sendfile
        http=ConnectionProtocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=keep_alive_s,
        timeout_graceful_shutdown=10,
        backlog=1024,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        ssl_version=ssl.PROTOCOL_TLS_SERVER,
    )
    return Listener(config)


async def serve(listeners: Sequence[tuple[Listener, socket.socket]]) -> None:
    """Serve until each listener's `should_exit` is set; when one fails, all stop."""
    tasks = [asyncio.create_task(server.serve(sockets=[listening])) for server, listening in listeners]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for server, _ in listeners:
            server.should_exit = True
    await asyncio.gather(*tasks)

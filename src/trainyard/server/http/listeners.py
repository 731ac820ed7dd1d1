"""The http and https listeners of the app, on uvicorn."""

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import uvicorn

from trainyard.foundation.errors import Unavailable
from trainyard.server.http.connections import ConnectionProtocol, ConnectionTable


class Listener(uvicorn.Server):
    """A uvicorn server that leaves signals to the process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket. Unavailable says why it cannot be opened and what to do."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio disables Nagle's algorithm only on sockets created as TCP. With it, a small response takes 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(1024)
    except OSError as error:
        listening.close()
        remedy = (
            "Choose an address of this machine: `trainyard up --host ADDRESS`."
            if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL
            else "Stop the program that uses it, or choose another: `trainyard up --port PORT` (https uses the next "
            "one)."
        )
        raise Unavailable(f"Cannot listen on {host} port {port}: {error.strerror}. {remedy}") from error
    listening.setblocking(False)
    return listening


def listener(
    app: Any, table: ConnectionTable, *, keep_alive_s: int, certificate: Path | None = None, key: Path | None = None
) -> Listener:
    config = uvicorn.Config(
        app,
        # uvloop has no sendfile.
        loop="asyncio",
        http=type("ListenerProtocol", (ConnectionProtocol,), {"table": table}),
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
    """Serve until `should_exit` of each listener is set. When one fails, all stop."""
    tasks = [asyncio.create_task(server.serve(sockets=[listening])) for server, listening in listeners]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for server, _ in listeners:
            server.should_exit = True
    await asyncio.gather(*tasks)

"""Serves the clients of an index proxy. Imported for the first of them, because HTTP and TLS take long to import."""

import contextlib
import http.client
import os
import select
import socket
import ssl
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import BinaryIO, ClassVar

from trainyard.instance.agent.program.index_proxy import IndexProxy, IndexRequest

_PASSED_HEADERS = ("accept", "if-modified-since", "if-none-match", "range", "user-agent")
_RETURNED_HEADERS = ("content-length", "content-range", "content-type", "accept-ranges", "etag", "last-modified")
_PAGES = ("text/html", "application/vnd.pypi.simple")
_MAX_PAGE_BYTES = 64 << 20
_TIMEOUT_S = 60.0
_CHUNK = 64 * 1024
# How long the end of a job may wait for this server.
_POLL_S = 0.05

_Response = http.client.HTTPResponse | urllib.error.HTTPError


def serve_index(proxy: IndexProxy, listener: socket.socket, *, until: int) -> None:
    """Serve on a listening socket until the other end of a pipe is closed."""
    server = _Server(listener.getsockname(), _bound_handler(proxy), bind_and_activate=False)
    server.socket.close()
    server.socket = listener
    thread = threading.Thread(target=lambda: server.serve_forever(_POLL_S), name="index-server", daemon=True)
    thread.start()
    select.select([until], [], [])
    server.shutdown()
    thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # A client that hangs must not keep the agent.
    block_on_close = False


def _bound_handler(proxy: IndexProxy) -> "type[_IndexHandler]":
    # Links to local files must not be followed: the agent may read more than the job.
    handlers = (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=proxy.ca_file)),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPRedirectHandler(),
        urllib.request.HTTPErrorProcessor(),
    )
    opener = urllib.request.OpenerDirector()
    for handler in handlers:
        opener.add_handler(handler)
    return type("_BoundHandler", (_IndexHandler,), {"proxy": proxy, "opener": opener})


class _IndexHandler(BaseHTTPRequestHandler):
    proxy: ClassVar[IndexProxy]
    opener: ClassVar[urllib.request.OpenerDirector]

    def do_GET(self) -> None:
        wanted = self.proxy.find(self.path)
        if wanted is None:
            self.send_error(404)
            return
        if not self._send_kept(wanted):
            self._fetch(wanted)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_CONNECT(self) -> None:
        found = self.proxy.machine_proxy(self.headers.get("Proxy-Authorization", ""))
        if found is None:
            self.send_error(407)
            return
        machine_proxy, authorization = found
        host, _, port = self.path.rpartition(":")
        connection = http.client.HTTPConnection(
            machine_proxy.hostname or "", machine_proxy.port or 8080, timeout=_TIMEOUT_S
        )
        try:
            connection.set_tunnel(host, int(port), {"Proxy-Authorization": authorization})
            connection.connect()
        except (OSError, ValueError) as error:
            self.send_error(502, explain=f"The proxy of this machine cannot be used: {error}")
            return
        with contextlib.closing(connection):
            self.send_response(200)
            self.end_headers()
            _relay(self.connection, connection.sock)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Log nothing: the job's own log shows what is installed."""

    def _fetch(self, wanted: IndexRequest) -> None:
        request = urllib.request.Request(wanted.url, method=self.command)
        for name in _PASSED_HEADERS:
            if name in self.headers:
                request.add_header(name, self.headers[name])
        if wanted.authorization:
            # Not sent to another host when the index redirects there.
            request.add_unredirected_header("Authorization", wanted.authorization)
        try:
            with self.opener.open(request, timeout=_TIMEOUT_S) as response:
                self._send(response, wanted)
        except urllib.error.HTTPError as error:
            self._send(error, wanted)
        except (OSError, http.client.HTTPException) as error:
            self._explain(wanted, error)

    def _explain(self, wanted: IndexRequest, error: Exception) -> None:
        """Let the installer try itself what needs no password. It may know better how to get there."""
        if not wanted.index.is_public:
            self.send_error(502, explain=f"The index cannot be reached: {error}")
            return
        self.send_response(307)
        self.send_header("Location", wanted.url)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send_kept(self, wanted: IndexRequest) -> bool:
        """Send a file that a job of this user has downloaded before; return whether there is one."""
        file = self.proxy.downloads.open(wanted.digest) if self.proxy.downloads and wanted.digest else None
        if file is None:
            return False
        with file:
            self.send_response(200)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(os.fstat(file.fileno()).st_size))
            self.end_headers()
            if self.command == "GET":
                self._copy(file)
        return True

    def _send(self, response: _Response, wanted: IndexRequest) -> None:
        headers = {name: response.headers[name] for name in _RETURNED_HEADERS if name in response.headers}
        kind = headers.get("content-type", "")
        page = None
        if kind.startswith(_PAGES) and self.command == "GET":
            page = wanted.index.translate(response.read(_MAX_PAGE_BYTES), response.geturl() or wanted.url, kind)
            headers["content-length"] = str(len(page))
        self.send_response(response.status or 502)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if page is not None:
            self.wfile.write(page)
        elif self.command == "GET":
            self._copy(response, digest=wanted.digest if response.status == http.client.OK else "")

    def _copy(self, source: "_Response | BinaryIO", *, digest: str = "") -> None:
        """Send a body, and keep it if it has this digest."""
        downloads = self.proxy.downloads
        if downloads is None or not digest:
            while chunk := source.read(_CHUNK):
                self.wfile.write(chunk)
            return
        with downloads.writer(digest) as writer:
            while chunk := source.read(_CHUNK):
                self.wfile.write(chunk)
                writer.write(chunk)
            if writer.commit():
                downloads.trim(self.proxy.limit_bytes)


def _relay(one: socket.socket, other: socket.socket) -> None:
    while True:
        ready, _, _ = select.select([one, other], [], [], _TIMEOUT_S)
        for source in ready:
            data = source.recv(_CHUNK)
            if not data:
                return
            (other if source is one else one).sendall(data)
        if not ready:
            return

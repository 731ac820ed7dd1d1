"""A proxy of the agent's, by which an installation reaches package indexes and proxies that want a password.

An installation runs code of users: what builds their packages. It shares a sandbox with the installer, so whatever that
is told, they can read. So the password stays with the agent. The installer is told an address on this machine instead,
which holds a token of this installation and is gone with it. What can be had by it is what an installer asks for: GET
and HEAD of what lies below an index or is linked from its pages, and connections through the machine's proxy.
"""

import base64
import http.client
import os
import re
import secrets
import select
import shutil
import socket
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import ClassVar, Self
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

_PASSED_HEADERS = ("accept", "if-modified-since", "if-none-match", "range", "user-agent")
_RETURNED_HEADERS = ("content-length", "content-range", "content-type", "accept-ranges", "etag", "last-modified")
_LINK = re.compile(rb"""(?P<before>href\s*=\s*["']|"url"\s*:\s*")(?P<link>[^"'\s]+)""", re.IGNORECASE)
_PAGES = ("text/html", "application/vnd.pypi.simple")
_MOST_PAGE_BYTES = 64 << 20
_METADATA = ".metadata"  # which lies beside a wheel that is linked
_INDEXES = re.compile(r"(PIP|UV)_((EXTRA_)?INDEX_URL|FIND_LINKS|(DEFAULT_)?INDEX)")
_GATEWAYS = re.compile(r"(https?|pip)_proxy", re.IGNORECASE)
# Variables that hold a secret, or have no other use than with one.
_SECRET = re.compile(r"UV_PUBLISH_\w+|\w*(TOKEN|USERNAME|PASSWORD|SECRET|CLIENT_CERT|NETRC)\w*")
_USER_IN_URL = re.compile(r"://[^/\s]*@")
_TIMEOUT_S = 60.0
_CHUNK = 64 * 1024


class IndexProxy:
    """Serves while its block is open. Addresses without a password are none of its business."""

    def __init__(self) -> None:
        self._token = secrets.token_urlsafe(24)
        self._upstreams: list[_Upstream] = []
        self._gateway: SplitResult | None = None
        handler = type("_BoundHandler", (_Handler,), {"proxy": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, name="index-proxy", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def index(self, url: str) -> str:
        """The address to be told instead of one of an index."""
        parts = urlsplit(url)
        if not parts.password and not parts.username:
            return url
        number = len(self._upstreams)
        self._upstreams.append(_Upstream(parts, f"{self._address}/{self._token}/{number}"))
        return f"{self._upstreams[-1].local}{parts.path}"

    def gateway(self, url: str) -> str:
        """The address to be told instead of one of a proxy."""
        parts = urlsplit(url)
        if not parts.password and not parts.username:
            return url
        self._gateway = parts
        return f"http://{self._token}:{self._token}@127.0.0.1:{self._server.server_port}"

    def find(self, path: str) -> "tuple[_Upstream, str] | None":
        """Which index a path of this server means, and the path there; None when it may not be had."""
        _, token, number, rest = (*path.split("/", 3), "", "", "")[:4]
        if not secrets.compare_digest(token.encode(), self._token.encode()):
            return None
        if not number.isdecimal() or int(number) >= len(self._upstreams):
            return None
        upstream = self._upstreams[int(number)]
        return (upstream, f"/{rest}") if upstream.offers(f"/{rest}") else None

    def connect(self, target: str, authorization: str) -> socket.socket | None:
        """A connection to a host and port through the machine's proxy; None when it may not be had."""
        expected = _basic(self._token, self._token)
        if self._gateway is None or not secrets.compare_digest(authorization.encode(), expected.encode()):
            return None
        host, _, port = target.rpartition(":")
        connection = http.client.HTTPConnection(
            self._gateway.hostname or "", self._gateway.port or 8080, timeout=_TIMEOUT_S
        )
        connection.set_tunnel(host, int(port), {"Proxy-Authorization": _authorization(self._gateway)})
        connection.connect()
        return connection.sock

    @property
    def _address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"


class _Upstream:
    """One index: where it is, and what of it may be had."""

    def __init__(self, url: SplitResult, local: str) -> None:
        self.local = local
        self.authorization = _authorization(url)
        port = f":{url.port}" if url.port else ""
        self.origin = f"{url.scheme}://{url.hostname}{port}"
        self._below = url.path if url.path.endswith("/") else f"{url.path}/"
        self._page = url.path
        self._linked: set[str] = set()

    def offers(self, path: str) -> bool:
        plain = path.partition("?")[0]
        if ".." in unquote(plain).split("/"):
            return False
        is_linked = plain in self._linked or plain.removesuffix(_METADATA) in self._linked
        return plain == self._page or plain.startswith(self._below) or is_linked

    def translate(self, page: bytes, path: str) -> bytes:
        """A page whose links to this index lead to the proxy, which will follow them."""

        def replace(match: re.Match[bytes]) -> bytes:
            target = urlsplit(urljoin(f"{self.origin}{path}", match["link"].decode(errors="replace")))
            if f"{target.scheme}://{target.netloc.rpartition('@')[2]}" != self.origin:
                return match[0]
            self._linked.add(target.path)
            rest = (f"?{target.query}" if target.query else "") + (f"#{target.fragment}" if target.fragment else "")
            return match["before"] + f"{self.local}{target.path}{rest}".encode()

        return _LINK.sub(replace, page)


class _Handler(BaseHTTPRequestHandler):
    proxy: ClassVar[IndexProxy]

    def do_GET(self) -> None:
        found = self.proxy.find(self.path)
        if found is None:
            self.send_error(404)
            return
        upstream, path = found
        asked = urllib.request.Request(f"{upstream.origin}{path}", method=self.command)
        for name in _PASSED_HEADERS:
            if name in self.headers:
                asked.add_header(name, self.headers[name])
        # Not carried over to another host when the index sends there.
        asked.add_unredirected_header("Authorization", upstream.authorization)
        try:
            with urllib.request.urlopen(asked, timeout=_TIMEOUT_S, context=_trusted()) as answer:
                self._return(answer, upstream, path)
        except urllib.error.HTTPError as error:
            self._return(error, upstream, path)
        except (OSError, http.client.HTTPException, ssl.SSLError) as error:
            self.send_error(502, explain=f"The index cannot be reached: {error}")

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_CONNECT(self) -> None:
        try:
            upstream = self.proxy.connect(self.path, self.headers.get("Proxy-Authorization", ""))
        except (OSError, ValueError) as error:
            self.send_error(502, explain=f"The proxy of this machine cannot be used: {error}")
            return
        if upstream is None:
            self.send_error(407)
            return
        with upstream:
            self.send_response(200)
            self.end_headers()
            _relay(self.connection, upstream)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - it is called so
        """Nothing: what is installed is in the job's own log."""

    def _return(
        self, answer: "http.client.HTTPResponse | urllib.error.HTTPError", upstream: _Upstream, path: str
    ) -> None:
        headers = {name: answer.headers[name] for name in _RETURNED_HEADERS if name in answer.headers}
        page = None
        if headers.get("content-type", "").startswith(_PAGES) and self.command == "GET":
            page = upstream.translate(answer.read(_MOST_PAGE_BYTES), path)
            headers["content-length"] = str(len(page))
        self.send_response(answer.status or 502)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if page is not None:
            self.wfile.write(page)
        elif self.command == "GET":
            shutil.copyfileobj(answer, self.wfile, _CHUNK)


def _trusted() -> ssl.SSLContext:
    """The certificates that pip would trust, or those of the machine."""
    return ssl.create_default_context(cafile=os.environ.get("PIP_CERT") or None)


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


def _authorization(url: SplitResult) -> str:
    return _basic(unquote(url.username or ""), unquote(url.password or ""))


def _basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def guarded(variables: Mapping[str, str], proxy: IndexProxy) -> dict[str, str]:
    """The variables that tell an installer where packages are, without what is secret in them."""
    found = {name: value for name, value in variables.items() if not _SECRET.fullmatch(name)}
    handled = {name for name in found if _INDEXES.fullmatch(name) or _GATEWAYS.fullmatch(name)}
    for name in handled:
        value = found[name]
        if _INDEXES.fullmatch(name):
            found[name] = " ".join(_guarded_index(word, proxy) for word in value.split())
        elif _GATEWAYS.fullmatch(name):
            found[name] = proxy.gateway(value)
    found = {name: value for name, value in found.items() if name in handled or not _USER_IN_URL.search(value)}
    if any(value != variables[name] for name, value in found.items()):
        for name in ("no_proxy", "NO_PROXY"):
            found[name] = ",".join(filter(None, (found.get(name, ""), "127.0.0.1")))
    return found


def _guarded_index(word: str, proxy: IndexProxy) -> str:
    """`name=URL`, as uv takes it, or a URL."""
    before, scheme, rest = word.partition("https://" if "https://" in word else "http://")
    return f"{before}{proxy.index(scheme + rest)}" if scheme else word


def has_secrets(variables: Mapping[str, str]) -> bool:
    """Whether any of them must not be told as it is."""
    return any(_SECRET.fullmatch(name) or _USER_IN_URL.search(value) for name, value in variables.items())

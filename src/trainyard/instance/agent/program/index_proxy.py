"""A proxy in the agent through which an installer reaches package indexes and proxies that need a password.

An installation runs code of users: their package builds. It shares a sandbox with the installer, so it can read the
installer's settings. Therefore the password stays with the agent. The installer gets an address on this machine
instead, which contains a token and is valid only for this installation. It serves what an installer needs: GET and HEAD
of what lies below an index or is linked from its pages, and connections through the machine's proxy.
"""

import base64
import http.client
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
_MAX_PAGE_BYTES = 64 << 20
# The suffix of the metadata file beside a linked wheel.
_METADATA = ".metadata"
_INDEXES = re.compile(r"(PIP|UV)_((EXTRA_)?INDEX_URL|FIND_LINKS|(DEFAULT_)?INDEX)")
_PROXIES = re.compile(r"(https?|pip)_proxy", re.IGNORECASE)
# Variables that hold a secret or are useful only with one.
_SECRET = re.compile(r"UV_PUBLISH_\w+|\w*(TOKEN|USERNAME|PASSWORD|SECRET|CLIENT_CERT|NETRC)\w*")
_USER_IN_URL = re.compile(r"://[^/\s]*@")
_TIMEOUT_S = 60.0
_CHUNK = 64 * 1024


class IndexProxy:
    """Serves while its `with` block is open. Addresses without a password are left as they are.

    `ca_file` has the certificates to trust; without it those of the machine are trusted.
    """

    def __init__(self, ca_file: str | None = None) -> None:
        self.ca_file = ca_file
        self._token = secrets.token_urlsafe(24)
        self._upstreams: list[_IndexUpstream] = []
        self._machine_proxy: SplitResult | None = None
        handler = type("_BoundHandler", (_IndexProxyHandler,), {"proxy": self})
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

    def index_url(self, url: str) -> str:
        """Return the address that replaces the URL of an index."""
        parts = urlsplit(url)
        if not parts.password and not parts.username:
            return url
        number = len(self._upstreams)
        self._upstreams.append(_IndexUpstream(parts, f"{self._address}/{self._token}/{number}"))
        return f"{self._upstreams[-1].local}{parts.path}"

    def proxy_url(self, url: str) -> str:
        """Return the address that replaces the URL of a proxy."""
        parts = urlsplit(url)
        if not parts.password and not parts.username:
            return url
        self._machine_proxy = parts
        return f"http://{self._token}:{self._token}@127.0.0.1:{self._server.server_port}"

    def find(self, path: str) -> "tuple[_IndexUpstream, str] | None":
        """Return the index that a path of this server belongs to, and the path there; None when it is forbidden."""
        _, token, number, rest = (*path.split("/", 3), "", "", "")[:4]
        if not secrets.compare_digest(token.encode(), self._token.encode()):
            return None
        if not number.isdecimal() or int(number) >= len(self._upstreams):
            return None
        upstream = self._upstreams[int(number)]
        return (upstream, f"/{rest}") if upstream.offers(f"/{rest}") else None

    def connect(self, target: str, authorization: str) -> socket.socket | None:
        """Connect to a host and port through the machine's proxy; None when it is forbidden."""
        expected = _basic(self._token, self._token)
        if self._machine_proxy is None or not secrets.compare_digest(authorization.encode(), expected.encode()):
            return None
        host, _, port = target.rpartition(":")
        connection = http.client.HTTPConnection(
            self._machine_proxy.hostname or "", self._machine_proxy.port or 8080, timeout=_TIMEOUT_S
        )
        connection.set_tunnel(host, int(port), {"Proxy-Authorization": _authorization(self._machine_proxy)})
        connection.connect()
        return connection.sock

    @property
    def _address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"


class _IndexUpstream:
    """One index: where it is, and which of its paths are allowed."""

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
        """Return a page whose links to this index lead to the proxy instead, and allow their targets."""

        def replace(match: re.Match[bytes]) -> bytes:
            target = urlsplit(urljoin(f"{self.origin}{path}", match["link"].decode(errors="replace")))
            if f"{target.scheme}://{target.netloc.rpartition('@')[2]}" != self.origin:
                return match[0]
            self._linked.add(target.path)
            rest = (f"?{target.query}" if target.query else "") + (f"#{target.fragment}" if target.fragment else "")
            return match["before"] + f"{self.local}{target.path}{rest}".encode()

        return _LINK.sub(replace, page)


class _IndexProxyHandler(BaseHTTPRequestHandler):
    proxy: ClassVar[IndexProxy]

    def do_GET(self) -> None:
        found = self.proxy.find(self.path)
        if found is None:
            self.send_error(404)
            return
        upstream, path = found
        request = urllib.request.Request(f"{upstream.origin}{path}", method=self.command)
        for name in _PASSED_HEADERS:
            if name in self.headers:
                request.add_header(name, self.headers[name])
        # Not sent to another host when the index redirects there.
        request.add_unredirected_header("Authorization", upstream.authorization)
        try:
            certificates = ssl.create_default_context(cafile=self.proxy.ca_file)
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=certificates) as response:
                self._send(response, upstream, path)
        except urllib.error.HTTPError as error:
            self._send(error, upstream, path)
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

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Log nothing: the job's own log shows what is installed."""

    def _send(
        self, response: "http.client.HTTPResponse | urllib.error.HTTPError", upstream: _IndexUpstream, path: str
    ) -> None:
        headers = {name: response.headers[name] for name in _RETURNED_HEADERS if name in response.headers}
        page = None
        if headers.get("content-type", "").startswith(_PAGES) and self.command == "GET":
            page = upstream.translate(response.read(_MAX_PAGE_BYTES), path)
            headers["content-length"] = str(len(page))
        self.send_response(response.status or 502)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if page is not None:
            self.wfile.write(page)
        elif self.command == "GET":
            shutil.copyfileobj(response, self.wfile, _CHUNK)


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


def hide_secrets(variables: Mapping[str, str], proxy: IndexProxy) -> dict[str, str]:
    """Return the variables that tell an installer where packages are, with addresses of `proxy` instead of secrets."""
    public = {name: value for name, value in variables.items() if not _SECRET.fullmatch(name)}
    handled = {name for name in public if _INDEXES.fullmatch(name) or _PROXIES.fullmatch(name)}
    for name in handled:
        value = public[name]
        if _INDEXES.fullmatch(name):
            public[name] = " ".join(_public_index(word, proxy) for word in value.split())
        elif _PROXIES.fullmatch(name):
            public[name] = proxy.proxy_url(value)
    public = {name: value for name, value in public.items() if name in handled or not _USER_IN_URL.search(value)}
    if any(value != variables[name] for name, value in public.items()):
        for name in ("no_proxy", "NO_PROXY"):
            public[name] = ",".join(filter(None, (public.get(name, ""), "127.0.0.1")))
    return public


def _public_index(word: str, proxy: IndexProxy) -> str:
    """Replace the URL of an index, alone or as `name=URL` for uv."""
    before, scheme, rest = word.partition("https://" if "https://" in word else "http://")
    return f"{before}{proxy.index_url(scheme + rest)}" if scheme else word


def has_secrets(variables: Mapping[str, str]) -> bool:
    """Whether any of the variables holds a secret."""
    return any(_SECRET.fullmatch(name) or _USER_IN_URL.search(value) for name, value in variables.items())

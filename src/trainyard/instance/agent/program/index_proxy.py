"""A proxy in the agent through which the installers of a job reach package indexes.

The settings of the yard may contain passwords, which code of users must not see: an installation runs package builds,
and programs call pip themselves. So the passwords stay with the agent. An installer gets an address on this machine
instead, which contains a token and is valid only as long as this proxy. It serves what an installer needs: GET and HEAD
of what lies below an index or is linked from its pages, and connections through the machine's proxy.

With a store for downloads, all indexes are reached through it, and a file whose digest an index names is downloaded
once for all jobs of the user.
"""

import base64
import hmac
import json
import os
import re
import select
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

from trainyard.link.package_downloads import PackageDownloads

_LINK = re.compile(rb"""(?P<before>href\s*=\s*["']|"url"\s*:\s*")(?P<link>[^"'\s]+)""", re.IGNORECASE)
_DIGEST = re.compile(r"sha256=([0-9a-f]{64})")
_JSON = "application/vnd.pypi.simple.v1+json"
# Below the local address of an index: files by their digest.
_FILES = "/.files/"
# The suffix of the metadata file beside a linked wheel.
_METADATA = ".metadata"
_SCHEMES = ("http", "https")
_INDEXES = re.compile(r"(PIP|UV)_((EXTRA_)?INDEX_URL|FIND_LINKS|(DEFAULT_)?INDEX)")
_PROXIES = re.compile(r"(https?|pip)_proxy", re.IGNORECASE)
# Variables that hold a secret or are useful only with one.
_SECRET = re.compile(r"UV_PUBLISH_\w+|\w*(TOKEN|USERNAME|PASSWORD|SECRET|CLIENT_CERT|NETRC)\w*")
_USER_IN_URL = re.compile(r"://[^/\s]*@")


@dataclass(frozen=True, slots=True)
class IndexRequest:
    """What a path of the proxy stands for. `authorization` is empty where none is needed or it must not be sent.

    A file that may be kept has a `digest`. `index` translates pages.
    """

    url: str
    index: "IndexUpstream"
    authorization: str = ""
    digest: str = ""


class IndexProxy:
    """Serves while its `with` block is open. Without `downloads`, addresses without a password are left as they are.

    `ca_file` has the certificates to trust; without it those of the machine are trusted. A proxy that nobody uses costs
    almost nothing: what serves it is imported for its first client.
    """

    def __init__(
        self, ca_file: str | None = None, *, downloads: PackageDownloads | None = None, limit_bytes: int = 0
    ) -> None:
        self.ca_file = ca_file
        self.downloads = downloads
        self.limit_bytes = limit_bytes
        self._token = os.urandom(18).hex()
        self._upstreams: dict[str, IndexUpstream] = {}
        self._machine_proxy: SplitResult | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._port = self._listener.getsockname()[1]
        self._end, self._ending = os.pipe()
        self._thread = threading.Thread(target=self._serve, name="index-proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._ending)
        self._thread.join()
        os.close(self._end)
        self._listener.close()

    def index_url(self, url: str) -> str:
        """Return the address that replaces the URL of an index."""
        parts = urlsplit(url)
        has_secret = bool(parts.password or parts.username)
        if parts.scheme not in _SCHEMES or not (has_secret or self.downloads):
            return url
        if url not in self._upstreams:
            local = f"{self._address}/{self._token}/{len(self._upstreams)}"
            self._upstreams[url] = IndexUpstream(parts, local, has_files=self.downloads is not None)
        return f"{self._upstreams[url].local}{parts.path}"

    def proxy_url(self, url: str) -> str:
        """Return the address that replaces the URL of a proxy."""
        parts = urlsplit(url)
        if not parts.password and not parts.username:
            return url
        self._machine_proxy = parts
        return f"http://{self._token}:{self._token}@127.0.0.1:{self._port}"

    def find(self, path: str) -> IndexRequest | None:
        """Return what a path of this server stands for; None when it is forbidden."""
        _, token, number, rest = (*path.split("/", 3), "", "", "")[:4]
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            return None
        if not number.isdecimal() or int(number) >= len(self._upstreams):
            return None
        return list(self._upstreams.values())[int(number)].find(f"/{rest}")

    def machine_proxy(self, authorization: str) -> tuple[SplitResult, str] | None:
        """Return the machine's proxy and the authorization for it; None for a client that may not use it."""
        expected = _basic(self._token, self._token)
        if self._machine_proxy is None or not hmac.compare_digest(authorization.encode(), expected.encode()):
            return None
        return self._machine_proxy, _authorization(self._machine_proxy)

    @property
    def _address(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def _serve(self) -> None:
        ready, _, _ = select.select([self._listener.fileno(), self._end], [], [])
        if self._end in ready:
            return
        from trainyard.instance.agent.program.index_server import serve_index

        serve_index(self, self._listener, until=self._end)


class IndexUpstream:
    """One index: where it is, and which of its paths are allowed."""

    def __init__(self, url: SplitResult, local: str, *, has_files: bool) -> None:
        self.local = local
        self._authorization = _authorization(url) if url.username or url.password else ""
        port = f":{url.port}" if url.port else ""
        self._origin = f"{url.scheme}://{url.hostname}{port}"
        self._below = url.path if url.path.endswith("/") else f"{url.path}/"
        self._page = url.path
        self._has_files = has_files
        self._linked: set[str] = set()
        # The addresses of files, by digest and name.
        self._files: dict[str, str] = {}

    @property
    def is_public(self) -> bool:
        return not self._authorization

    def find(self, path: str) -> IndexRequest | None:
        plain = path.partition("?")[0]
        if ".." in unquote(plain).split("/"):
            return None
        if plain.startswith(_FILES):
            return self._find_file(plain.removeprefix(_FILES))
        is_linked = plain in self._linked or plain.removesuffix(_METADATA) in self._linked
        if plain == self._page or plain.startswith(self._below) or is_linked:
            return IndexRequest(f"{self._origin}{path}", self, self._authorization)
        return None

    def translate(self, page: bytes, address: str, kind: str) -> bytes:
        """Return a page from an address whose links lead to the proxy where that is useful, and allow their targets."""
        if kind.startswith(_JSON):
            return self._translate_json(page, address)

        def replace(match: re.Match[bytes]) -> bytes:
            return match["before"] + self._local_link(address, match["link"].decode(errors="replace")).encode()

        return _LINK.sub(replace, page)

    def _translate_json(self, page: bytes, address: str) -> bytes:
        try:
            document: Any = json.loads(page)
            for file in document.get("files", ()):
                file["url"] = self._local_link(address, file["url"], file.get("hashes", {}).get("sha256", ""))
        except (ValueError, KeyError, TypeError, AttributeError):
            return page
        return json.dumps(document).encode()

    def _local_link(self, address: str, link: str, digest: str = "") -> str:
        """Return the link to use instead: by digest if the index names one, else only for files of its own server."""
        target = urlsplit(urljoin(address, link))
        named = _DIGEST.fullmatch(f"sha256={digest}") or _DIGEST.search(target.fragment)
        name = target.path.rpartition("/")[2]
        fragment = f"#{target.fragment}" if target.fragment else ""
        if self._has_files and named and name and target.scheme in _SCHEMES and not target.username:
            self._files[f"{named[1]}/{name}"] = target._replace(fragment="").geturl()
            return f"{self.local}{_FILES}{named[1]}/{name}{fragment}"
        if f"{target.scheme}://{target.netloc.rpartition('@')[2]}" != self._origin:
            return link
        self._linked.add(target.path)
        query = f"?{target.query}" if target.query else ""
        return f"{self.local}{target.path}{query}{fragment}"

    def _find_file(self, name: str) -> IndexRequest | None:
        is_metadata = name not in self._files
        url = self._files.get(name.removesuffix(_METADATA) if is_metadata else name)
        if url is None:
            return None
        target = urlsplit(url)
        is_own = f"{target.scheme}://{target.netloc}" == self._origin
        authorization = self._authorization if is_own else ""
        if is_metadata:
            url = target._replace(path=f"{target.path}{_METADATA}").geturl()
        return IndexRequest(url, self, authorization, "" if is_metadata else name.partition("/")[0])


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
    return any(_SECRET.fullmatch(name) or has_user(value) for name, value in variables.items())


def has_user(text: str) -> bool:
    """Whether a text contains a URL with a user name or a password."""
    return bool(_USER_IN_URL.search(text))

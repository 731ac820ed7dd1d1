"""Protects the dashboard from pages of other origins: DNS rebinding, cross-site requests, framing, injected scripts."""

import ipaddress
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.requests import Request

_COMMON = {
    "x-content-type-options": "nosniff",
    # Under a stricter policy, browsers do not say which origin a form came from.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
_CONTENT = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "font-src 'self'; form-action 'self'; base-uri 'none'"
)
# A document brings its scripts along. Its origin is none, so it gets no cookie, and it may ask for nothing.
_DOCUMENT = (
    "sandbox allow-scripts allow-popups; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:; form-action 'none'; base-uri 'none'"
)
# A notebook on this machine has another port, which is another origin of the same site.
_LOOPBACK = "http://localhost:* http://127.0.0.1:* https://localhost:* https://127.0.0.1:*"


class KnownHosts:
    """The names under which browsers may open the dashboard.

    A page of another site can make its own name resolve to this machine, but then the browser sends that name. An
    address in place of a name cannot be made to resolve to anything else.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {"localhost", socket.gethostname().lower(), *(name.strip("[]").lower() for name in names)}

    def includes(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        return name in self._names or name.endswith(".localhost") or _is_address(name)


def is_same_origin(request: Request) -> bool:
    """Whether the page that sent a request is one of the dashboard. Browsers name the page's origin in every POST.

    Newer browsers also say how the two origins relate, and compare the schemes, too.
    """
    origin = urlsplit(request.headers.get("origin", ""))
    is_named = origin.netloc == request.headers.get("host") and origin.scheme in ("http", "https")
    return is_named and request.headers.get("sec-fetch-site", "same-origin") == "same-origin"


def security_headers(*, is_embeddable: bool = False, is_document: bool = False) -> dict[str, str]:
    """Return the headers of every answer of the dashboard."""
    content = _DOCUMENT if is_document else _CONTENT
    ancestors = f"'self' {_LOOPBACK}" if is_embeddable else "'none'"
    framing = {} if is_embeddable else {"x-frame-options": "DENY", "cross-origin-resource-policy": "same-origin"}
    return _COMMON | framing | {"content-security-policy": f"{content}; frame-ancestors {ancestors}"}


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True

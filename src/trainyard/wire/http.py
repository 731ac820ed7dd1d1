"""HTTP requests and responses as values, independent of any server."""

import re
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol
from urllib.parse import unquote

# A token of RFC 9110.
FIELD_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
# Characters that a header value must not contain.
CONTROLS = re.compile("[\x00-\x08\x0a-\x1f\x7f]")


def read_length(text: str) -> int | None:
    """Parse a number of bytes from a header; None for anything else, such as a number with too many digits."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_LENGTH_DIGITS else None


_MAX_LENGTH_DIGITS = 16


class Headers:
    """Header fields by lower-case name; repeated fields are joined with a comma, as they are signed."""

    __slots__ = ("_fields",)

    def __init__(self, fields: Iterable[tuple[str, str]] = ()) -> None:
        self._fields: dict[str, str] = {}
        for name, value in fields:
            lower = name.lower()
            earlier = self._fields.get(lower)
            self._fields[lower] = value if earlier is None else f"{earlier},{value}"

    def __getitem__(self, name: str) -> str:
        return self._fields[name]

    def __contains__(self, name: str) -> bool:
        return name in self._fields

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def get(self, name: str, default: str = "") -> str:
        return self._fields.get(name, default)

    def items(self) -> Iterable[tuple[str, str]]:
        return self._fields.items()


@dataclass(slots=True)
class HttpRequest:
    """One request. `path` and `query` are as received, still percent-encoded.

    `body` is the whole body if the operation takes a shape, and empty if it takes a stream. `from_link` names the
    headers that came from the query of a presigned link.
    """

    method: str
    path: str
    query: str
    headers: Headers
    body: bytes = b""
    is_secure: bool = False
    from_link: frozenset[str] = frozenset()

    @property
    def host(self) -> str:
        return self.headers.get("host")

    def parameters(self) -> list[tuple[str, str]]:
        """Return the decoded query in order, including blank values; a bare name has the value ""."""
        pairs = []
        for piece in self.query.split("&"):
            if piece:
                name, _, value = piece.partition("=")
                pairs.append((unquote(name.replace("+", " ")), unquote(value.replace("+", " "))))
        return pairs


class ByteStream(Protocol):
    """The body of a streaming request, decoded and verified while it is read.

    Iterating raises Fault if the body is short, tampered with or has a wrong checksum; trust only a stream that ended
    without an error. `trailers` holds the fields after the body by lower-case name, once it has ended.
    """

    @property
    def trailers(self) -> Mapping[str, str]: ...

    def __aiter__(self) -> AsyncIterator[bytes]: ...


@dataclass(frozen=True, slots=True)
class FileSlice:
    """Bytes of an open file that the kernel may send. The sender closes the file afterwards."""

    file: BinaryIO
    offset: int
    size: int


class ClosableBytes(Protocol):
    """A body in pieces. Its reader calls `aclose` at the end, even if it did not read all of them."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    def aclose(self) -> Awaitable[None]: ...


@dataclass(slots=True)
class HttpResponse:
    """One response. A body in pieces must have exactly the length its headers announce."""

    status: int
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: "bytes | FileSlice | ClosableBytes" = b""

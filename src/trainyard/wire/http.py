"""Requests and responses as values, below any server."""

import re
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol
from urllib.parse import unquote

FIELD_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")  # what RFC 9110 calls a token
CONTROLS = re.compile("[\x00-\x08\x0a-\x1f\x7f]")  # what the value of a header cannot have


def read_length(text: str) -> int | None:
    """A number of bytes as headers write it; None for anything else, such as one of more digits than Python reads."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _LONGEST_LENGTH else None


_LONGEST_LENGTH = 16


class Headers:
    """Header fields by lower-case name; repeated fields are joined with a comma, as signatures want them."""

    __slots__ = ("_fields",)

    def __init__(self, fields: Iterable[tuple[str, str]] = ()) -> None:
        self._fields: dict[str, str] = {}
        for name, value in fields:
            lower = name.lower()
            known = self._fields.get(lower)
            self._fields[lower] = value if known is None else f"{known},{value}"

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
    """One request. `path` and `query` are as they came, still percent-encoded.

    `body` is the whole body where the operation takes a shape, and empty where it takes a stream. `from_link` names the
    headers that were not sent, but carried in the query of a link.
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
        """The query decoded, in order, blank values kept; a bare name has the value ""."""
        pairs = []
        for piece in self.query.split("&"):
            if piece:
                name, _, value = piece.partition("=")
                pairs.append((unquote(name.replace("+", " ")), unquote(value.replace("+", " "))))
        return pairs


class ByteStream(Protocol):
    """The body of a streaming request, decoded and verified on the way.

    Iterating raises Fault when the body turns out short, tampered with or wrongly summed; only a stream that ended
    without an error may be believed. `trailers` holds the fields after the body by lower-case name, once it has ended.
    """

    @property
    def trailers(self) -> Mapping[str, str]: ...

    def __aiter__(self) -> AsyncIterator[bytes]: ...


@dataclass(frozen=True, slots=True)
class FileSlice:
    """Bytes of an open file that the kernel may send. Who sends them closes the file afterwards."""

    file: BinaryIO
    offset: int
    size: int


class ClosableBytes(Protocol):
    """A body that comes in pieces. Who takes them calls `aclose` in the end, also when not all were taken."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    def aclose(self) -> Awaitable[None]: ...


@dataclass(slots=True)
class HttpResponse:
    """One answer. A body in pieces must have exactly the length its headers announce."""

    status: int
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: "bytes | FileSlice | ClosableBytes" = b""

"""Tar archives read from front to back, one entry after another, with bounded memory.

The standard library reads headers of any declared size into memory, and in some versions follows a negative size
backwards without end. What comes here was made by a stranger, so this reads only what such archives need: files,
folders and links in the ustar, GNU and pax forms. Everything else is an entry of kind OTHER.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from trainyard.foundation.errors import InvalidRequest

_BLOCK = 512
_MAX_EXTENSION = 1 << 20  # bytes of a long name or of pax records
_CHUNK = 1 << 20
_MAX_DIGITS = 40  # of a size, far above any that can be
_CHECKSUM = slice(148, 156)


class MalformedTar(InvalidRequest):
    """The bytes are not a whole tar archive."""


class TarKind(StrEnum):
    FILE = "file"
    FOLDER = "folder"
    SYMLINK = "symbolic link"
    HARD_LINK = "hard link"
    OTHER = "special file"


_KINDS = {b"0": TarKind.FILE, b"\0": TarKind.FILE, b"7": TarKind.FILE, b"5": TarKind.FOLDER}
_KINDS |= {b"1": TarKind.HARD_LINK, b"2": TarKind.SYMLINK}


@dataclass(frozen=True, slots=True)
class TarEntry:
    name: str
    kind: TarKind
    size: int
    is_executable: bool
    target: str  # of a link


class ByteSource(Protocol):
    def read(self, size: int, /) -> bytes: ...


class TarStream:
    """Gives the entries in turn; `data` reads the bytes of the one given last, and may be left out."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._left = 0  # of the data of the entry given last
        self._padding = 0

    def __iter__(self) -> Iterator[TarEntry]:
        """MalformedTar when the archive is damaged or cut short."""
        extended: dict[str, str] = {}
        while (header := self._next_header()) is not None:
            kind = header[156:157]
            if kind in (b"L", b"K"):
                extended["path" if kind == b"L" else "linkpath"] = self._long_name(header)
            elif kind == b"x":
                extended |= _pax_records(self._extension(header))
            elif kind == b"g":
                self._extension(header)  # applies to all entries: times and comments, nothing that matters here
            else:
                yield self._entry(header, kind, extended)
                extended = {}

    def data(self) -> Iterator[bytes]:
        while self._left:
            chunk = self._source.read(min(self._left, _CHUNK))
            if not chunk:
                raise MalformedTar("it is cut short")
            self._left -= len(chunk)
            yield chunk

    def _next_header(self) -> bytes | None:
        """None at the end: a block of zeros, or nothing at all."""
        for _ in self.data():
            pass
        self._exactly(self._padding)
        self._padding = 0
        header = self._up_to(_BLOCK)
        if not header or not any(header):
            return None
        if len(header) < _BLOCK:
            raise MalformedTar("it is cut short")
        if _number(header[_CHECKSUM]) != _checksum(header):
            raise MalformedTar("a header in it is damaged")
        return header

    def _entry(self, header: bytes, kind: bytes, extended: dict[str, str]) -> TarEntry:
        size = _size(header, extended)
        if kind in (b"1", b"2", b"5"):
            size = 0  # links and folders have no data, whatever their header says
        self._announce(size)
        name = extended.get("path") or _name(header)
        found = _KINDS.get(kind, TarKind.OTHER)
        if name.endswith("/") and found is TarKind.FILE:
            found = TarKind.FOLDER  # as the oldest archives mark them
        target = extended.get("linkpath") or _text(header[157:257])
        return TarEntry(name, found, size, bool(_number(header[100:108]) & 0o111), target)

    def _announce(self, size: int) -> None:
        self._left = size
        self._padding = -size % _BLOCK

    def _extension(self, header: bytes) -> bytes:
        size = _size(header, {})
        if size > _MAX_EXTENSION:
            raise MalformedTar(f"a header in it has {size} bytes, where {_MAX_EXTENSION} is the most")
        self._announce(size)
        return b"".join(self.data())

    def _long_name(self, header: bytes) -> str:
        return _text(self._extension(header))

    def _exactly(self, size: int) -> None:
        if len(self._up_to(size)) < size:
            raise MalformedTar("it is cut short")

    def _up_to(self, size: int) -> bytes:
        data = b""
        while len(data) < size and (more := self._source.read(size - len(data))):
            data += more
        return data


def _size(header: bytes, extended: dict[str, str]) -> int:
    told = extended.get("size")
    if told is None:
        return _number(header[124:136])
    if not (told.isascii() and told.isdigit() and len(told) <= _MAX_DIGITS):
        raise MalformedTar("a size in it is not a number")
    return int(told)


def _number(field: bytes) -> int:
    """Octal digits or, with the first bit set, a big-endian number."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.strip(b" \0")
    if not digits:
        return 0
    if not digits.isdigit() or b"8" in digits or b"9" in digits:
        raise MalformedTar("a header in it is damaged")
    return int(digits, 8)


def _checksum(header: bytes) -> int:
    """The sum of all bytes, with those of the sum itself counted as spaces."""
    return sum(header) - sum(header[_CHECKSUM]) + 8 * 0x20


def _name(header: bytes) -> str:
    name = _text(header[:100])
    prefix = _text(header[345:500]) if header[257:263] == b"ustar\0" else ""
    return f"{prefix}/{name}" if prefix else name


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def _pax_records(data: bytes) -> dict[str, str]:
    """Records of `<length> <keyword>=<value>\\n`, of which those that name a file count."""
    records: dict[str, str] = {}
    position = 0
    while position < len(data) and data[position] != 0:
        length, space, _ = data[position : position + 20].partition(b" ")
        if not space or not length.isdigit() or not len(length) + 1 < int(length) <= len(data) - position:
            raise MalformedTar("a header in it is damaged")
        record = data[position + len(length) + 1 : position + int(length) - 1]
        keyword, _, value = record.partition(b"=")
        records[keyword.decode("utf-8", "replace")] = value.decode("utf-8", "surrogateescape")
        position += int(length)
    sparse = next((keyword for keyword in records if keyword.startswith("GNU.sparse.")), None)
    if sparse:
        raise MalformedTar("it holds a sparse file, which is not supported")
    return {keyword: value for keyword, value in records.items() if keyword in ("path", "linkpath", "size")}

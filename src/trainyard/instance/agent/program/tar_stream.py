"""Reads tar archives from front to back, one entry after another, with bounded memory.

The standard library reads headers of any declared size into memory, and in some versions follows a negative size
backwards forever. These archives are untrusted, so this reads only what they need: files, folders and links in the
ustar, GNU and pax formats. Everything else is an entry of kind OTHER.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from trainyard.foundation.errors import InvalidRequest

_BLOCK = 512
# Of a long name or of pax records.
_MAX_EXTENSION_BYTES = 1 << 20
_CHUNK = 1 << 20
# Of a size; far more than any real one has.
_MAX_DIGITS = 40
_CHECKSUM = slice(148, 156)


class MalformedTar(InvalidRequest):
    """The bytes are not a complete tar archive."""


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
    """One entry; `target` is where a link leads."""

    name: str
    kind: TarKind
    size: int
    is_executable: bool
    target: str


class TarSource(Protocol):
    def read(self, size: int, /) -> bytes: ...


class TarStream:
    """Yields the entries in order. `data` reads the bytes of the last one yielded; calling it is optional."""

    def __init__(self, source: TarSource) -> None:
        self._source = source
        # Of the data of the last entry.
        self._left = 0
        self._padding = 0

    def __iter__(self) -> Iterator[TarEntry]:
        """Yield the entries; MalformedTar when the archive is damaged or truncated."""
        extended: dict[str, str] = {}
        while (header := self._next_header()) is not None:
            kind = header[156:157]
            if kind in (b"L", b"K"):
                extended["path" if kind == b"L" else "linkpath"] = self._long_name(header)
            elif kind == b"x":
                extended |= _pax_records(self._extension(header))
            elif kind == b"g":
                # Global records hold times and comments, nothing that matters here.
                self._extension(header)
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
        """Read the next header; None at the end, which is a block of zeros or the end of the file."""
        for _ in self.data():
            pass
        self._skip(self._padding)
        self._padding = 0
        header = self._read_up_to(_BLOCK)
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
            # Links and folders have no data, whatever their header says.
            size = 0
        self._expect_data(size)
        name = extended.get("path") or _name(header)
        tar_kind = _KINDS.get(kind, TarKind.OTHER)
        if name.endswith("/") and tar_kind is TarKind.FILE:
            # The oldest archives mark folders like this.
            tar_kind = TarKind.FOLDER
        target = extended.get("linkpath") or _text(header[157:257])
        return TarEntry(name, tar_kind, size, bool(_number(header[100:108]) & 0o111), target)

    def _expect_data(self, size: int) -> None:
        self._left = size
        self._padding = -size % _BLOCK

    def _extension(self, header: bytes) -> bytes:
        size = _size(header, {})
        if size > _MAX_EXTENSION_BYTES:
            raise MalformedTar(f"a header in it has {size} bytes; the limit is {_MAX_EXTENSION_BYTES}")
        self._expect_data(size)
        return b"".join(self.data())

    def _long_name(self, header: bytes) -> str:
        return _text(self._extension(header))

    def _skip(self, size: int) -> None:
        if len(self._read_up_to(size)) < size:
            raise MalformedTar("it is cut short")

    def _read_up_to(self, size: int) -> bytes:
        data = b""
        while len(data) < size and (more := self._source.read(size - len(data))):
            data += more
        return data


def _size(header: bytes, extended: dict[str, str]) -> int:
    size = extended.get("size")
    if size is None:
        return _number(header[124:136])
    if not (size.isascii() and size.isdigit() and len(size) <= _MAX_DIGITS):
        raise MalformedTar("a size in it is not a number")
    return int(size)


def _number(field: bytes) -> int:
    """Parse octal digits or, with the first bit set, a big-endian number."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.strip(b" \0")
    if not digits:
        return 0
    if not digits.isdigit() or b"8" in digits or b"9" in digits:
        raise MalformedTar("a header in it is damaged")
    return int(digits, 8)


def _checksum(header: bytes) -> int:
    """The sum of all bytes of a header, with its checksum field counted as spaces."""
    return sum(header) - sum(header[_CHECKSUM]) + 8 * 0x20


def _name(header: bytes) -> str:
    name = _text(header[:100])
    prefix = _text(header[345:500]) if header[257:263] == b"ustar\0" else ""
    return f"{prefix}/{name}" if prefix else name


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def _pax_records(data: bytes) -> dict[str, str]:
    """Parse records of the form `<length> <keyword>=<value>\\n`, and return those that matter for an entry."""
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

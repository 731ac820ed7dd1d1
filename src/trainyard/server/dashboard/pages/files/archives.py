"""Lists archives and reads their members, without unpacking them anywhere.

An archive is a job's own, so nothing in it is believed: headers may be huge, contents may expand a thousandfold, and
names may be anything. What is read is bounded, and names are only ever shown.
"""

import gzip
import io
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, BinaryIO

from trainyard.server.dashboard.pages.files.object_file import ReadingLimit

MAX_MEMBERS = 5000
# Of headers and of the content that is shown, after decompression.
_MAX_READ_BYTES = 48 * 1024 * 1024
# An archive is seldom longer in one header than this, and a hostile one could fill the memory.
_MAX_HEADER_BYTES = 4 * 1024 * 1024
_PIECE_BYTES = 1024 * 1024
_DAMAGE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError)
# Others can be told to use gigabytes of memory.
_ZIP_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class NoSuchMember(Exception):
    """An archive has no member of this name, as far as it could be read."""


@dataclass(frozen=True, slots=True)
class ArchiveMember:
    """A file, a folder or a link in an archive."""

    name: str
    size: int
    kind: str


@dataclass(frozen=True, slots=True)
class Contents:
    """The members of an archive. The note says why there may be more."""

    members: list[ArchiveMember]
    note: str = ""


def archive_kind(start: bytes) -> str:
    """Return the kind of an archive, by its first 512 bytes: tar, gzip or zip; "" for any other file."""
    if start.startswith(b"\x1f\x8b"):
        return "gzip"
    if start.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return "zip"
    return "tar" if start[257:262] == b"ustar" else ""


def list_archive(file: BinaryIO, kind: str) -> Contents:
    """Return the members of an archive, as many as the limits allow."""
    found = list[ArchiveMember]()
    try:
        for member in _zip_members(file) if kind == "zip" else _tar_members(file, kind):
            if len(found) == MAX_MEMBERS:
                return Contents(found, f"Only the first {MAX_MEMBERS:,} are listed.")
            found.append(member)
    except ReadingLimit:
        return Contents(found, "The archive is too large to list all of it here.")
    except _DAMAGE as error:
        return Contents(found, f"The archive is damaged or incomplete: {str(error)[:200] or type(error).__name__}.")
    return Contents(found)


@contextmanager
def open_member(file: BinaryIO, kind: str, name: str) -> Iterator[IO[bytes]]:
    """Open the first member of this name. NoSuchMember if there is none, ReadingLimit if it cannot be reached."""
    try:
        if kind == "zip":
            with zipfile.ZipFile(_Bounded(file)) as archive:
                info = archive.getinfo(name)
                if info.compress_type not in _ZIP_METHODS:
                    raise NoSuchMember("The member is compressed in a way that is not read here; download the archive.")
                with archive.open(info) as content:
                    yield content
            return
        with _open_tar(file, kind) as opened:
            for member in opened:
                if member.name == name and member.isreg():
                    content_of_tar = opened.extractfile(member)
                    assert content_of_tar is not None, "a regular file has content"
                    with content_of_tar:
                        yield content_of_tar
                    return
    except (KeyError, *_DAMAGE) as error:
        raise NoSuchMember(_missing(name)) from error
    raise NoSuchMember(_missing(name))


def tar_files(file: BinaryIO, kind: str) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the regular files of an archive in order, each to be read before the next; fewer beyond the limits."""
    try:
        with _open_tar(file, kind) as opened:
            for member in opened:
                content = opened.extractfile(member) if member.isreg() else None
                if content is not None:
                    yield member.name.removeprefix("./"), content
    except (ReadingLimit, *_DAMAGE):
        return


def read_start(file: IO[bytes] | gzip.GzipFile, size_bytes: int) -> bytes:
    """Read at most so many bytes, in pieces that the limits of an archive allow."""
    pieces, left = list[bytes](), size_bytes
    while left > 0 and (piece := file.read(min(left, _PIECE_BYTES))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def decompress_start(file: BinaryIO, size_bytes: int) -> bytes:
    """Return the start of a file that gzip compressed. Of a damaged one, nothing."""
    try:
        with gzip.GzipFile(fileobj=file) as opened:
            return read_start(opened, size_bytes)
    except _DAMAGE:
        return b""


def _missing(name: str) -> str:
    return f'The archive has no file "{name[:200]}" that can be read.'


class _Bounded(io.RawIOBase):
    """A file of which only so much can be read, at once and in all. Seeking costs nothing."""

    def __init__(self, file: IO[bytes] | gzip.GzipFile) -> None:
        self._file, self._left_bytes = file, _MAX_READ_BYTES

    def read(self, size: int = -1) -> bytes:
        if size > _MAX_HEADER_BYTES:
            raise ReadingLimit
        # zipfile reads the end of an archive without a size.
        data = self._file.read(size if size >= 0 else _MAX_HEADER_BYTES + 1)
        self._left_bytes -= len(data)
        if self._left_bytes < 0 or len(data) > _MAX_HEADER_BYTES:
            raise ReadingLimit
        return data

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()


def _open_tar(file: BinaryIO, kind: str) -> tarfile.TarFile:
    content = _Bounded(gzip.GzipFile(fileobj=file) if kind == "gzip" else file)
    return tarfile.TarFile(fileobj=content, mode="r")


def _tar_members(file: BinaryIO, kind: str) -> Iterator[ArchiveMember]:
    with _open_tar(file, kind) as opened:
        for member in opened:
            if member.name not in ("", "."):
                sort = "file" if member.isreg() else "folder" if member.isdir() else "link"
                yield ArchiveMember(member.name, member.size, sort)


def _zip_members(file: BinaryIO) -> Iterator[ArchiveMember]:
    with zipfile.ZipFile(_Bounded(file)) as archive:
        for info in archive.infolist():
            yield ArchiveMember(info.filename, info.file_size, "folder" if info.is_dir() else "file")

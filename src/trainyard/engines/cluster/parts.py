"""A folder as a tar archive that is read piece by piece, from any offset, and is the same every time.

It is how what an instance left goes to the node of the first one. Nothing is stored for it: the headers are made again,
in the same order, and the bytes of files come from the files.
"""

import io
import os
import shutil
import stat
import tarfile
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from trainyard.foundation.errors import Corrupt

PART_BYTES = 4 << 20

_BLOCK = tarfile.BLOCKSIZE
_END = bytes(2 * _BLOCK)


class FolderTar:
    """The archive of a folder in which nothing changes any more. An absent folder is an empty archive."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._spans = list(_spans(root))
        self._starts = [span.start for span in self._spans]

    def read(self, offset: int) -> bytes:
        """The bytes from `offset` on, about PART_BYTES of them; none at its end."""
        pieces: list[bytes] = []
        size = 0
        while size < PART_BYTES and (piece := self._piece(offset + size, PART_BYTES - size)):
            pieces.append(piece)
            size += len(piece)
        return b"".join(pieces)

    def _piece(self, offset: int, size: int) -> bytes:
        number = bisect_right(self._starts, offset) - 1
        return self._spans[number].read(self._root, offset - self._starts[number], size)


@dataclass(frozen=True, slots=True)
class _Span:
    """A header and the bytes of a file behind it, filled up to whole blocks; or the end of the archive."""

    start: int
    header: bytes
    path: str = ""
    size: int = 0

    @property
    def end(self) -> int:
        return self.start + len(self.header) + -(-self.size // _BLOCK) * _BLOCK

    def read(self, root: Path, at: int, size: int) -> bytes:
        if at < len(self.header):
            return self.header[at : at + size]
        within = at - len(self.header)
        wanted = min(size, self.end - self.start - at)
        data = _bytes_of(root / self.path, within, min(wanted, self.size - within)) if within < self.size else b""
        return data.ljust(wanted, b"\0")


def unpack(read: Callable[[int], bytes], folder: Path) -> None:
    """Put what an archive holds into a folder, made if need be; `read` gives its bytes from an offset on.

    Corrupt when it is cut short, or holds what no such archive does.
    """
    folder.mkdir(parents=True, exist_ok=True)
    source = _Source(read)
    try:
        with tarfile.open(fileobj=source, mode="r|", bufsize=PART_BYTES) as archive:
            for entry in archive:
                _unpack_entry(archive, entry, folder)
            while source.read(PART_BYTES):
                pass
            # A damaged header is taken for the end, unless one looks where that is.
            if archive.offset + len(_END) != source.at:
                raise tarfile.ReadError("it does not end where it should")
    except tarfile.TarError as error:
        raise Corrupt(f"What another instance left cannot be unpacked: {error}.") from error


class _Source(io.RawIOBase):
    """The archive as a file that is read from front to back."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        super().__init__()
        self._fetch = read
        self.at = 0
        self._rest = b""

    def read(self, size: int = -1, /) -> bytes:
        if not self._rest:
            self._rest = self._fetch(self.at)
            self.at += len(self._rest)
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken


def _unpack_entry(archive: tarfile.TarFile, entry: tarfile.TarInfo, folder: Path) -> None:
    target = folder / entry.name
    if not target.parent.resolve().is_relative_to(folder.resolve()):
        raise Corrupt(f'"{entry.name}" of an archive of another instance lies outside of its folder.')
    if entry.isdir():
        target.mkdir(exist_ok=True)
    elif entry.issym():
        target.symlink_to(entry.linkname)
    elif entry.isreg():
        source = archive.extractfile(entry)
        assert source is not None, "a file has bytes"
        with target.open("xb") as file:
            shutil.copyfileobj(source, file, PART_BYTES)
        target.chmod(entry.mode & 0o777)
    else:
        raise Corrupt(f'"{entry.name}" of an archive of another instance is neither a file, a folder nor a link.')


def _spans(root: Path) -> Iterator[_Span]:
    at = 0
    for path in _walk(root):
        header = _header(root, path)
        if header is None:
            continue
        span = _Span(at, header.tobuf(tarfile.PAX_FORMAT, errors="surrogateescape"), path, header.size)
        yield span
        at = span.end
    yield _Span(at, _END)


def _walk(root: Path) -> Iterator[str]:
    """Every path below the root, folders before what is in them, in an order that does not change."""
    for parent, folders, files in os.walk(root):
        folders.sort()
        below = os.path.relpath(parent, root)
        for name in sorted((*folders, *files)):
            yield os.path.normpath(os.path.join(below, name))  # noqa: PTH118 - a model may have many files


def _header(root: Path, path: str) -> tarfile.TarInfo | None:
    """None for what is neither a file, a folder nor a link."""
    found = os.lstat(root / path)
    header = tarfile.TarInfo(path)
    header.mode, header.mtime = stat.S_IMODE(found.st_mode), int(found.st_mtime)
    if stat.S_ISREG(found.st_mode):
        header.size = found.st_size
    elif stat.S_ISDIR(found.st_mode):
        header.type = tarfile.DIRTYPE
    elif stat.S_ISLNK(found.st_mode):
        header.type, header.linkname = tarfile.SYMTYPE, str((root / path).readlink())
    else:
        return None
    return header


def _bytes_of(path: Path, offset: int, size: int) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return os.pread(descriptor, size, offset)
    finally:
        os.close(descriptor)

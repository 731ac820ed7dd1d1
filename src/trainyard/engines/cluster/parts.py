"""A folder as a tar archive that is read piece by piece, from any offset, and is the same every time.

It is how what an instance left goes to the node of the first one. Nothing is stored for it: the headers are made again,
in the same order, and the bytes of files come from the files.
"""

import errno
import io
import os
import stat
import tarfile
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO

from trainyard.foundation.confined import ConfinedFolder
from trainyard.foundation.disk import reserve_of
from trainyard.foundation.errors import Corrupt

PART_BYTES = 4 << 20
DEEPEST = 200  # folders within each other; who packs what was brought refuses more
# Of all files together; instance/agent/artifacts.py packs no more, and refuses what has a little more.
MOST_HOLES = 64 * 1024**3  # bytes that take no space on the disk
MOST_ENTRIES = 500_000

_MISPLACED = (errno.EXDEV, errno.ENOTDIR, errno.ELOOP)  # what a path fails with that leads out, or through a link
_HOLLOW = "TRAINYARD.hollow"  # in the header of a file of which nothing but its size is brought
_BLOCK = tarfile.BLOCKSIZE
_END = bytes(2 * _BLOCK)


class FolderTar:
    """The archive of a folder in which nothing changes any more, and in which a program could do what it liked.

    It lies at a path below a folder that the program cannot replace. An absent folder is an empty archive, and so is a
    link in its place.
    """

    def __init__(self, root: Path, path: str) -> None:
        self._root = root
        self._path = path
        self._spans = list(_spans(root, path))
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
        return self._spans[number].read(self._root, self._path, at=offset - self._starts[number], size=size)


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

    def read(self, root: Path, above: str, *, at: int, size: int) -> bytes:
        if at < len(self.header):
            return self.header[at : at + size]
        within = at - len(self.header)
        wanted = min(size, self.end - self.start - at)
        if within >= self.size:
            return bytes(wanted)
        with ConfinedFolder.open(root, above) as folder:
            descriptor = folder.open_file(self.path)
            try:
                data = os.pread(descriptor, min(wanted, self.size - within), within)
            finally:
                os.close(descriptor)
        return data.ljust(wanted, b"\0")


def unpack(read: Callable[[int], bytes], folder: Path) -> None:
    """Put what an archive holds into a folder, made if need be; `read` gives its bytes from an offset on.

    Corrupt when it is cut short, or holds what no such archive does.
    """
    folder.mkdir(parents=True, exist_ok=True)
    source = _Source(read)
    try:
        with (
            ConfinedFolder.open(folder) as opened,
            tarfile.open(fileobj=source, mode="r|", bufsize=PART_BYTES) as archive,
        ):
            for entry in archive:
                _unpack_entry(archive, entry, opened)
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


def _unpack_entry(archive: tarfile.TarFile, entry: tarfile.TarInfo, folder: ConfinedFolder) -> None:
    try:
        if entry.isdir():
            folder.make_folder(entry.name).close()
        elif entry.issym():
            folder.make_link(entry.name, entry.linkname)
        elif entry.isreg():
            with os.fdopen(folder.create_file(entry.name, mode=0o600), "wb", buffering=0) as file:
                _fill(file, archive, entry)
        else:
            raise Corrupt(f'"{entry.name}" of an archive of another instance is neither a file, a folder nor a link.')
    except OSError as error:
        if error.errno not in _MISPLACED:
            raise
        raise Corrupt(f'"{entry.name}" of an archive of another instance lies outside of its folder.') from error


def _fill(file: IO[bytes], archive: tarfile.TarFile, entry: tarfile.TarInfo) -> None:
    """What is nothing but zeros takes no space: a program may leave files that are larger than the disk."""
    source = archive.extractfile(entry)
    assert source is not None, "a file has bytes"
    while data := source.read(PART_BYTES):
        if data.strip(b"\0"):
            if not reserve_of(file.fileno()).leaves(len(data)):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), entry.name)
            file.write(data)
        else:
            file.seek(len(data), os.SEEK_CUR)
    file.truncate(max(file.tell(), int(entry.pax_headers.get(_HOLLOW, 0))))
    os.fchmod(file.fileno(), entry.mode & 0o777)


def _spans(root: Path, path: str) -> Iterator[_Span]:
    at = 0
    for header in _headers(root, path):
        name = header.name
        span = _Span(at, header.tobuf(tarfile.PAX_FORMAT, errors="surrogateescape"), name, header.size)
        yield span
        at = span.end
    yield _Span(at, _END)


def _headers(root: Path, path: str) -> Iterator[tarfile.TarInfo]:
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(ConfinedFolder.open(root, path))
        except OSError:
            return
        yield from _headers_below(folder, "", _Measure())


@dataclass(slots=True)
class _Measure:
    """How much a folder may still have, so that what goes beyond is brought no further than it is noticed by."""

    holes: int = MOST_HOLES
    entries: int = MOST_ENTRIES + 1

    def is_hollow(self, found: os.stat_result) -> bool:
        """Whether a file is the one whose holes are too many, or comes after it."""
        self.holes -= max(0, found.st_size - found.st_blocks * 512)
        return self.holes < 0

    def names(self, folder: ConfinedFolder) -> list[str]:
        with os.scandir(folder.fileno()) as entries:
            names = sorted(entry.name for entry in islice(entries, self.entries))
        self.entries -= len(names)
        return names


def _headers_below(folder: ConfinedFolder, above: str, measure: _Measure) -> Iterator[tarfile.TarInfo]:
    """Of everything in a folder, folders before what is in them, in an order that does not change."""
    inner = []
    for name in measure.names(folder):
        header = _header(folder, name, f"{above}{name}", measure)
        if header is not None:
            yield header
        if header is not None and header.isdir() and above.count("/") <= DEEPEST:
            inner.append(name)
    for name in inner:
        with folder.open_folder(name) as opened:
            yield from _headers_below(opened, f"{above}{name}/", measure)


def _header(folder: ConfinedFolder, name: str, path: str, measure: _Measure) -> tarfile.TarInfo | None:
    """None for what is neither a file, a folder nor a link."""
    found = folder.status(name)
    if found is None:
        return None
    header = tarfile.TarInfo(path)
    header.mode, header.mtime = stat.S_IMODE(found.st_mode), int(found.st_mtime)
    if stat.S_ISREG(found.st_mode):
        is_hollow = measure.is_hollow(found)
        header.size = 0 if is_hollow else found.st_size
        header.pax_headers = {_HOLLOW: str(found.st_size)} if is_hollow else {}
    elif stat.S_ISDIR(found.st_mode):
        header.type = tarfile.DIRTYPE
    elif stat.S_ISLNK(found.st_mode):
        header.type, header.linkname = tarfile.SYMTYPE, folder.read_link(name)
    else:
        return None
    return header

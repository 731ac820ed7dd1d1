"""A folder as a tar archive that can be read in parts, from any offset, and is the same every time.

The results of an instance are copied to the node of the first instance in this form. The archive is not stored: the
headers are generated again in the same order, and the content comes from the files.
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
# Limits on all files together. instance/agent/results/merged_tree.py allows no more than this: it fails the job, and
# what exceeds the limits has to be copied only so far that it notices.
MAX_DEPTH = 200
MAX_HOLE_BYTES = 64 * 1024**3
MAX_ENTRIES = 500_000

# How opening a path fails that leads out of the folder, or through a link.
_ESCAPE_ERRNOS = (errno.EXDEV, errno.ENOTDIR, errno.ELOOP)
# In the header of a file of which only the size is copied.
_HOLLOW_HEADER = "TRAINYARD.hollow"
_BLOCK = tarfile.BLOCKSIZE
_END = bytes(2 * _BLOCK)


class FolderTar:
    """The archive of a folder that no longer changes, but in which a program could do anything.

    `path` is relative to `root`, which the program cannot replace. If the folder is missing, or a link is in its place,
    the archive is empty.
    """

    def __init__(self, root: Path, path: str) -> None:
        self._root = root
        self._path = path
        self._members = list(_members(root, path))
        self._starts = [member.start for member in self._members]

    def read(self, offset: int) -> bytes:
        """Return about PART_BYTES bytes from `offset` on; empty at the end."""
        chunks: list[bytes] = []
        size = 0
        while size < PART_BYTES and (chunk := self._read_chunk(offset + size, PART_BYTES - size)):
            chunks.append(chunk)
            size += len(chunk)
        return b"".join(chunks)

    def _read_chunk(self, offset: int, size: int) -> bytes:
        number = bisect_right(self._starts, offset) - 1
        return self._members[number].read(self._root, self._path, at=offset - self._starts[number], size=size)


@dataclass(frozen=True, slots=True)
class _TarMember:
    """A header and the content of a file, padded to whole blocks; or the end of the archive."""

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


def unpack_folder(read: Callable[[int], bytes], folder: Path) -> None:
    """Unpack an archive into a folder, created if need be. `read` returns the archive's bytes from an offset on.

    Raises Corrupt if the archive is truncated, or has entries that no such archive has.
    """
    folder.mkdir(parents=True, exist_ok=True)
    source = _ArchiveStream(read)
    try:
        with (
            ConfinedFolder.open(folder) as opened,
            tarfile.open(fileobj=source, mode="r|", bufsize=PART_BYTES) as archive,
        ):
            for entry in archive:
                _unpack_entry(archive, entry, opened)
            while source.read(PART_BYTES):
                pass
            # tarfile takes a damaged header for the end, so the end has to be where it should.
            if archive.offset + len(_END) != source.at:
                raise tarfile.ReadError("it does not end where it should")
    except tarfile.TarError as error:
        raise Corrupt(f"The results of another instance cannot be unpacked: {error}.") from error


class _ArchiveStream(io.RawIOBase):
    """The archive as a file that is read sequentially."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        super().__init__()
        self._fetch = read
        self.at = 0
        self._buffer = b""

    def read(self, size: int = -1, /) -> bytes:
        if not self._buffer:
            self._buffer = self._fetch(self.at)
            self.at += len(self._buffer)
        chunk, self._buffer = self._buffer[:size], self._buffer[size:]
        return chunk


def _unpack_entry(archive: tarfile.TarFile, entry: tarfile.TarInfo, folder: ConfinedFolder) -> None:
    try:
        if entry.isdir():
            folder.make_folder(entry.name).close()
        elif entry.issym():
            folder.make_link(entry.name, entry.linkname)
        elif entry.isreg():
            with os.fdopen(folder.create_file(entry.name, mode=0o600), "wb", buffering=0) as file:
                _write_file(file, archive, entry)
        else:
            raise Corrupt(f'"{entry.name}" in an archive of another instance is neither a file, a folder nor a link.')
    except OSError as error:
        if error.errno not in _ESCAPE_ERRNOS:
            raise
        raise Corrupt(f'"{entry.name}" in an archive of another instance is outside of its folder.') from error


def _write_file(file: IO[bytes], archive: tarfile.TarFile, entry: tarfile.TarInfo) -> None:
    """Write a file. Zeros take no space, because a program may leave sparse files that are larger than the disk."""
    source = archive.extractfile(entry)
    assert source is not None, "a regular file has content"
    while data := source.read(PART_BYTES):
        if data.strip(b"\0"):
            if not reserve_of(file.fileno()).leaves(len(data)):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), entry.name)
            file.write(data)
        else:
            file.seek(len(data), os.SEEK_CUR)
    file.truncate(max(file.tell(), int(entry.pax_headers.get(_HOLLOW_HEADER, 0))))
    os.fchmod(file.fileno(), entry.mode & 0o777)


def _members(root: Path, path: str) -> Iterator[_TarMember]:
    at = 0
    for header in _headers(root, path):
        name = header.name
        member = _TarMember(at, header.tobuf(tarfile.PAX_FORMAT, errors="surrogateescape"), name, header.size)
        yield member
        at = member.end
    yield _TarMember(at, _END)


def _headers(root: Path, path: str) -> Iterator[tarfile.TarInfo]:
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(ConfinedFolder.open(root, path))
        except OSError:
            return
        yield from _headers_below(folder, "", _FolderLimits())


@dataclass(slots=True)
class _FolderLimits:
    """What a folder may still have before it exceeds the limits."""

    holes: int = MAX_HOLE_BYTES
    entries: int = MAX_ENTRIES + 1

    def is_hollow(self, found: os.stat_result) -> bool:
        """Whether the holes of this file and those before it exceed the limit."""
        self.holes -= max(0, found.st_size - found.st_blocks * 512)
        return self.holes < 0

    def names(self, folder: ConfinedFolder) -> list[str]:
        with os.scandir(folder.fileno()) as entries:
            names = sorted(entry.name for entry in islice(entries, self.entries))
        self.entries -= len(names)
        return names


def _headers_below(folder: ConfinedFolder, above: str, limits: _FolderLimits) -> Iterator[tarfile.TarInfo]:
    """Yield the headers of everything in a folder in a stable order, folders before their content."""
    inner = []
    for name in limits.names(folder):
        header = _header(folder, name, f"{above}{name}", limits)
        if header is not None:
            yield header
        if header is not None and header.isdir() and above.count("/") <= MAX_DEPTH:
            inner.append(name)
    for name in inner:
        with folder.open_folder(name) as opened:
            yield from _headers_below(opened, f"{above}{name}/", limits)


def _header(folder: ConfinedFolder, name: str, path: str, limits: _FolderLimits) -> tarfile.TarInfo | None:
    """Return the header of an entry; None if it is neither a file, a folder nor a link."""
    found = folder.status(name)
    if found is None:
        return None
    header = tarfile.TarInfo(path)
    header.mode, header.mtime = stat.S_IMODE(found.st_mode), int(found.st_mtime)
    if stat.S_ISREG(found.st_mode):
        is_hollow = limits.is_hollow(found)
        header.size = 0 if is_hollow else found.st_size
        header.pax_headers = {_HOLLOW_HEADER: str(found.st_size)} if is_hollow else {}
    elif stat.S_ISDIR(found.st_mode):
        header.type = tarfile.DIRTYPE
    elif stat.S_ISLNK(found.st_mode):
        header.type, header.linkname = tarfile.SYMTYPE, folder.read_link(name)
    else:
        return None
    return header

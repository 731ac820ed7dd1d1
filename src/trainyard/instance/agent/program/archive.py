"""Unpacks untrusted archives into one folder and nowhere else."""

import gzip
import os
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from trainyard.foundation.errors import InvalidRequest
from trainyard.instance.agent.program.tar_stream import MalformedTar, TarEntry, TarKind, TarSource, TarStream

# A generous estimate of the bytes around the data of an entry.
_HEADER_BYTES = 3 * 1024
# The limit of file systems for one name.
_NAME_BYTES = 255


class UnsafeArchive(InvalidRequest):
    """The archive has an entry that would reach outside its folder, or exceeds a limit."""


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """The limits of an archive."""

    total_bytes: int = 2 * 1024**3
    entries: int = 100_000
    path_bytes: int = 1024
    depth: int = 64

    @property
    def read_bytes(self) -> int:
        """The most bytes that are read, including headers."""
        return self.total_bytes + self.entries * _HEADER_BYTES


CODE_LIMITS = ArchiveLimits()


def extract_tar_gz(source: BinaryIO, folder: Path, limits: ArchiveLimits = CODE_LIMITS) -> None:
    """Unpack into an existing folder that nobody else writes to.

    Files, folders, and links that stay inside are created, readable and with their executable bit; owners, times and
    other modes are ignored. Anything else raises UnsafeArchive or MalformedTar, which name the entry. What was unpacked
    until then stays in the folder, and nothing outside it is touched.
    """
    extractor = _ArchiveExtractor(folder, limits)
    try:
        with gzip.GzipFile(fileobj=source, mode="rb") as plain:
            stream = TarStream(_LimitedSource(plain, limits.read_bytes))
            for entry in stream:
                extractor.add(entry, stream)
    except (gzip.BadGzipFile, zlib.error) as error:
        raise MalformedTar("it is not compressed with gzip, or damaged") from error
    except EOFError as error:
        raise MalformedTar("it is cut short") from error
    extractor.make_links()


class _LimitedSource:
    """Stops reading an archive that never ends, such as one of headers only."""

    def __init__(self, source: TarSource, limit: int) -> None:
        self._source = source
        self._left = limit

    def read(self, size: int, /) -> bytes:
        data = self._source.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise UnsafeArchive("it is larger than an archive of code may be")
        return data


class _ArchiveExtractor:
    def __init__(self, folder: Path, limits: ArchiveLimits) -> None:
        self._folder = folder
        self._limits = limits
        self._bytes = 0
        self._entries = 0
        self._folders: set[PurePosixPath] = set()
        self._links: dict[PurePosixPath, str] = {}

    def add(self, entry: TarEntry, stream: TarStream) -> None:
        self._count(entry)
        path = self._check_path(entry.name, entry)
        if not path.parts:
            # The folder itself.
            return
        # Symbolic links are made at the very end, so until then no path can lead through one.
        self._links.pop(path, None)
        if entry.kind is TarKind.FOLDER:
            self._make_folder(path, entry)
        elif entry.kind is TarKind.FILE:
            self._write_file(path, entry, stream)
        elif entry.kind is TarKind.HARD_LINK:
            self._make_hard_link(path, entry)
        elif entry.kind is TarKind.SYMLINK:
            self._record_symlink(path, entry)
        else:
            raise UnsafeArchive(f'"{_printable(entry.name)}" in it is a {entry.kind}')

    def make_links(self) -> None:
        for path, target in self._links.items():
            (self._folder / path).symlink_to(target)
        # Where a chain of links leads is known only now.
        root = os.path.realpath(self._folder)
        for path, target in self._links.items():
            if os.path.commonpath([root, os.path.realpath(self._folder / path)]) != root:
                raise UnsafeArchive(f'"{_printable(str(path))}" in it is a link out of it, to "{_printable(target)}"')

    def _count(self, entry: TarEntry) -> None:
        self._entries += 1
        self._bytes += entry.size
        if self._entries > self._limits.entries:
            raise UnsafeArchive(f"it holds more than {self._limits.entries} entries")
        if self._bytes > self._limits.total_bytes:
            raise UnsafeArchive(f"it holds more than {self._limits.total_bytes} bytes")

    def _check_path(self, name: str, entry: TarEntry) -> PurePosixPath:
        path = PurePosixPath(name)
        if "\0" in name or path.is_absolute() or ".." in path.parts:
            raise UnsafeArchive(f'"{_printable(entry.name)}" in it names "{_printable(name)}", which is outside it')
        longest = max((len(os.fsencode(part)) for part in path.parts), default=0)
        is_long = longest > _NAME_BYTES or len(os.fsencode(name)) > self._limits.path_bytes
        if is_long or len(path.parts) > self._limits.depth:
            raise UnsafeArchive(f'"{_printable(entry.name)}" in it is nested too deeply or has too long a name')
        return path

    def _make_folder(self, path: PurePosixPath, entry: TarEntry) -> None:
        self._make_parents(path / "_", entry)

    def _write_file(self, path: PurePosixPath, entry: TarEntry, stream: TarStream) -> None:
        place = self._clear_path(path, entry)
        mode = 0o755 if entry.is_executable else 0o644
        descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            # The umask may have removed bits.
            os.fchmod(descriptor, mode)
            for chunk in stream.data():
                file.write(chunk)

    def _make_hard_link(self, path: PurePosixPath, entry: TarEntry) -> None:
        source = self._folder / self._check_path(entry.target, entry)
        if not source.is_file() or source == self._folder / path:
            raise UnsafeArchive(
                f'"{_printable(entry.name)}" in it is a link to "{_printable(entry.target)}", which is not a file'
            )
        os.link(source, self._clear_path(path, entry), follow_symlinks=False)

    def _record_symlink(self, path: PurePosixPath, entry: TarEntry) -> None:
        target = PurePosixPath(entry.target)
        inside = os.path.normpath(path.parent / target)
        if "\0" in entry.target or not entry.target or target.is_absolute() or inside.split("/")[0] == "..":
            raise UnsafeArchive(
                f'"{_printable(entry.name)}" in it is a link out of it, to "{_printable(entry.target)}"'
            )
        self._clear_path(path, entry)
        self._links[path] = entry.target

    def _clear_path(self, path: PurePosixPath, entry: TarEntry) -> Path:
        """Return the path for an entry, after removing an earlier file of the same name."""
        self._make_parents(path, entry)
        place = self._folder / path
        if place.is_dir():
            raise UnsafeArchive(f'"{_printable(entry.name)}" in it is both a folder and a {entry.kind}')
        place.unlink(missing_ok=True)
        return place

    def _make_parents(self, path: PurePosixPath, entry: TarEntry) -> None:
        for parent in reversed(path.parents):
            if parent in self._folders:
                continue
            if parent in self._links:
                raise UnsafeArchive(
                    f'"{_printable(entry.name)}" in it lies behind the link "{_printable(str(parent))}"'
                )
            try:
                (self._folder / parent).mkdir(mode=0o755, exist_ok=True)
            except FileExistsError as error:
                raise UnsafeArchive(f'"{_printable(str(parent))}" in it is both a file and a folder') from error
            self._folders.add(parent)


def _printable(name: str) -> str:
    """Make a name printable, whatever it contains."""
    return name.encode("utf-8", "backslashreplace").decode()[:200]

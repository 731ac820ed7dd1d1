"""Archives: named files in a folder or in one tar file, with a manifest that shows whether they are complete.

An archive is written next to its target under a temporary name and renamed at the end, so it is complete or absent.
"""

import hashlib
import io
import json
import os
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Protocol

from trainyard.foundation.errors import AlreadyExists, Corrupt, Unavailable
from trainyard.foundation.files import PRIVATE_FILE, PRIVATE_FOLDER, sync_folder

MANIFEST = "manifest.json"

_CHUNK = 1 << 20


class ReadableBytes(Protocol):
    """Bytes to read."""

    def read(self, size: int = -1, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class ArchiveMember:
    """One file of an archive. Read its bytes before asking for the next member."""

    name: str
    body: ReadableBytes


class ArchiveStorage(Protocol):
    """Stores the files of an archive: a folder or a tar file."""

    def put(self, name: str, body: ReadableBytes, size: int) -> None: ...

    def members(self) -> Iterator[ArchiveMember]:
        """Yield every file except the manifest, in the order they were put."""
        ...

    def manifest(self) -> bytes:
        """Return the manifest. Corrupt when there is none."""
        ...


class ArchiveWriter:
    """Adds files to an archive, and records their sizes and hashes for the manifest."""

    def __init__(self, storage: ArchiveStorage) -> None:
        self._storage = storage
        self._files: dict[str, list[object]] = {}
        self.size = 0

    def __len__(self) -> int:
        return len(self._files)

    def add(self, name: str, body: BinaryIO) -> None:
        """Add the bytes from the current position to the end of `body`, which must not change meanwhile."""
        size = os.fstat(body.fileno()).st_size - body.tell()
        reader = _HashingReader(body)
        self._storage.put(name, reader, size)
        self._files[name] = [size, reader.hexdigest()]
        self.size += size

    def finish(self, about: dict[str, Any]) -> None:
        """Add the manifest as the last file. Without it, the archive is incomplete."""
        manifest = json.dumps(about | {"files": self._files}, indent=0).encode()
        self._storage.put(MANIFEST, io.BytesIO(manifest), len(manifest))


@contextmanager
def new_archive(target: Path) -> Iterator[ArchiveWriter]:
    """Write an archive that appears at `target` when the block succeeds: a tar file for a name in .tar, else a folder.

    AlreadyExists when `target` exists, Unavailable when it cannot be written. Then nothing is left behind.
    """
    if target.exists():
        raise AlreadyExists("file or folder", str(target))
    partial = target.with_name(f".{target.name}.partial")
    _remove(partial)
    try:
        if target.suffix == ".tar":
            with _open_tar_for_writing(partial) as tar:
                yield ArchiveWriter(TarStorage(partial, tar))
        else:
            partial.mkdir(mode=PRIVATE_FOLDER, parents=True)
            yield ArchiveWriter(FolderStorage(partial))
            # To sync a hundred thousand files one by one would take minutes.
            os.sync()
        partial.rename(target)
        sync_folder(target.parent)
    except OSError as error:
        raise Unavailable(f"{target} could not be written: {error}.") from error
    finally:
        _remove(partial)


class Archive:
    """An archive that was complete when it was opened."""

    def __init__(self, storage: ArchiveStorage, about: dict[str, Any]) -> None:
        self._storage = storage
        self._files: dict[str, list[object]] = about["files"]
        self.about = about

    def members(self) -> Iterator[ArchiveMember]:
        """Yield only the files that the manifest names."""
        return (member for member in self._storage.members() if member.name in self._files)


def open_archive(source: Path) -> Archive:
    """Read everything once and compare it with the manifest. Corrupt says what differs."""
    try:
        storage: ArchiveStorage = FolderStorage(source) if source.is_dir() else TarStorage(source)
        about = _read_manifest(storage.manifest(), source)
        found = {member.name: _fingerprint(member.body) for member in storage.members()}
    except (OSError, tarfile.TarError) as error:
        raise Corrupt(f"{source} cannot be read as a backup: {error}.") from error
    for name, expected in about["files"].items():
        if name not in found:
            raise Corrupt(f"The backup {source} is incomplete: {name} is missing.")
        if found[name] != expected:
            raise Corrupt(f"The backup {source} is damaged: {name} does not match the manifest.")
    return Archive(storage, about)


class FolderStorage:
    """Stores files under their names in a folder."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, name: str, body: ReadableBytes, size: int) -> None:
        path = self._root / name
        path.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        with open(path, "xb", opener=_open_private) as file:
            copied = 0
            while chunk := body.read(_CHUNK):
                copied += file.write(chunk)
        assert copied == size, f"{name} changed while it was copied"

    def members(self) -> Iterator[ArchiveMember]:
        for path in sorted(self._root.rglob("*")):
            name = path.relative_to(self._root).as_posix()
            if path.is_file() and not path.is_symlink() and name != MANIFEST:
                with path.open("rb") as file:
                    yield ArchiveMember(name, file)

    def manifest(self) -> bytes:
        try:
            return (self._root / MANIFEST).read_bytes()
        except FileNotFoundError as error:
            raise Corrupt(f"{self._root} is not a backup of a yard: it has no {MANIFEST}.") from error


class TarStorage:
    """Stores files in a tar file, the manifest last."""

    def __init__(self, path: Path, tar: tarfile.TarFile | None = None) -> None:
        self._path = path
        self._tar = tar

    def put(self, name: str, body: ReadableBytes, size: int) -> None:
        assert self._tar is not None, "the storage is open for writing"
        header = tarfile.TarInfo(name)
        header.size, header.mode = size, PRIVATE_FILE
        self._tar.addfile(header, body)

    def members(self) -> Iterator[ArchiveMember]:
        return (member for member in self._read_members() if member.name != MANIFEST)

    def manifest(self) -> bytes:
        for member in self._read_members():
            if member.name == MANIFEST:
                return member.body.read()
        raise Corrupt(f"{self._path} is not a backup of a yard, or it was cut short: it has no {MANIFEST}.")

    def _read_members(self) -> Iterator[ArchiveMember]:
        with tarfile.open(self._path, "r:") as tar:
            for header in tar:
                body = tar.extractfile(header) if header.isreg() else None
                if body is not None:
                    yield ArchiveMember(header.name, body)


class _HashingReader:
    """Reads bytes and computes their hash."""

    def __init__(self, body: ReadableBytes) -> None:
        self._body = body
        self._digest = hashlib.sha256()

    def read(self, size: int = -1, /) -> bytes:
        chunk = self._body.read(size)
        self._digest.update(chunk)
        return chunk

    def hexdigest(self) -> str:
        return self._digest.hexdigest()


@contextmanager
def _open_tar_for_writing(path: Path) -> Iterator[tarfile.TarFile]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "xb", opener=_open_private) as file:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
            yield tar
        file.flush()
        os.fsync(file.fileno())


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, PRIVATE_FILE)


def _fingerprint(body: ReadableBytes) -> list[object]:
    reader, size = _HashingReader(body), 0
    while chunk := reader.read(_CHUNK):
        size += len(chunk)
    return [size, reader.hexdigest()]


def _read_manifest(text: bytes, source: Path) -> dict[str, Any]:
    try:
        about = json.loads(text)
        files = about["files"]
        names = [PurePosixPath(name) for name in files]
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"The manifest of {source} is damaged.") from error
    if any(name.is_absolute() or ".." in name.parts for name in names):
        raise Corrupt(f"The manifest of {source} names a file outside the archive.")
    return dict(about)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)

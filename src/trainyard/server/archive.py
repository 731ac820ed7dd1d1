"""Files under names in a folder or in one tar file, with a manifest that tells whether all of them are there and whole.

An archive is written beside its place under another name and renamed at the end, so it is whole or absent.
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


class Source(Protocol):
    """Bytes to be read."""

    def read(self, size: int = -1, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Member:
    """One file of an archive that is being read; its bytes are to be taken before the next is asked for."""

    name: str
    body: Source


class Shelf(Protocol):
    """Where the files of an archive lie: a folder or a tar file."""

    def put(self, name: str, body: Source, size: int) -> None: ...

    def members(self) -> Iterator[Member]:
        """Every file but the manifest, in the order they were put."""
        ...

    def manifest(self) -> bytes:
        """Corrupt when there is none."""
        ...


class ArchiveWriter:
    """Puts files on a shelf and remembers their sizes and hashes for the manifest."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._files: dict[str, list[object]] = {}
        self.size = 0

    def __len__(self) -> int:
        return len(self._files)

    def add(self, name: str, body: BinaryIO) -> None:
        """Put the bytes from here to the end of `body`, which must not change meanwhile."""
        size = os.fstat(body.fileno()).st_size - body.tell()
        hashing = _Hashing(body)
        self._shelf.put(name, hashing, size)
        self._files[name] = [size, hashing.hexdigest()]
        self.size += size

    def finish(self, about: dict[str, Any]) -> None:
        """Put the manifest, last: without it nothing here counts."""
        manifest = json.dumps(about | {"files": self._files}, indent=0).encode()
        self._shelf.put(MANIFEST, io.BytesIO(manifest), len(manifest))


@contextmanager
def new_archive(target: Path) -> Iterator[ArchiveWriter]:
    """An archive that appears at `target` when the block ends well; a tar file if the name ends so, else a folder.

    AlreadyExists when something is there, Unavailable when it cannot be written; then nothing is left of it.
    """
    if target.exists():
        raise AlreadyExists("file or folder", str(target))
    partial = target.with_name(f".{target.name}.partial")
    _remove(partial)
    try:
        if target.suffix == ".tar":
            with _open_tar_for_writing(partial) as tar:
                yield ArchiveWriter(TarShelf(partial, tar))
        else:
            partial.mkdir(mode=PRIVATE_FOLDER, parents=True)
            yield ArchiveWriter(FolderShelf(partial))
            os.sync()  # one by one, a hundred thousand files would take minutes
        partial.rename(target)
        sync_folder(target.parent)
    except OSError as error:
        raise Unavailable(f"{target} was not made: {error}.") from error
    finally:
        _remove(partial)


class Archive:
    """An archive that was found whole when it was opened."""

    def __init__(self, shelf: Shelf, about: dict[str, Any]) -> None:
        self._shelf = shelf
        self._files: dict[str, list[object]] = about["files"]
        self.about = about

    def members(self) -> Iterator[Member]:
        """The files that the manifest names, and no others."""
        return (member for member in self._shelf.members() if member.name in self._files)


def open_archive(source: Path) -> Archive:
    """Read everything once and compare it with the manifest; Corrupt, with what is wrong, when they differ."""
    try:
        shelf: Shelf = FolderShelf(source) if source.is_dir() else TarShelf(source)
        about = _read_manifest(shelf.manifest(), source)
        found = {member.name: _fingerprint(member.body) for member in shelf.members()}
    except (OSError, tarfile.TarError) as error:
        raise Corrupt(f"{source} cannot be read as a backup: {error}.") from error
    for name, expected in about["files"].items():
        if name not in found:
            raise Corrupt(f"The backup {source} is not whole: {name} is missing.")
        if found[name] != expected:
            raise Corrupt(f"The backup {source} is damaged: {name} is not what was kept.")
    return Archive(shelf, about)


class FolderShelf:
    """Files under their names in a folder."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, name: str, body: Source, size: int) -> None:
        path = self._root / name
        path.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        with open(path, "xb", opener=_private) as file:
            copied = 0
            while chunk := body.read(_CHUNK):
                copied += file.write(chunk)
        assert copied == size, f"{name} changed while it was copied"

    def members(self) -> Iterator[Member]:
        for path in sorted(self._root.rglob("*")):
            name = path.relative_to(self._root).as_posix()
            if path.is_file() and not path.is_symlink() and name != MANIFEST:
                with path.open("rb") as file:
                    yield Member(name, file)

    def manifest(self) -> bytes:
        try:
            return (self._root / MANIFEST).read_bytes()
        except FileNotFoundError as error:
            raise Corrupt(f"{self._root} is no backup of a yard: it has no {MANIFEST}.") from error


class TarShelf:
    """Files in a tar file, the manifest last."""

    def __init__(self, path: Path, tar: tarfile.TarFile | None = None) -> None:
        self._path = path
        self._tar = tar

    def put(self, name: str, body: Source, size: int) -> None:
        assert self._tar is not None, "the shelf is open for writing"
        header = tarfile.TarInfo(name)
        header.size, header.mode = size, PRIVATE_FILE
        self._tar.addfile(header, body)

    def members(self) -> Iterator[Member]:
        return (member for member in self._all() if member.name != MANIFEST)

    def manifest(self) -> bytes:
        for member in self._all():
            if member.name == MANIFEST:
                return member.body.read()
        raise Corrupt(f"{self._path} is no backup of a yard, or cut short: it has no {MANIFEST}.")

    def _all(self) -> Iterator[Member]:
        with tarfile.open(self._path, "r:") as tar:
            for header in tar:
                body = tar.extractfile(header) if header.isreg() else None
                if body is not None:
                    yield Member(header.name, body)


class _Hashing:
    """A reader that computes the hash of what passes."""

    def __init__(self, body: Source) -> None:
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
    with open(path, "xb", opener=_private) as file:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
            yield tar
        file.flush()
        os.fsync(file.fileno())


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, PRIVATE_FILE)


def _fingerprint(body: Source) -> list[object]:
    hashing, size = _Hashing(body), 0
    while chunk := hashing.read(_CHUNK):
        size += len(chunk)
    return [size, hashing.hexdigest()]


def _read_manifest(text: bytes, source: Path) -> dict[str, Any]:
    try:
        about = json.loads(text)
        files = about["files"]
        names = [PurePosixPath(name) for name in files]
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"The manifest of {source} is damaged.") from error
    if any(name.is_absolute() or ".." in name.parts for name in names):
        raise Corrupt(f"The manifest of {source} names a file outside of it.")
    return dict(about)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)

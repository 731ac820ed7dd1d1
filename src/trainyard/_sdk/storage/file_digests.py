"""SHA-256 checksums of files in the form of S3, cached for files that have not changed."""

import base64
import contextlib
import hashlib
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from trainyard.foundation.errors import Unavailable
from trainyard.foundation.files import PRIVATE_FOLDER

PART_BYTES = 16 * 1024 * 1024
_MAX_PARTS = 10_000
_MAX_ATTEMPTS = 3
# A file that was written this recently may change again without a new modification time.
_UNSETTLED_NS = 2_000_000_000
_CACHE_LIFETIME_S = 90 * 24 * 3600
_CHUNK_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class FileDigest:
    """The size and the checksum of a file. A file that is uploaded in parts has the composite checksum of S3."""

    size: int
    checksum: str


class FileChanged(Unavailable):
    """A file changed while it was read."""

    def __init__(self, path: Path) -> None:
        super().__init__(f'"{path}" changed during the upload; try again when no program writes to it.')


def part_sizes(size: int) -> list[int]:
    """Return the sizes of the parts of a file: one part if it is small, and never more parts than S3 allows."""
    if size < PART_BYTES:
        return [size]
    length = max(PART_BYTES, -(-size // _MAX_PARTS))
    whole, rest = divmod(size, length)
    return [length] * whole + ([rest] if rest else [])


def encode_digest(digest: bytes) -> str:
    """Return a SHA-256 digest in the encoding of S3."""
    return base64.b64encode(digest).decode()


def checksum_of(parts: Sequence[bytes], size: int) -> str:
    """Return the checksum of an object from the SHA-256 digests of its parts."""
    if size < PART_BYTES:
        return encode_digest(parts[0])
    return f"{encode_digest(hashlib.sha256(b''.join(parts)).digest())}-{len(parts)}"


class FileDigests:
    """Computes digests of files and caches them. For use in one thread.

    The cache is a database in the user's cache folder; its key is the device, the inode, the size and both change times
    of a file. If the database cannot be used, every digest is computed.
    """

    def __init__(self, folder: Path) -> None:
        self._database = _open_database(folder / "digests.sqlite")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._database is not None:
            self._database.close()

    def digest(self, path: Path) -> FileDigest:
        """Return the digest of a file. Raises FileChanged if the file keeps changing."""
        for _ in range(_MAX_ATTEMPTS):
            with path.open("rb", buffering=0) as file:
                before = os.fstat(file.fileno())
                cached = self._load(before)
                if cached is not None:
                    return FileDigest(before.st_size, cached)
                started_ns = time.time_ns()
                checksum = _checksum(file, before.st_size)
                after = os.fstat(file.fileno())
            if checksum is not None and _identity(before) == _identity(after):
                self._save(after, checksum, started_ns=started_ns)
                return FileDigest(before.st_size, checksum)
        raise FileChanged(path)

    def _load(self, status: os.stat_result) -> str | None:
        if self._database is None:
            return None
        with contextlib.suppress(sqlite3.Error):
            query = f"SELECT checksum FROM digests WHERE {' AND '.join(f'{name} = ?' for name in _COLUMNS)}"
            row = self._database.execute(query, _identity(status)).fetchone()
            return str(row[0]) if row else None
        return None

    def _save(self, status: os.stat_result, checksum: str, *, started_ns: int) -> None:
        if self._database is None or max(status.st_mtime_ns, status.st_ctime_ns) > started_ns - _UNSETTLED_NS:
            return
        with contextlib.suppress(sqlite3.Error):
            self._database.execute(
                "INSERT OR REPLACE INTO digests VALUES (?, ?, ?, ?, ?, ?, ?)",
                (*_identity(status), checksum, int(time.time())),
            )


_COLUMNS = ("device", "inode", "size", "modified_ns", "changed_ns")


def _identity(status: os.stat_result) -> tuple[str, str, int, int, int]:
    # Devices and inodes can be larger than the integers of SQLite.
    return (str(status.st_dev), str(status.st_ino), status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _checksum(file: BinaryIO, size: int) -> str | None:
    """Return the checksum of an open file; None if its size has changed."""
    digests = []
    for part_size in part_sizes(size):
        digest, missing = hashlib.sha256(), part_size
        for chunk in _read_chunks(file, part_size):
            digest.update(chunk)
            missing -= len(chunk)
        if missing:
            return None
        digests.append(digest.digest())
    return None if file.read(1) else checksum_of(digests, size)


def _read_chunks(file: BinaryIO, size: int) -> Iterator[bytes]:
    while size and (chunk := file.read(min(size, _CHUNK_BYTES))):
        size -= len(chunk)
        yield chunk


def _open_database(path: Path) -> sqlite3.Connection | None:
    try:
        path.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        database = sqlite3.connect(path, timeout=1, isolation_level=None)
    except (OSError, sqlite3.Error):
        return None
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        columns = ", ".join(f"{name} NOT NULL" for name in _COLUMNS)
        database.execute(
            f"CREATE TABLE IF NOT EXISTS digests ({columns}, checksum TEXT NOT NULL, read_s INTEGER NOT NULL, "
            f"PRIMARY KEY ({', '.join(_COLUMNS)})) WITHOUT ROWID"
        )
        database.execute("DELETE FROM digests WHERE read_s < ?", (int(time.time()) - _CACHE_LIFETIME_S,))
    except sqlite3.Error:
        database.close()
        return None
    return database

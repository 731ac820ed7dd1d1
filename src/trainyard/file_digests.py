"""What is in files: SHA-256 as S3 counts it, remembered for files that have not changed since they were read."""

import base64
import contextlib
import hashlib
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from trainyard.foundation.errors import Unavailable
from trainyard.foundation.files import PRIVATE_FOLDER

PART_BYTES = 16 * 1024 * 1024
_MOST_PARTS = 10_000
_TRIES = 3
_SETTLED_NS = 2_000_000_000  # a file written later than this before it was read may change without showing it
_KEPT_S = 90 * 24 * 3600
_PIECE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class FileDigest:
    """The size of a file and its checksum: that of the whole, or for a file in parts the composite one of S3."""

    size: int
    checksum: str


class FileChanged(Unavailable):
    """A file was written while it was being read."""

    def __init__(self, path: Path) -> None:
        super().__init__(f'"{path}" changed while it was being uploaded; run it again when nothing writes there.')


def part_sizes(size: int) -> list[int]:
    """The parts in which a file of this size is sent: one if it is small, and never more than S3 takes."""
    if size < PART_BYTES:
        return [size]
    length = max(PART_BYTES, -(-size // _MOST_PARTS))
    whole, rest = divmod(size, length)
    return [length] * whole + ([rest] if rest else [])


def encoded(digest: bytes) -> str:
    """A SHA-256 as S3 writes it."""
    return base64.b64encode(digest).decode()


def checksum_of(parts: Sequence[bytes], size: int) -> str:
    """The checksum of an object of this size from the SHA-256 of each of its parts."""
    if size < PART_BYTES:
        return encoded(parts[0])
    return f"{encoded(hashlib.sha256(b''.join(parts)).digest())}-{len(parts)}"


class FileDigests:
    """Digests of files, for one thread. Those of files that are as they were are not computed again.

    They are kept in a database below the user's cache folder, by device, inode, size and both times of change. Where
    that cannot be used, everything is computed.
    """

    def __init__(self, folder: Path) -> None:
        self._database = _opened(folder / "digests.sqlite")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._database is not None:
            self._database.close()

    def digest(self, path: Path) -> FileDigest:
        """What is in a file; FileChanged where it is written all the time."""
        for _ in range(_TRIES):
            with path.open("rb", buffering=0) as file:
                before = os.fstat(file.fileno())
                known = self._recall(before)
                if known is not None:
                    return FileDigest(before.st_size, known)
                began_ns = time.time_ns()
                checksum = _checksum(file, before.st_size)
                after = os.fstat(file.fileno())
            if checksum is not None and _identity(before) == _identity(after):
                self._remember(after, checksum, began_ns=began_ns)
                return FileDigest(before.st_size, checksum)
        raise FileChanged(path)

    def _recall(self, status: os.stat_result) -> str | None:
        if self._database is None:
            return None
        with contextlib.suppress(sqlite3.Error):
            query = f"SELECT checksum FROM digests WHERE {' AND '.join(f'{name} = ?' for name in _COLUMNS)}"
            row = self._database.execute(query, _identity(status)).fetchone()
            return str(row[0]) if row else None
        return None

    def _remember(self, status: os.stat_result, checksum: str, *, began_ns: int) -> None:
        if self._database is None or max(status.st_mtime_ns, status.st_ctime_ns) > began_ns - _SETTLED_NS:
            return
        with contextlib.suppress(sqlite3.Error):
            self._database.execute(
                "INSERT OR REPLACE INTO digests VALUES (?, ?, ?, ?, ?, ?, ?)",
                (*_identity(status), checksum, int(time.time())),
            )


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Where a client of this user keeps what it can do without."""
    chosen = environment.get("XDG_CACHE_HOME", "")
    root = Path(chosen) if Path(chosen).is_absolute() else Path.home() / ".cache"
    return root / "trainyard"


_COLUMNS = ("device", "inode", "size", "modified_ns", "changed_ns")


def _identity(status: os.stat_result) -> tuple[str, str, int, int, int]:
    # Devices and inodes can be larger than the integers of SQLite.
    return (str(status.st_dev), str(status.st_ino), status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _checksum(file: BinaryIO, size: int) -> str | None:
    """The checksum of an open file; None where it has not the size that it had."""
    digests = []
    for wanted in part_sizes(size):
        digest, missing = hashlib.sha256(), wanted
        for piece in _pieces(file, wanted):
            digest.update(piece)
            missing -= len(piece)
        if missing:
            return None
        digests.append(digest.digest())
    return None if file.read(1) else checksum_of(digests, size)


def _pieces(file: BinaryIO, size: int) -> Iterator[bytes]:
    while size and (piece := file.read(min(size, _PIECE_BYTES))):
        size -= len(piece)
        yield piece


def _opened(path: Path) -> sqlite3.Connection | None:
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
        database.execute("DELETE FROM digests WHERE read_s < ?", (int(time.time()) - _KEPT_S,))
    except sqlite3.Error:
        database.close()
        return None
    return database

"""Caches blocks of remote objects on disk, within a limit. A block belongs to one version of an object.

Its file is named after that version and ends in a checksum, so that what a crash left of it is never used. Several
processes may share a folder; each enforces the limit by scanning all files now and then and removing the oldest.
"""

import os
import threading
import time
import zlib
from collections import OrderedDict
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from trainyard.foundation.files import PRIVATE_FILE, PRIVATE_FOLDER
from trainyard.instance.agent.data.remote_files.tree import RemoteFile

_CHECKSUM_BYTES = 4
# How often a shared folder is scanned while it is filled once.
_SCANS_PER_FILL = 16
_NEW = ".new"
# An unfinished block of this age was abandoned.
_ABANDONED_AFTER_S = 3600.0


class BlockCache:
    """A cache that threads may share. Blocks that the disk refuses are not cached."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder = folder
        self._limit = limit_bytes
        self._lock = threading.Lock()
        # Least recently used first.
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._total = 0
        # Blocks whose checksum was verified.
        self._verified: set[str] = set()
        self._writing: set[str] = set()
        # Written since the folder was scanned.
        self._unscanned_bytes = 0
        for first in range(256):
            (folder / f"{first:02x}").mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        self._rescan()

    @property
    def size_bytes(self) -> int:
        return self._total

    def has_block(self, file: RemoteFile, block: int) -> bool:
        """Whether a block was in the cache a moment ago."""
        return _name(file, block) in self._sizes

    def read_block(self, file: RemoteFile, block: int, *, offset: int, size: int) -> bytes | None:
        """Read bytes of a block; None when it is not cached."""
        name = _name(file, block)
        try:
            descriptor = os.open(self._path(name), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            if not self._is_intact(name, descriptor):
                self._remove(name)
                return None
            with self._lock:
                if name in self._sizes:
                    self._sizes.move_to_end(name)
            return os.pread(descriptor, size, offset)
        finally:
            os.close(descriptor)

    def store_block(self, file: RemoteFile, block: int, data: memoryview) -> None:
        name, size = _name(file, block), len(data) + _CHECKSUM_BYTES
        if not self._reserve(name, size):
            return
        try:
            self._write(self._path(name), data)
            with self._lock:
                self._verified.add(name)
        except OSError:
            self._remove(name)
        finally:
            with self._lock:
                self._writing.discard(name)
        if self._unscanned_bytes * _SCANS_PER_FILL > self._limit:
            self._rescan()

    def _reserve(self, name: str, size: int) -> bool:
        with self._lock:
            if name in self._sizes or size > self._limit:
                return False
            while self._total + size > self._limit:
                if not self._evict():
                    return False
            self._sizes[name] = size
            self._total += size
            self._unscanned_bytes += size
            self._writing.add(name)
            return True

    def _evict(self) -> bool:
        """Remove the least recently used block. The caller holds the lock."""
        oldest = next((name for name in self._sizes if name not in self._writing), None)
        if oldest is None:
            return False
        self._total -= self._sizes.pop(oldest)
        self._verified.discard(oldest)
        with suppress(OSError):
            os.unlink(self._path(oldest))  # noqa: PTH108 - there are many blocks, and creating a Path costs more
        return True

    def _remove(self, name: str) -> None:
        with self._lock:
            self._total -= self._sizes.pop(name, 0)
            self._verified.discard(name)
        with suppress(OSError):
            os.unlink(self._path(name))  # noqa: PTH108

    def _is_intact(self, name: str, descriptor: int) -> bool:
        if name in self._verified:
            return True
        with open(descriptor, "rb", closefd=False) as file:
            data = memoryview(file.read())
        size = len(data) - _CHECKSUM_BYTES
        if size < 0 or zlib.crc32(data[:size]) != int.from_bytes(data[size:], "little"):
            return False
        # Other processes that scan the folder see that it is used.
        os.utime(descriptor)
        with self._lock:
            self._verified.add(name)
        return True

    def _write(self, path: str, data: memoryview) -> None:
        new = f"{path}.{os.getpid()}-{threading.get_ident()}{_NEW}"
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE_FILE)
        try:
            checksum = zlib.crc32(data).to_bytes(_CHECKSUM_BYTES, "little")
            if os.writev(descriptor, (data, checksum)) != len(data) + _CHECKSUM_BYTES:
                raise OSError("the disk is full")
            os.rename(new, path)  # noqa: PTH104
        except OSError:
            os.unlink(new)  # noqa: PTH108
            raise
        finally:
            os.close(descriptor)

    def _rescan(self) -> None:
        """Find out which blocks other processes have added or removed, and enforce the limit."""
        with self._lock:
            self._unscanned_bytes = 0
            known = [name for name in self._sizes if name not in self._writing]
        found = self._scan_files()
        with self._lock:
            for name in known:
                if name not in found:
                    self._sizes.pop(name, None)
                    self._verified.discard(name)
            for name, (_, size) in sorted(found.items(), key=lambda each: each[1], reverse=True):
                if name not in self._sizes:
                    self._sizes[name] = size
                    self._sizes.move_to_end(name, last=False)
            self._total = sum(self._sizes.values())
            while self._total > self._limit and self._evict():
                pass

    def _scan_files(self) -> dict[str, tuple[float, int]]:
        """Return when each block was written or first used, and its size."""
        files: dict[str, tuple[float, int]] = {}
        for folder in os.scandir(self._folder):
            for entry in os.scandir(folder.path):
                with suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    if not entry.name.endswith(_NEW):
                        files[entry.name] = status.st_mtime, status.st_size
                    elif time.time() - status.st_mtime > _ABANDONED_AFTER_S:
                        os.unlink(entry.path)  # noqa: PTH108
        return files

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name[:2]}/{name}"


def _name(file: RemoteFile, block: int) -> str:
    where = file.where
    version = "\0".join((where.bucket.account, where.bucket.name, where.key, file.etag, str(file.size)))
    return f"{blake2b(version.encode(), digest_size=16).hexdigest()}-{block}"

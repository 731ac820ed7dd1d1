"""Blocks of remote objects on disk, as many as may be. A block is of one version of an object and never changes.

Its file is named for that version and ends in a checksum, so that what a crash left of it is never taken for it.
Several processes may share a folder; each keeps the bound by looking at all files now and then, of which the oldest go.
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
from trainyard.instance.agent.remote_files.tree import RemoteFile

_CHECK_BYTES = 4
_LOOKS = 16  # at a shared folder while it is filled once
_NEW = ".new"
_LOST_AFTER_S = 3600.0  # nobody takes so long to write a block


class BlockCache:
    """Safe to share between threads. What the disk refuses is simply not kept."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder = folder
        self._limit = limit_bytes
        self._lock = threading.Lock()
        self._sizes: OrderedDict[str, int] = OrderedDict()  # the longest unused first
        self._total = 0
        self._whole: set[str] = set()  # known to be what they should be
        self._writing: set[str] = set()
        self._unlooked = 0  # bytes written since the folder was looked at
        for first in range(256):
            (folder / f"{first:02x}").mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        self._look()

    @property
    def size_bytes(self) -> int:
        return self._total

    def holds(self, file: RemoteFile, block: int) -> bool:
        """Whether a block was here a moment ago."""
        return _name(file, block) in self._sizes

    def read(self, file: RemoteFile, block: int, *, offset: int, size: int) -> bytes | None:
        """Some bytes of a block; None when it is not here."""
        name = _name(file, block)
        try:
            descriptor = os.open(self._path(name), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            if not self._is_whole(name, descriptor):
                self._remove(name)
                return None
            with self._lock:
                if name in self._sizes:
                    self._sizes.move_to_end(name)
            return os.pread(descriptor, size, offset)
        finally:
            os.close(descriptor)

    def keep(self, file: RemoteFile, block: int, data: memoryview) -> None:
        name, size = _name(file, block), len(data) + _CHECK_BYTES
        if not self._reserve(name, size):
            return
        try:
            self._write(self._path(name), data)
            with self._lock:
                self._whole.add(name)
        except OSError:
            self._remove(name)
        finally:
            with self._lock:
                self._writing.discard(name)
        if self._unlooked * _LOOKS > self._limit:
            self._look()

    def _reserve(self, name: str, size: int) -> bool:
        with self._lock:
            if name in self._sizes or size > self._limit:
                return False
            while self._total + size > self._limit:
                if not self._evict():
                    return False
            self._sizes[name] = size
            self._total += size
            self._unlooked += size
            self._writing.add(name)
            return True

    def _evict(self) -> bool:
        """Remove the block that nobody has used for longest; the lock is held."""
        oldest = next((name for name in self._sizes if name not in self._writing), None)
        if oldest is None:
            return False
        self._total -= self._sizes.pop(oldest)
        self._whole.discard(oldest)
        with suppress(OSError):
            os.unlink(self._path(oldest))  # noqa: PTH108 - there are many, and a Path costs more than this
        return True

    def _remove(self, name: str) -> None:
        with self._lock:
            self._total -= self._sizes.pop(name, 0)
            self._whole.discard(name)
        with suppress(OSError):
            os.unlink(self._path(name))  # noqa: PTH108

    def _is_whole(self, name: str, descriptor: int) -> bool:
        if name in self._whole:
            return True
        with open(descriptor, "rb", closefd=False) as file:
            data = memoryview(file.read())
        size = len(data) - _CHECK_BYTES
        if size < 0 or zlib.crc32(data[:size]) != int.from_bytes(data[size:], "little"):
            return False
        os.utime(descriptor)  # its use counts for those who look at the folder later
        with self._lock:
            self._whole.add(name)
        return True

    def _write(self, path: str, data: memoryview) -> None:
        new = f"{path}.{os.getpid()}-{threading.get_ident()}{_NEW}"
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE_FILE)
        try:
            check = zlib.crc32(data).to_bytes(_CHECK_BYTES, "little")
            if os.writev(descriptor, (data, check)) != len(data) + _CHECK_BYTES:
                raise OSError("the disk takes no more")
            os.rename(new, path)  # noqa: PTH104
        except OSError:
            os.unlink(new)  # noqa: PTH108
            raise
        finally:
            os.close(descriptor)

    def _look(self) -> None:
        """Learn what others have put into the folder or removed from it, and keep the bound."""
        with self._lock:
            self._unlooked = 0
            known = [name for name in self._sizes if name not in self._writing]
        found = self._found()
        with self._lock:
            for name in known:
                if name not in found:
                    self._sizes.pop(name, None)
                    self._whole.discard(name)
            for name, (_, size) in sorted(found.items(), key=lambda each: each[1], reverse=True):
                if name not in self._sizes:
                    self._sizes[name] = size
                    self._sizes.move_to_end(name, last=False)
            self._total = sum(self._sizes.values())
            while self._total > self._limit and self._evict():
                pass

    def _found(self) -> dict[str, tuple[float, int]]:
        """When each block was written or first used, and its size."""
        found: dict[str, tuple[float, int]] = {}
        for folder in os.scandir(self._folder):
            for entry in os.scandir(folder.path):
                with suppress(FileNotFoundError):
                    told = entry.stat(follow_symlinks=False)
                    if not entry.name.endswith(_NEW):
                        found[entry.name] = told.st_mtime, told.st_size
                    elif time.time() - told.st_mtime > _LOST_AFTER_S:
                        os.unlink(entry.path)  # noqa: PTH108
        return found

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name[:2]}/{name}"


def _name(file: RemoteFile, block: int) -> str:
    where = file.where
    version = "\0".join((where.bucket.account, where.bucket.name, where.key, file.etag, str(file.size)))
    return f"{blake2b(version.encode(), digest_size=16).hexdigest()}-{block}"

"""The cache of environments that jobs installed: one folder per user, because packages are code.

    <key>/          a complete environment: it was built elsewhere and then renamed
    <key>.lock      held shared by its users, exclusively by whoever builds or removes it; contains its size, and its
                    modification time says when it was last used
    .<key>-…/       being built or removed; if nobody holds the lock, a crash left it
    cache/          the cache of uv, under cache.lock
    downloads/      see package_downloads.py

The locks end with the process that holds them. Nothing here waits: a caller that does not get a lock tries again.
"""

import os
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from trainyard.foundation.confined import remove_tree, tree_size
from trainyard.foundation.file_system_sync import sync_file_system
from trainyard.foundation.files import PRIVATE_FOLDER, sync_folder
from trainyard.link.file_locks import hold, is_held
from trainyard.link.package_downloads import DOWNLOADS

_CACHE = "cache"


@dataclass(frozen=True, slots=True)
class CachedEnvironment:
    """One cached environment. `used_at` is in seconds since the epoch."""

    key: str
    folder: Path
    size_bytes: int
    used_at: float


class EnvironmentHold:
    """A lock on `folder`, until it is closed or the process ends."""

    def __init__(self, descriptor: int, folder: Path) -> None:
        self.folder = folder
        self._descriptor = descriptor

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class EnvironmentBuild(EnvironmentHold):
    """The right to build one environment in an empty folder. Closing it without `commit` leaves nothing.

    A committed environment belongs to nobody: its builder also has to call `use`.
    """

    def __init__(self, descriptor: int, folder: Path, place: Path) -> None:
        super().__init__(descriptor, folder)
        self._place = place

    def commit(self) -> None:
        """Publish the environment. It is on the disk before it has its name."""
        size = tree_size(self.folder)
        # One call, because a package has thousands of files.
        sync_file_system(self.folder)
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, str(size).encode(), 0)
        self.folder.rename(self._place)
        sync_folder(self._place.parent)

    def close(self) -> None:
        remove_tree(self.folder)
        super().close()


class EnvironmentCache:
    """The environments of one user. Safe to use from any process and thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def use(self, key: str) -> EnvironmentHold | None:
        """Hold an environment; None if there is none, or it is being built or removed."""
        place = self._folder / key
        if not place.is_dir():
            return None
        descriptor = hold(self._lock_file(key), shared=True)
        if descriptor is None:
            return None
        if not place.is_dir():
            os.close(descriptor)
            return None
        os.utime(descriptor)
        return EnvironmentHold(descriptor, place)

    def begin_build(self, key: str) -> EnvironmentBuild | None:
        """Start to build an environment; None if it exists, or another process builds it."""
        self._folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        descriptor = hold(self._lock_file(key))
        if descriptor is None:
            return None
        place = self._folder / key
        if place.is_dir():
            os.close(descriptor)
            return None
        self._clear(key)
        return EnvironmentBuild(descriptor, Path(tempfile.mkdtemp(prefix=f".{key}-", dir=self._folder)), place)

    def use_cache(self) -> EnvironmentHold | None:
        """Hold the folder of downloads, created if need be; None while it is being removed."""
        place = self._folder / _CACHE
        self._folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        descriptor = hold(self._lock_file(_CACHE), shared=True)
        if descriptor is None:
            return None
        place.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        return EnvironmentHold(descriptor, place)

    def entries(self) -> list[CachedEnvironment]:
        """Return all environments, last used first."""
        found = []
        for folder in self._folders():
            if not folder.name.startswith(".") and folder.name != _CACHE:
                lock = self._lock_file(folder.name)
                with suppress(FileNotFoundError):
                    size = int(lock.read_bytes() or b"0")
                    found.append(CachedEnvironment(folder.name, folder, size, lock.stat().st_mtime))
        return sorted(found, key=lambda each: each.used_at, reverse=True)

    def surplus(self, limit_bytes: int, *, unused_s: float | None = None) -> list[CachedEnvironment]:
        """Return unused environments that are idle or exceed the limit, counted from the last used one, which stays."""
        before = None if unused_s is None else time.time() - unused_s
        total, found = 0, []
        for number, each in enumerate(self.entries()):
            total += each.size_bytes
            is_surplus = (number and total > limit_bytes) or (before is not None and each.used_at < before)
            if is_surplus and self._is_free(each.key):
                found.append(each)
        return found

    def leftovers(self) -> list[Path]:
        """Return what crashes left: folders that nobody is building or removing."""
        return [folder for folder in self._folders() if folder.name.startswith(".") and self._is_free(_key_of(folder))]

    def cache_size(self) -> int:
        return tree_size(self._folder / _CACHE)

    def remove(self, key: str) -> bool:
        """Remove an environment. Return False if it is in use."""
        descriptor = hold(self._lock_file(key))
        if descriptor is None:
            return False
        try:
            self._discard(key)
            self._clear(key)
            self._lock_file(key).unlink(missing_ok=True)
        finally:
            os.close(descriptor)
        return True

    def remove_cache(self) -> bool:
        """Remove all downloads. Return False if an installation is using them."""
        return self.remove(_CACHE)

    def trim(self, limit_bytes: int) -> None:
        """Remove what exceeds the limit and is not in use, and what crashes left."""
        for left in self.leftovers():
            self.remove(_key_of(left))
        for each in self.surplus(limit_bytes):
            self.remove(each.key)
        if self.cache_size() > limit_bytes:
            self.remove_cache()

    def _discard(self, key: str) -> None:
        """Rename an environment before its removal, so that a half-removed one is never used."""
        place = self._folder / key
        if place.is_dir():
            place.rename(tempfile.mkdtemp(prefix=f".{key}-", dir=self._folder))

    def _clear(self, key: str) -> None:
        for folder in self._folders():
            if folder.name.startswith(".") and _key_of(folder) == key:
                # The last processes of a killed installation may still write to it.
                with suppress(OSError):
                    remove_tree(folder)

    def _folders(self) -> list[Path]:
        paths = self._folder.iterdir() if self._folder.is_dir() else ()
        return sorted(path for path in paths if path.name != DOWNLOADS and path.is_dir())

    def _is_free(self, key: str) -> bool:
        return not is_held(self._lock_file(key))

    def _lock_file(self, key: str) -> Path:
        return self._folder / f"{key}.lock"


def _key_of(unfinished: Path) -> str:
    return unfinished.name[1:].rpartition("-")[0]

"""The environments that jobs installed and later ones use again: one folder for each user, for a package is code.

    <key>/          an environment, whole: it was laid out elsewhere and then renamed
    <key>.lock      held shared by whoever uses it, alone by whoever makes or removes it; says its size, and by its
                    time when it was last used
    .<key>-…/       being made or removed; without a holder of the lock it is what a crash left
    cache/          what was downloaded, under cache.lock

The locks end with the process that holds them. Nobody waits here: who cannot have a lock asks again.
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
from trainyard.foundation.files import PRIVATE_FOLDER, sync_folder
from trainyard.foundation.syncing import sync_file_system
from trainyard.link.holds import hold, is_held

_CACHE = "cache"


@dataclass(frozen=True, slots=True)
class Kept:
    """One environment. `used_at` is in seconds since the epoch."""

    key: str
    folder: Path
    size_bytes: int
    used_at: float


class Hold:
    """A lock, until it is closed or the process ends. `folder` is what it keeps from being changed."""

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


class Making(Hold):
    """The right to make one environment, in the empty folder that it holds. Closing it without `keep` leaves nothing.

    Whoever keeps it has it as nobody's: to use it, ask for it as everyone does.
    """

    def __init__(self, descriptor: int, folder: Path, place: Path) -> None:
        super().__init__(descriptor, folder)
        self._place = place

    def keep(self) -> None:
        """Let others use what was made; it is on the disk before it has its name."""
        size = tree_size(self.folder)
        sync_file_system(self.folder)  # one call, since a package has thousands of files
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, str(size).encode(), 0)
        self.folder.rename(self._place)
        sync_folder(self._place.parent)

    def close(self) -> None:
        remove_tree(self.folder)
        super().close()


class KeptEnvironments:
    """Those of one user. Safe to use from any process and thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def use(self, key: str) -> Hold | None:
        """Hold an environment that is there; None when there is none, or it is being made or removed."""
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
        return Hold(descriptor, place)

    def make(self, key: str) -> Making | None:
        """The right to make an environment; None when it is there, or another makes it."""
        self._folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        descriptor = hold(self._lock_file(key))
        if descriptor is None:
            return None
        place = self._folder / key
        if place.is_dir():
            os.close(descriptor)
            return None
        self._clear(key)
        return Making(descriptor, Path(tempfile.mkdtemp(prefix=f".{key}-", dir=self._folder)), place)

    def use_cache(self) -> Hold | None:
        """Hold the folder of downloads, made if it is not there; None while it is being removed."""
        place = self._folder / _CACHE
        self._folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        descriptor = hold(self._lock_file(_CACHE), shared=True)
        if descriptor is None:
            return None
        place.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        return Hold(descriptor, place)

    def kept(self) -> list[Kept]:
        """All environments, the last used first."""
        found = []
        for folder in self._folders():
            if not folder.name.startswith(".") and folder.name != _CACHE:
                lock = self._lock_file(folder.name)
                with suppress(FileNotFoundError):
                    size = int(lock.read_bytes() or b"0")
                    found.append(Kept(folder.name, folder, size, lock.stat().st_mtime))
        return sorted(found, key=lambda each: each.used_at, reverse=True)

    def surplus(self, limit_bytes: int, *, unused_s: float | None = None) -> list[Kept]:
        """Those that nobody uses and that are idle, or beyond the limit counted from the last used one, which stays."""
        before = None if unused_s is None else time.time() - unused_s
        total, found = 0, []
        for number, each in enumerate(self.kept()):
            total += each.size_bytes
            is_surplus = (number and total > limit_bytes) or (before is not None and each.used_at < before)
            if is_surplus and self._is_free(each.key):
                found.append(each)
        return found

    def leftovers(self) -> list[Path]:
        """What crashes left: folders that nobody makes or removes any more."""
        return [folder for folder in self._folders() if folder.name.startswith(".") and self._is_free(_key_of(folder))]

    def cache_size(self) -> int:
        return tree_size(self._folder / _CACHE)

    def remove(self, key: str) -> bool:
        """Remove an environment; False when somebody uses it."""
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
        """Remove what was downloaded; False while an installation uses it."""
        return self.remove(_CACHE)

    def trim(self, limit_bytes: int) -> None:
        """Remove what is beyond the limit and not in use, and what crashes left."""
        for left in self.leftovers():
            self.remove(_key_of(left))
        for each in self.surplus(limit_bytes):
            self.remove(each.key)
        if self.cache_size() > limit_bytes:
            self.remove_cache()

    def _discard(self, key: str) -> None:
        """Take the name away first, so that what is half removed is never used."""
        place = self._folder / key
        if place.is_dir():
            place.rename(tempfile.mkdtemp(prefix=f".{key}-", dir=self._folder))

    def _clear(self, key: str) -> None:
        for folder in self._folders():
            if folder.name.startswith(".") and _key_of(folder) == key:
                with suppress(OSError):  # the last processes of a killed installation may yet write to it
                    remove_tree(folder)

    def _folders(self) -> list[Path]:
        return sorted(path for path in self._folder.iterdir() if path.is_dir()) if self._folder.is_dir() else []

    def _is_free(self, key: str) -> bool:
        return not is_held(self._lock_file(key))

    def _lock_file(self, key: str) -> Path:
        return self._folder / f"{key}.lock"


def _key_of(unfinished: Path) -> str:
    return unfinished.name[1:].rpartition("-")[0]

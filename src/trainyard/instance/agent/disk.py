"""Watches the disk that a program writes to, of which nothing gives it a share.

When the disk is nearly full, the program that filled it is ended, before the yard and other jobs suffer for it. Who
holds less than is still free is left alone: such a program may fail for want of space, but was not the cause. The less
is left of the reserve, the less that is, so that many programs that each hold little cannot use it up together.
"""

import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path

from trainyard.foundation.confined import ConfinedFolder
from trainyard.foundation.disk import Reserve, reserve_of
from trainyard.instance.sandbox.processes import descendants

_INTERVAL_S = 0.2
_LONGEST_LOOK_S = 0.05
_FILES_BETWEEN_CLOCKS = 64
_SMALL_BYTES, _SMALL_FILES = 16 << 20, 1000  # that a program may hold in any case
_BLOCK = 512  # what st_blocks counts in, on every file system


class DiskWatch:
    """Looks at the disk of one program now and then. The first folder says which disk it is.

    A look takes a moment, however much there is to count: what it does not get to, the next one does.
    """

    def __init__(self, folders: Sequence[Path], *, reserve_bytes: int = 0) -> None:
        self._folders = folders
        self._reserve_bytes = reserve_bytes
        self._next_look = 0.0
        self._count: _Count | None = None

    def including(self, folders: Sequence[Path]) -> "DiskWatch":
        """One for a program that may write to other folders of the machine as well."""
        return DiskWatch((*self._folders, *folders), reserve_bytes=self._reserve_bytes)

    def look(self, now: float, *, root: int | None = None) -> str:
        """Why the program must end; nothing as long as it need not, or before the next look is due.

        `root` is the process that holds the program's tree, whose open files count when they have no name any more.
        """
        if now < self._next_look:
            return ""
        self._next_look = now + _INTERVAL_S
        reserve = reserve_of(self._folders[0], wanted_bytes=self._reserve_bytes)
        if not reserve.is_touched:
            self._count = None
            return ""
        self._count = self._count or _Count(self._folders, root)
        self._count.go_on(reserve)
        why = _why_too_much(self._count, reserve)
        if why or self._count.is_done:
            self._count = None
        return why


class _Count:
    """What lies in some folders or is held open without a name, counted no further than to more than is free."""

    def __init__(self, folders: Sequence[Path], root: int | None) -> None:
        self.size = 0
        self.files = 0
        self.is_done = False
        self._found = chain(_files(folders), _unnamed_files(root) if root is not None else ())

    def go_on(self, reserve: Reserve) -> None:
        deadline = time.monotonic() + _LONGEST_LOOK_S
        for found in self._found:
            self.size += found.st_blocks * _BLOCK
            self.files += 1
            if self.is_over(reserve):
                return
            if self.files % _FILES_BETWEEN_CLOCKS == 0 and time.monotonic() > deadline:
                return
        self.is_done = True

    def is_over(self, reserve: Reserve) -> bool:
        holds_bytes = self.size > max(_SMALL_BYTES, reserve.free_bytes)
        return holds_bytes or (reserve.files > 0 and self.files > max(_SMALL_FILES, reserve.free_files))


def _why_too_much(count: _Count, reserve: Reserve) -> str:
    if not count.is_over(reserve):
        return ""
    return (
        "The program filled the disk of this machine, and was ended so that others can go on: what it wrote to "
        f"/opt/ml, /tmp and its log takes more than {count.size >> 20} MiB in {count.files} files, and "
        f"{reserve.free_bytes >> 20} MiB are free, which are kept for the yard."
    )


def _files(folders: Sequence[Path]) -> Iterator[os.stat_result]:
    """Of all that lies in the folders; what vanishes meanwhile, or cannot be reached, is passed over."""
    for folder in folders:
        with suppress(OSError), ConfinedFolder.open(folder) as opened:
            for entry in opened.walk():
                yield entry.status


def _unnamed_files(root: int) -> Iterator[os.stat_result]:
    """Of the files that processes below one have open and that were removed: the disk still holds them.

    Those that are memory, of /dev/shm or without any file system, do not count.
    """
    seen: set[tuple[int, int]] = set()
    memory = _devices_of_memory()
    for pid in descendants(root):
        with suppress(OSError):
            memory.add(Path(f"/proc/{pid}/root/dev/shm").stat().st_dev)
        for found in _open_files(pid):
            place = (found.st_dev, found.st_ino)
            if stat.S_ISREG(found.st_mode) and not found.st_nlink and found.st_dev not in memory and place not in seen:
                seen.add(place)
                yield found


def _open_files(pid: int) -> Iterator[os.stat_result]:
    """What a process has open; nothing of one that has ended, or does not let itself be looked at."""
    with suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                yield descriptor.stat()


def _devices_of_memory() -> set[int]:
    descriptor = os.memfd_create("device")
    try:
        return {os.fstat(descriptor).st_dev}
    finally:
        os.close(descriptor)

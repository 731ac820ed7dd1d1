"""Watches the disk that programs write to, because no quota limits them.

When the disk is nearly full, the program that filled it is killed before the yard and other jobs suffer. A program that
holds less than is still free is left alone: it may fail for lack of space, but it was not the cause. The less of the
reserve is left, the less a program may hold, so that many small programs cannot use it up together.
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
_MAX_POLL_S = 0.05
_FILES_PER_TIME_CHECK = 64
# What a program may always hold.
_SMALL_BYTES, _SMALL_FILES = 16 << 20, 1000
# The unit of st_blocks on every file system.
_BLOCK_BYTES = 512


class DiskWatch:
    """Checks the disk of one program now and then. The first folder says which disk it is.

    A poll takes only a moment, however much there is to count: the next one continues where it stopped.
    """

    def __init__(self, folders: Sequence[Path], *, reserve_bytes: int = 0) -> None:
        self._folders = folders
        self._reserve_bytes = reserve_bytes
        self._next_poll = 0.0
        self._usage: _DiskUsage | None = None

    def poll(self, now: float, *, root: int | None = None) -> str:
        """Return why the program must be killed; empty when it need not, or before the next check is due.

        `root` is the process above the program's tree. Removed files that the tree still has open count too.
        """
        if now < self._next_poll:
            return ""
        self._next_poll = now + _INTERVAL_S
        reserve = reserve_of(self._folders[0], wanted_bytes=self._reserve_bytes)
        if not reserve.is_touched:
            self._usage = None
            return ""
        self._usage = self._usage or _DiskUsage(self._folders, root)
        self._usage.advance(reserve)
        why = _why_too_much(self._usage, reserve)
        if why or self._usage.is_done:
            self._usage = None
        return why


class _DiskUsage:
    """Counts the files in some folders, and removed ones that are still open, until they are more than is free."""

    def __init__(self, folders: Sequence[Path], root: int | None) -> None:
        self.size = 0
        self.files = 0
        self.is_done = False
        self._statuses = chain(_files(folders), _unnamed_files(root) if root is not None else ())

    def advance(self, reserve: Reserve) -> None:
        """Continue counting for a moment."""
        deadline = time.monotonic() + _MAX_POLL_S
        for status in self._statuses:
            self.size += status.st_blocks * _BLOCK_BYTES
            self.files += 1
            if self.is_over(reserve):
                return
            if self.files % _FILES_PER_TIME_CHECK == 0 and time.monotonic() > deadline:
                return
        self.is_done = True

    def is_over(self, reserve: Reserve) -> bool:
        holds_bytes = self.size > max(_SMALL_BYTES, reserve.free_bytes)
        return holds_bytes or (reserve.files > 0 and self.files > max(_SMALL_FILES, reserve.free_files))


def _why_too_much(usage: _DiskUsage, reserve: Reserve) -> str:
    if not usage.is_over(reserve):
        return ""
    return (
        "The program filled the disk of this machine and was killed so that others can continue: what it wrote to "
        f"/opt/ml, /tmp and its log takes more than {usage.size >> 20} MiB in {usage.files} files, and the last "
        f"{reserve.free_bytes >> 20} MiB are reserved for the yard."
    )


def _files(folders: Sequence[Path]) -> Iterator[os.stat_result]:
    """Yield the status of every file in the folders. Files that vanish meanwhile or cannot be read are skipped."""
    for folder in folders:
        with suppress(OSError), ConfinedFolder.open(folder) as opened:
            for entry in opened.walk():
                yield entry.status


def _unnamed_files(root: int) -> Iterator[os.stat_result]:
    """Yield the status of removed files that processes below `root` have open: the disk still holds them.

    Files in memory, of /dev/shm or without a file system, do not count.
    """
    seen: set[tuple[int, int]] = set()
    memory = _memory_devices()
    for pid in descendants(root):
        with suppress(OSError):
            memory.add(Path(f"/proc/{pid}/root/dev/shm").stat().st_dev)
        for status in _open_files(pid):
            identity = (status.st_dev, status.st_ino)
            is_removed = stat.S_ISREG(status.st_mode) and not status.st_nlink
            if is_removed and status.st_dev not in memory and identity not in seen:
                seen.add(identity)
                yield status


def _open_files(pid: int) -> Iterator[os.stat_result]:
    """Yield the status of a process's open files; nothing if it has ended or may not be inspected."""
    with suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                yield descriptor.stat()


def _memory_devices() -> set[int]:
    descriptor = os.memfd_create("device")
    try:
        return {os.fstat(descriptor).st_dev}
    finally:
        os.close(descriptor)

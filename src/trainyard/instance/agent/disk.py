"""Watches the disk that a program writes to, of which nothing gives it a share.

When the disk is nearly full, the program that filled it is ended, before the yard and other jobs suffer for it. Who
holds little of it is left alone: such a program may fail for want of space, but was not the cause.
"""

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_INTERVAL_S = 0.2
_LARGEST_SHARE = 0.1  # of the time, that counting files may take
_RESERVE_SHARE = 0.05  # of the disk
_MOST_BYTES, _MOST_FILES = 1024**3, 100_000  # of a reserve, however large the disk
_BLOCK = 512  # what st_blocks counts in, on every file system


@dataclass(frozen=True, slots=True)
class Reserve:
    """How much of a disk shall stay free, and whether it does."""

    bytes: int
    files: int
    is_touched: bool


class DiskWatch:
    """Looks at the disk of one program now and then. The first folder says which disk it is."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self._next_look = 0.0

    def look(self, now: float) -> str:
        """Why the program must end; nothing as long as it need not, or before the next look is due."""
        if now < self._next_look:
            return ""
        begun = time.monotonic()
        reserve = reserve_of(self._folders[0])
        why = _holds_too_much(self._folders, reserve) if reserve.is_touched else ""
        self._next_look = now + max(_INTERVAL_S, (time.monotonic() - begun) / _LARGEST_SHARE)
        return why


def reserve_of(folder: Path) -> Reserve:
    disk = os.statvfs(folder)
    size = min(_MOST_BYTES, int(disk.f_blocks * disk.f_frsize * _RESERVE_SHARE))
    files = min(_MOST_FILES, int(disk.f_files * _RESERVE_SHARE))  # 0 where they are not counted
    is_touched = disk.f_bavail * disk.f_frsize < size or (files > 0 and disk.f_favail < files)
    return Reserve(size, files, is_touched)


def _holds_too_much(folders: Sequence[Path], reserve: Reserve) -> str:
    """Whether the folders hold more than the whole reserve; counted no further than that."""
    size = 0
    for count, found in enumerate(_files(folders), start=1):
        size += found.st_blocks * _BLOCK
        if size > reserve.bytes or (reserve.files and count > reserve.files):
            return (
                "The program filled the disk of this machine, and was ended so that others can go on: what it wrote to "
                f"/opt/ml, /tmp and its log takes more than {reserve.bytes / 1024**2:.0f} MiB or {reserve.files} files."
            )
    return ""


def _files(folders: Sequence[Path]) -> Iterator[os.stat_result]:
    """Of all that lies in the folders; what vanishes meanwhile, or cannot be reached, is passed over."""
    pending = [str(folder) for folder in folders]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    yield entry.stat(follow_symlinks=False)
        except OSError:
            continue

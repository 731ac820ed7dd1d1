"""How full a disk is, and how much of it stays free for the yard's own records.

Objects, uploads, data of jobs and what programs write may fill a disk up to its reserve. Only what the yard remembers
with (records, reports, logs of its own) may use that, so that a full disk costs nobody but those who fill it.
"""

import errno
import os
from dataclasses import dataclass
from pathlib import Path

from trainyard.foundation.errors import Unavailable

_SHARE = 0.05  # of the disk
_MOST_BYTES, _MOST_FILES = 1024**3, 100_000  # however large the disk


@dataclass(frozen=True, slots=True)
class Reserve:
    """How much of a disk stays free, and how much is free now. `files` is 0 where the disk does not count them."""

    bytes: int
    files: int
    free_bytes: int
    free_files: int

    @property
    def is_touched(self) -> bool:
        return not self.leaves(0)

    def leaves(self, size_bytes: int) -> bool:
        """Whether so much more leaves the reserve whole."""
        return self.free_bytes - size_bytes >= self.bytes and self.free_files >= self.files


def reserve_of(folder: Path | str | int, *, wanted_bytes: int = 0) -> Reserve:
    """The reserve of the disk of a folder, or of what is open.

    Without a wanted size it is a twentieth of the disk, and at most 1 GiB.
    """
    disk = os.statvfs(folder)
    size = wanted_bytes or min(_MOST_BYTES, int(disk.f_blocks * disk.f_frsize * _SHARE))
    files = min(_MOST_FILES, int(disk.f_files * _SHARE))
    return Reserve(size, files, disk.f_bavail * disk.f_frsize, disk.f_favail if files else 0)


def require_room(reserve: Reserve, size_bytes: int) -> None:
    """Unavailable when so much more would not leave the reserve whole; its cause is what a full disk says."""
    if not reserve.leaves(size_bytes):
        raise Unavailable(
            f"There is no space left on the yard's disk: {reserve.free_bytes} bytes are free, of which {reserve.bytes} "
            f"are kept for the yard's own records, so {size_bytes} more cannot be stored. Free some (`trainyard gc` "
            "may help), then try again."
        ) from OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

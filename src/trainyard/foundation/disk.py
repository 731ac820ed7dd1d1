"""How full a disk is, and how much of it stays free for the yard's own records.

Objects, uploads, job data and the output of programs may fill a disk up to its reserve. Only the yard's own records,
reports and logs may use the reserve, so that a full disk harms only those who fill it.
"""

import errno
import os
from dataclasses import dataclass
from pathlib import Path

from trainyard.foundation.errors import Unavailable

_RESERVED_FRACTION = 0.05
_MAX_RESERVED_BYTES, _MAX_RESERVED_FILES = 1024**3, 100_000


@dataclass(frozen=True, slots=True)
class Reserve:
    """How much of a disk stays free, and how much is free now. `files` is 0 if the disk does not limit them."""

    bytes: int
    files: int
    free_bytes: int
    free_files: int

    @property
    def is_touched(self) -> bool:
        return not self.leaves(0)

    def leaves(self, size_bytes: int) -> bool:
        """Whether writing that much more leaves the reserve intact."""
        return self.free_bytes - size_bytes >= self.bytes and self.free_files >= self.files


def reserve_of(folder: Path | str | int, *, wanted_bytes: int = 0) -> Reserve:
    """Return the reserve of the disk of a folder or an open descriptor.

    Without a wanted size it is a twentieth of the disk, but at most 1 GiB.
    """
    disk = os.statvfs(folder)
    size = wanted_bytes or min(_MAX_RESERVED_BYTES, int(disk.f_blocks * disk.f_frsize * _RESERVED_FRACTION))
    files = min(_MAX_RESERVED_FILES, int(disk.f_files * _RESERVED_FRACTION))
    return Reserve(size, files, disk.f_bavail * disk.f_frsize, disk.f_favail if files else 0)


def require_space(reserve: Reserve, size_bytes: int) -> None:
    """Raise Unavailable, caused by ENOSPC, if writing that much more would use the reserve."""
    if not reserve.leaves(size_bytes):
        raise Unavailable(
            f"There is no space left on the yard's disk: {reserve.free_bytes} bytes are free, of which {reserve.bytes} "
            f"are kept for the yard's own records, so {size_bytes} more cannot be stored. Free some (`trainyard gc` "
            "may help), then try again."
        ) from OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

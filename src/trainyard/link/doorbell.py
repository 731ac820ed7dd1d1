"""The doorbell of a yard: a FIFO into which agents write the ids of their jobs when their spools have new frames.

A ring is only a hint. It may be lost if nobody listens or too many ring at once; the yard reads the spool anyway, a
little later.
"""

import contextlib
import os
import stat
from pathlib import Path

from trainyard.foundation.files import PRIVATE_FILE

# The capacity of a FIFO.
_READ_BYTES = 1 << 16


def ring(doorbell: Path, job_id: str) -> None:
    """Signal that a job has new frames. Never waits and never fails."""
    with contextlib.suppress(OSError):
        descriptor = os.open(doorbell, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(descriptor, f"{job_id}\n".encode())
        finally:
            os.close(descriptor)


class Doorbell:
    """The yard's end, the only one that listens. Raises OSError if there cannot be a FIFO at `path`.

    `descriptor` becomes readable when somebody rings.
    """

    def __init__(self, path: Path) -> None:
        _make(path)
        # Opened for writing too, or it would end when the last agent closes it.
        self.descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def read(self) -> set[str]:
        """Return the jobs for which somebody has rung since the last read. Never waits."""
        try:
            data = os.read(self.descriptor, _READ_BYTES)
        except BlockingIOError:
            return set()
        return {word.decode(errors="replace") for word in data.split(b"\n") if word}

    def close(self) -> None:
        os.close(self.descriptor)


def _make(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISFIFO(path.lstat().st_mode):
            return
        path.unlink()
    os.mkfifo(path, PRIVATE_FILE)

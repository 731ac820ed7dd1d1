"""The doorbell of a yard: a FIFO into which agents write the ids of their jobs when their spools hold news.

A ring is a hint and may be lost, when nobody listens or too many ring at once. What counts lies in the spool, which a
yard reads anyway, a little later.
"""

import contextlib
import os
import stat
from pathlib import Path

from trainyard.foundation.files import PRIVATE_FILE

_READ_BYTES = 1 << 16  # what a FIFO holds


def ring(doorbell: Path, job_id: str) -> None:
    """Say that there is news of a job; never waits, and never fails."""
    with contextlib.suppress(OSError):
        descriptor = os.open(doorbell, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(descriptor, f"{job_id}\n".encode())
        finally:
            os.close(descriptor)


class Doorbell:
    """The side of the yard, which is the only one that listens; OSError when there can be no FIFO at `path`.

    `descriptor` is readable when somebody has rung.
    """

    def __init__(self, path: Path) -> None:
        _make(path)
        # Open for writing too, so that it does not end when the last agent has closed it.
        self.descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def read(self) -> set[str]:
        """The jobs for which somebody has rung since; never waits."""
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

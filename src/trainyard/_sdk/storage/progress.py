"""The progress of an upload or a download in bytes."""

import threading
from collections.abc import Callable

# Is called with the bytes that are done and with their total.
ShowProgress = Callable[[int, int], None]


def ignore_progress(_done: int, _total: int) -> None:
    """Show nothing."""


class ByteProgress:
    """Counts the bytes of a transfer of several files. Safe to share between threads."""

    def __init__(self, total: int, show: ShowProgress) -> None:
        self._total, self._show = total, show
        self._lock, self._done = threading.Lock(), 0
        show(0, total)

    def add(self, count: int) -> None:
        """Note that more bytes are done."""
        with self._lock:
            self._done += count
            self._show(self._done, self._total)

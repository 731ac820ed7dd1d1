"""Counts what an instance has downloaded, and reports it now and then."""

import threading
import time
from collections.abc import Callable

# Short downloads end before their first report.
EVERY_S = 2.0


class DownloadProgress:
    """The progress of a download of known size. Threads count; the thread that waits for them reports."""

    def __init__(
        self,
        total_bytes: int,
        report: Callable[[int, int], None],
        *,
        check: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total_bytes, self._report, self._check, self._clock = total_bytes, report, check, clock
        self._lock = threading.Lock()
        self._done_bytes = self._reported_bytes = 0
        self._due_at = clock() + EVERY_S

    def count(self, size_bytes: int) -> None:
        """Count bytes that have arrived."""
        with self._lock:
            self._done_bytes += size_bytes

    def check(self) -> None:
        """Check as the caller asks, which may raise, and report if it is time to."""
        self._check()
        if self._done_bytes == self._reported_bytes or self._clock() < self._due_at:
            return
        self._due_at, self._reported_bytes = self._clock() + EVERY_S, self._done_bytes
        self._report(min(self._reported_bytes, self._total_bytes), self._total_bytes)

"""Writes what the programs of an instance print to its log."""

import logging
from collections import deque
from pathlib import Path

from trainyard.formats.logs import SEGMENT_BYTES, LogWriter
from trainyard.formats.logs.segments import segments_of
from trainyard.foundation.errors import Unavailable
from trainyard.instance.agent.reports import now_us
from trainyard.instance.agent.watch.log_tail import LogTail
from trainyard.instance.agent.watch.metric_scan import MetricScan

_MAX_WAITING_BYTES = 8 << 20
# Enough segments that dropping one loses only a small part of the log.
_SEGMENTS_IN_LIMIT = 16

log = logging.getLogger(__name__)


class ProgramOutput:
    """Logs the output of all programs of an instance, in order. Used by one thread.

    A log that exceeds its limit loses its middle, and says so at its end. When the disk is full, output waits in memory
    for room; when too much waits, lines of the log are lost, but the program never blocks.

    `first_us` is when the first output came; reset it to None to time another program.
    """

    def __init__(self, folder: Path, *, limit_bytes: int) -> None:
        self.tail = LogTail()
        self.scan: MetricScan | None = None
        self.lost_bytes = 0
        self.total_bytes = 0
        self.first_us: int | None = None
        self._folder = folder
        self._limit = limit_bytes
        self._segment = max(1, min(SEGMENT_BYTES, limit_bytes // _SEGMENTS_IN_LIMIT))
        self._log = LogWriter(folder, segment_bytes=self._segment)
        # Pieces of output and their times in milliseconds.
        self._waiting: deque[tuple[bytes, int]] = deque()
        self._waiting_bytes = 0
        self._is_blocked = False
        self._dropped_bytes = 0
        # The offset at which the size is checked next.
        self._next_check = limit_bytes

    def write(self, data: bytes) -> None:
        """Log what a program has just written."""
        at_us = now_us()
        self.first_us = self.first_us or at_us
        self.tail.add(data)
        self.total_bytes += len(data)
        self._append(data, at_us)
        if self.scan is not None:
            self.scan.write(data, at_us)

    def flush(self) -> None:
        """Write the waiting output to the log, as far as the disk has room."""
        while self._waiting:
            data, at_ms = self._waiting[0]
            try:
                self._log.append(data, at_ms)
            except Unavailable as error:
                if not self._is_blocked:
                    log.warning("the log waits for room on the disk", extra={"why": error.message})
                self._is_blocked = True
                return
            self._is_blocked = False
            self._waiting.popleft()
            self._waiting_bytes -= len(data)
            if self._log.end >= self._next_check:
                self._drop_middle()

    def add_line(self, text: str) -> None:
        """Add a line of the agent's own to the log."""
        self.flush()
        try:
            self._log.append(f"[trainyard] {text}".encode(), now_us() // 1000, whole=True)
        except Unavailable as error:
            log.warning("a line of the log is lost", extra={"why": error.message, "line": text})

    def close(self) -> None:
        """End the last line, say how much was dropped, and make the log durable."""
        self.flush()
        self.lost_bytes += self._waiting_bytes
        try:
            self._log.end_line(now_us() // 1000)
            if self._dropped_bytes:
                self.add_line(
                    f"This log exceeded its limit of {self._limit} bytes; {self._dropped_bytes} bytes of its middle "
                    "were dropped."
                )
            self._log.sync()
        except Unavailable as error:
            log.warning("the end of the log is lost", extra={"why": error.message})
        self._log.close()
        if self.scan is not None:
            self.scan.close()

    def _append(self, data: bytes, at_us: int) -> None:
        # Make room among what waits before deciding whether this is lost.
        self.flush()
        if self._waiting_bytes + len(data) > _MAX_WAITING_BYTES:
            self.lost_bytes += len(data)
        else:
            self._waiting.append((data, at_us // 1000))
            self._waiting_bytes += len(data)
        self.flush()

    def _drop_middle(self) -> None:
        """Remove the oldest segments after the first half of the limit, until the rest is within it."""
        segments = [segment for segment in segments_of(self._folder) if segment.start >= self._limit // 2]
        over = self._log.end - self._dropped_bytes - self._limit
        for segment in segments[:-1]:
            if over <= 0:
                break
            size = segment.end - segment.start
            # The index first: a segment without one does not exist.
            segment.index_file.unlink()
            segment.log_file.unlink()
            self._dropped_bytes += size
            over -= size
        self._next_check = self._log.end + self._segment

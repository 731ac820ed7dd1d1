"""What a program writes to stdout and stderr, kept as the log of its instance."""

import logging
from collections import deque
from pathlib import Path

from trainyard.formats.logs import SEGMENT_BYTES, LogWriter
from trainyard.formats.logs.segments import segments_of
from trainyard.foundation.errors import Unavailable
from trainyard.instance.agent.reports import now_us
from trainyard.instance.agent.scanning import OutputScan
from trainyard.instance.agent.tail import LogTail

_MOST_WAITING = 8 << 20
_SEGMENTS_IN_LIMIT = 16  # so that what is dropped at once is a small part of what is kept

log = logging.getLogger(__name__)


class Output:
    """Takes the bytes of all programs of an instance, in their order; used by one thread.

    A log that grows over its limit loses its middle, and says so at its end. What a full disk does not take waits in
    memory for room; when too much waits, it costs lines of the log, never the program.
    """

    def __init__(self, folder: Path, *, limit_bytes: int) -> None:
        self.tail = LogTail()
        self.scan: OutputScan | None = None
        self.lost_bytes = 0
        self.total_bytes = 0  # that programs wrote
        self.first_us: int | None = None  # when something came first; whoever wants to know of a program resets it
        self._folder = folder
        self._limit = limit_bytes
        self._segment = max(1, min(SEGMENT_BYTES, limit_bytes // _SEGMENTS_IN_LIMIT))
        self._log = LogWriter(folder, segment_bytes=self._segment)
        self._waiting: deque[tuple[bytes, int]] = deque()  # pieces of output and their milliseconds
        self._waiting_bytes = 0
        self._is_held_up = False
        self._dropped = 0
        self._look_at = limit_bytes  # the offset at which the size is looked at next

    def write(self, data: bytes) -> None:
        """Keep what a program wrote just now, in pieces no larger than an event."""
        at_us = now_us()
        self.first_us = self.first_us or at_us
        self.tail.add(data)
        self.total_bytes += len(data)
        self._append(data, at_us)
        if self.scan is not None:
            self.scan.write(data, at_us)

    def save(self) -> None:
        """Write down what waits, as far as the disk takes it now; with nothing waiting, nothing happens."""
        while self._waiting:
            data, at_ms = self._waiting[0]
            try:
                self._log.append(data, at_ms)
            except Unavailable as error:
                if not self._is_held_up:
                    log.warning("the log must wait for room on the disk", extra={"why": error.message})
                self._is_held_up = True
                return
            self._is_held_up = False
            self._waiting.popleft()
            self._waiting_bytes -= len(data)
            if self._log.end >= self._look_at:
                self._drop_middle()

    def say(self, text: str) -> None:
        """Add a line of the agent's own, for whoever reads the log."""
        self.save()
        try:
            self._log.append(f"[trainyard] {text}".encode(), now_us() // 1000, whole=True)
        except Unavailable as error:
            log.warning("a line of the log is lost", extra={"why": error.message, "line": text})

    def close(self) -> None:
        """End the last line, say what was dropped, and make all of it durable."""
        self.save()
        self.lost_bytes += self._waiting_bytes
        try:
            self._log.end_line(now_us() // 1000)
            if self._dropped:
                self.say(
                    f"This log passed its limit of {self._limit} bytes; {self._dropped} of its middle were dropped."
                )
            self._log.sync()
        except Unavailable as error:
            log.warning("the end of the log is lost", extra={"why": error.message})
        self._log.close()
        if self.scan is not None:
            self.scan.close()

    def _append(self, data: bytes, at_us: int) -> None:
        self.save()  # what waits may have kept the place of this
        if self._waiting_bytes + len(data) > _MOST_WAITING:
            self.lost_bytes += len(data)
        else:
            self._waiting.append((data, at_us // 1000))
            self._waiting_bytes += len(data)
        self.save()

    def _drop_middle(self) -> None:
        """Remove the oldest segments behind the first half of the limit, until what is left is within it."""
        segments = [segment for segment in segments_of(self._folder) if segment.start >= self._limit // 2]
        over = self._log.end - self._dropped - self._limit
        for segment in segments[:-1]:
            if over <= 0:
                break
            size = segment.end - segment.start
            # The index goes first: it is what makes a segment exist.
            segment.index_file.unlink()
            segment.log_file.unlink()
            self._dropped += size
            over -= size
        self._look_at = self._log.end + self._segment

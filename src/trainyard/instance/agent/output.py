"""What a program writes to stdout and stderr, kept as the log of its instance."""

import logging
from pathlib import Path

from trainyard.formats.logs import SEGMENT_BYTES, LogWriter
from trainyard.formats.logs.segments import segments_of
from trainyard.foundation.errors import Unavailable
from trainyard.instance.agent.reports import now_us
from trainyard.instance.agent.series import MetricSeries
from trainyard.instance.agent.tail import LogTail

_SEGMENTS_IN_LIMIT = 16  # so that what is dropped at once is a small part of what is kept

log = logging.getLogger(__name__)


class Output:
    """Takes the bytes of all programs of an instance, in their order; used by one thread.

    A log that grows over its limit loses its middle, and says so at its end. A disk that takes no more costs lines of
    the log, never the program.
    """

    def __init__(self, folder: Path, *, limit_bytes: int) -> None:
        self.tail = LogTail()
        self.metrics: MetricSeries | None = None
        self.lost_bytes = 0
        self.first_us: int | None = None  # when something came first; whoever wants to know of a program resets it
        self._folder = folder
        self._limit = limit_bytes
        self._segment = max(1, min(SEGMENT_BYTES, limit_bytes // _SEGMENTS_IN_LIMIT))
        self._log = LogWriter(folder, segment_bytes=self._segment)
        self._dropped = 0
        self._look_at = limit_bytes  # the offset at which the size is looked at next

    def write(self, data: bytes) -> None:
        """Keep what a program wrote just now."""
        at_us = now_us()
        self.first_us = self.first_us or at_us
        self.tail.add(data)
        self._append(data, at_us)
        if self.metrics is not None:
            self.metrics.write(data, at_us)

    def say(self, text: str) -> None:
        """Add a line of the agent's own, for whoever reads the log."""
        try:
            self._log.append(f"[trainyard] {text}".encode(), now_us() // 1000, whole=True)
        except Unavailable as error:
            log.warning("a line of the log is lost", extra={"why": error.message, "line": text})

    def close(self) -> None:
        """End the last line, say what was dropped, and make all of it durable."""
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

    def _append(self, data: bytes, at_us: int) -> None:
        try:
            self._log.append(data, at_us // 1000)
        except Unavailable as error:
            if not self.lost_bytes:
                log.warning("a part of the log is lost", extra={"why": error.message})
            self.lost_bytes += len(data)
            return
        if self._log.end >= self._look_at:
            self._drop_middle()

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

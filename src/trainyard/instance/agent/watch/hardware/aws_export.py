"""Stores hardware samples on S3 in AWS's format: a line of JSON for each value, an object for each minute."""

import json
import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

from trainyard.formats.profiles.aws_series import aws_series
from trainyard.formats.profiles.contract import HardwareSeries
from trainyard.foundation.clock import from_micros, utc_now
from trainyard.foundation.errors import TrainyardError
from trainyard.foundation.locations import Location
from trainyard.objects.contract import Attributes, ObjectAccess

_PERIOD_US = 60_000_000
_MAX_FILE_BYTES = 32 << 20
# Files that wait for a store that cannot be reached. Beyond that, the oldest is dropped.
_MAX_WAITING = 10
_RETRY_S = 5.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ExportTarget:
    """Where the files of an instance go at first. `may_write` says whether its lease still allows that."""

    location: Location
    instance: str
    attributes: Attributes
    open_store: Callable[[], ObjectAccess]
    may_write: Callable[[], bool]


class AwsSamplesExport:
    """A sink that uploads a file each minute, on a thread of its own.

    `is_enabled` and `location` may change at any time. A store that cannot be reached delays nothing; `dropped` counts
    the files that were given up.
    """

    def __init__(self, target: ExportTarget, *, is_enabled: bool, end_s: float = 5.0) -> None:
        self.is_enabled = is_enabled
        self.location = target.location
        self.dropped = 0
        self._target = target
        self._end_s = end_s
        self._columns: Sequence[tuple[int, bytes]] = ()
        self._lines = bytearray()
        self._start_us = 0
        self._waiting: deque[tuple[Location, bytes]] = deque()
        self._changed = threading.Condition()
        self._is_over = False
        self._thread: threading.Thread | None = None

    def begin(self, series: Sequence[HardwareSeries], _interval_us: int) -> None:
        self._columns = [
            (column, prefix) for column, each in enumerate(series) if (prefix := _line_prefix(each)) is not None
        ]

    def append(self, time_us: int, values: Sequence[float]) -> None:
        if not self.is_enabled or time_us // _PERIOD_US != self._start_us // _PERIOD_US:
            self._finish_file()
        if not self.is_enabled or len(self._lines) > _MAX_FILE_BYTES:
            return
        self._start_us = self._start_us or time_us
        suffix = f',"NodeId":"{self._target.instance}","Timestamp":{time_us / 1e6:.6f}}}\n'.encode()
        for column, prefix in self._columns:
            value = values[column]
            if not math.isnan(value):
                self._lines += b"%b%.6g%b" % (prefix, value, suffix)

    def flush(self) -> None:
        """Nothing is due before the end of the minute."""

    def close(self) -> None:
        """Upload what is left, for a limited time."""
        self._finish_file()
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(self._end_s)
        with self._changed:
            self.dropped += len(self._waiting)
            self._waiting.clear()

    def _finish_file(self) -> None:
        """Hand what was collected to the thread that uploads."""
        if not self._lines:
            self._start_us = 0
            return
        at = from_micros(self._start_us)
        name = f"system/incremental/{at:%Y%m%d%H}/{int(at.timestamp())}.{self._target.instance}.json"
        where = Location(self.location.bucket, self.location.key + name)
        with self._changed:
            self._waiting.append((where, bytes(self._lines)))
            if len(self._waiting) > _MAX_WAITING:
                self._waiting.popleft()
                self.dropped += 1
            self._changed.notify_all()
        self._lines, self._start_us = bytearray(), 0
        if self._thread is None:
            self._thread = threading.Thread(target=self._upload_all, name="samples export", daemon=True)
            self._thread.start()

    def _upload_all(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._is_over:
                    self._changed.wait()
                if not self._waiting:
                    return
                where, data = self._waiting[0]
            is_done = self._try_upload(where, data)
            with self._changed:
                if is_done and self._waiting and self._waiting[0][0] == where:
                    self._waiting.popleft()
                elif not is_done:
                    self._changed.wait(_RETRY_S)

    def _try_upload(self, where: Location, data: bytes) -> bool:
        """Upload a file; return whether it needs no other try."""
        try:
            if not self._target.may_write():
                return False
            with closing(self._target.open_store()) as store:
                writer = store.writer(where, self._target.attributes)
                try:
                    writer.write(data)
                    writer.commit(now=utc_now())
                except BaseException:
                    writer.abort()
                    raise
        except (TrainyardError, OSError) as error:
            log.warning("hardware samples were not stored", extra={"where": str(where), "why": str(error)})
            return False
        return True


def _line_prefix(series: HardwareSeries) -> bytes | None:
    """Return the beginning of the lines of a series; None if AWS's files have no such series."""
    found = aws_series(series)
    if found is None:
        return None
    words = json.dumps({"Type": found.type, "Name": found.name, "Dimension": found.dimension}, separators=(",", ":"))
    return f'{words[:-1]},"Value":'.encode()

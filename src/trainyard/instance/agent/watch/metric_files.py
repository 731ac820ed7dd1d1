"""Reads the metrics that a program writes to files, as smexperiments and other libraries of AWS do in jobs.

Each process appends JSON lines to a file of its own in SAGEMAKER_METRICS_DIRECTORY. The program may write anything
there, so names, lines and files are limited, and everything is read by descriptors that no link can redirect.
"""

import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainyard.foundation.confined import ConfinedFolder
from trainyard.instance.agent.reports import Reports, now_us
from trainyard.instance.agent.watch.metric_series import MetricSeries

METRICS_FOLDER = "output/metrics/sagemaker"
INTERVAL_S = 1.0
MAX_FILES = 64
MAX_NAMES = 100
MAX_NAME_LENGTH = 255
MAX_LINE_BYTES = 64 * 1024

# At one look: some thousand lines, which take milliseconds.
_READ_BYTES = 256 * 1024
# At the end of the program.
_FINAL_S = 5.0
_SUFFIX = ".json"
_MAX_AGE_US, _MAX_AHEAD_US = 14 * 86_400 * 1_000_000, 2 * 3_600 * 1_000_000


class MetricFiles:
    """Adds the values in the metric files of a program to their series. Used by one thread."""

    def __init__(self, ml: Path, series: MetricSeries, *, reports: Reports) -> None:
        self._ml, self._series, self._reports = ml, series, reports
        # How much of each file was read.
        self._offsets: dict[str, int] = {}
        # What was read of each metric and is not stored yet.
        self._read: dict[str, list[tuple[float, int]]] = {}
        self._look_at = 0.0
        self._is_noted = False

    def poll(self, now: float) -> None:
        """Read what is new once a second, and what is left of it at the next call."""
        if now >= self._look_at:
            has_more = self._read_files()
            self._look_at = now if has_more else now + INTERVAL_S
            self._series.report()

    def finish(self) -> None:
        """Read the rest: nothing more will be written."""
        deadline = time.monotonic() + _FINAL_S
        while self._read_files():
            if time.monotonic() > deadline:
                self._reports.note("The metric files of this job are too long to be read to their end; write less.")
                return

    def _read_files(self) -> bool:
        """Read some of the files; return whether there is more."""
        try:
            folder = ConfinedFolder.open(self._ml, METRICS_FOLDER)
        except OSError:
            # The program may have removed it.
            return False
        room = _READ_BYTES
        with folder:
            for name in self._choose(folder.names()):
                room -= self._read_file(folder, name, room)
                if room <= 0:
                    break
        self._store()
        return room <= 0

    def _choose(self, names: Sequence[str]) -> list[str]:
        """Return the files to read: those that are known first, so that new ones cannot push them out."""
        found = [name for name in sorted(names) if name.endswith(_SUFFIX)]
        new = [name for name in found if name not in self._offsets][: MAX_FILES - len(self._offsets)]
        return [*(name for name in found if name in self._offsets), *new]

    def _read_file(self, folder: ConfinedFolder, name: str, room: int) -> int:
        """Read the next lines of a file; return how many bytes were read."""
        data = folder.read(name, limit_bytes=room, offset=self._offsets.setdefault(name, 0))
        if not data:
            return 0
        end = data.rfind(b"\n") + 1
        if not end and len(data) > MAX_LINE_BYTES:
            # This is no metric, however it ends.
            end = len(data)
        self._offsets[name] += end
        for line in data[:end].splitlines():
            self._add(line)
        # The start of a line is read again when its end has come.
        return len(data)

    def _add(self, line: bytes) -> None:
        try:
            metric: Any = json.loads(line) if len(line) <= MAX_LINE_BYTES else None
            name, value = metric["MetricName"], float(metric["Value"])
            at_us = _moment_us(metric.get("Timestamp"))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            self._note_once("Lines in the metric files of this job are not metrics; they are left out.")
            return
        if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_LENGTH or not name.isprintable():
            self._note_once("Lines in the metric files of this job have no valid MetricName; they are left out.")
        elif name not in self._read and len(self._read) >= MAX_NAMES:
            self._note_once(f"The metric files of this job have more than {MAX_NAMES} metrics; the rest is left out.")
        elif math.isfinite(value):
            self._read.setdefault(name, []).append((value, at_us))
        elif name in self._read:
            self._store()
            self._series.lapse(name)

    def _store(self) -> None:
        for name, read in self._read.items():
            if read:
                values, times_us = zip(*read, strict=True)
                self._series.add_timed(name, values, times_us)
                read.clear()

    def _note_once(self, text: str) -> None:
        if not self._is_noted:
            self._is_noted = True
            self._reports.note(text)


def _moment_us(timestamp: object) -> int:
    """Return the time of a value: its own if it is plausible, else now."""
    now = now_us()
    if isinstance(timestamp, int | float) and math.isfinite(timestamp):
        at_us = int(timestamp * 1_000_000)
        if now - _MAX_AGE_US <= at_us <= now + _MAX_AHEAD_US:
            return at_us
    return now

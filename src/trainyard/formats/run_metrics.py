"""The metrics of one run: an append-only file of fixed-size records, in the order in which they came.

A record is the number of a metric's name, its time, its step and its value. Names are lines of a file beside it, each
written before the first record that uses it. A record or a name that a crash cut short does not count; the next append
removes it.
"""

import json
import os
import struct
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainyard.foundation.errors import Unavailable
from trainyard.foundation.files import PRIVATE_FILE, make_folder, sync_folder

_RECORD = struct.Struct("<qqqd")
RECORD_BYTES = _RECORD.size
_NO_STEP = -1
_BATCH_RECORDS = 16_384
_POINTS, _NAMES = "run.points", "run.names"


@dataclass(frozen=True, slots=True)
class RunPoint:
    """One value of a metric. Scripts that count no steps have none."""

    name: str
    micros: int
    value: float
    step: int | None = None


@dataclass(frozen=True, slots=True)
class RunPoints:
    """Points in the order in which they came, and the offset of the next one. At the end, it is the one asked for."""

    points: Sequence[RunPoint]
    end: int


class RunMetrics:
    """The metrics of one run in a folder. Safe for many threads; one process at a time appends.

    What was appended survives the death of the process. It survives a power failure once `sync` has returned.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        # The numbers of the names, None before the first append.
        self._numbers: dict[str, int] | None = None

    def append(self, points: Sequence[RunPoint]) -> None:
        """Append all points in one write. A full or failing disk raises Unavailable, and nothing is appended."""
        try:
            with self._lock:
                numbers = self._ensure_names([point.name for point in points])
                data = b"".join(
                    _RECORD.pack(
                        numbers[point.name],
                        point.micros,
                        _NO_STEP if point.step is None else point.step,
                        point.value,
                    )
                    for point in points
                )
                _append_whole(self._folder / _POINTS, data, unit=RECORD_BYTES)
        except OSError as error:
            raise Unavailable(f"The metrics in {self._folder} cannot be written: {error.strerror}.") from error

    def names(self) -> Sequence[str]:
        """Return the names of all metrics, the oldest first."""
        try:
            lines = (self._folder / _NAMES).read_bytes().split(b"\n")
        except FileNotFoundError:
            return []
        # What follows the last line end was cut short.
        return [json.loads(line) for line in lines[:-1]]

    def read(self, offset: int) -> RunPoints:
        """Return the next points from an offset on, as many as one read brings."""
        try:
            descriptor = os.open(self._folder / _POINTS, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return RunPoints([], offset)
        try:
            data = os.pread(descriptor, _BATCH_RECORDS * RECORD_BYTES, offset)
        finally:
            os.close(descriptor)
        # After the points, because a name is written before its points.
        names = self.names()
        whole = data[: len(data) - len(data) % RECORD_BYTES]
        points = [
            RunPoint(names[number], micros, value, None if step == _NO_STEP else step)
            for number, micros, step, value in _RECORD.iter_unpack(whole)
            # A power failure may have taken the name, but not the point.
            if number < len(names)
        ]
        return RunPoints(points, offset + len(whole))

    def read_all(self) -> Iterator[RunPoint]:
        """Iterate over all points."""
        offset = 0
        while (batch := self.read(offset)).end > offset:
            yield from batch.points
            offset = batch.end

    def sync(self) -> None:
        """Return when everything that was appended survives a power failure."""
        for name in (_NAMES, _POINTS):
            try:
                descriptor = os.open(self._folder / name, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            try:
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)
        if self._folder.is_dir():
            sync_folder(self._folder)

    def _ensure_names(self, names: Sequence[str]) -> dict[str, int]:
        if self._numbers is None:
            make_folder(self._folder, parents=True)
            self._numbers = {name: number for number, name in enumerate(self.names())}
        new = [name for name in dict.fromkeys(names) if name not in self._numbers]
        if new:
            known = b"".join(json.dumps(name).encode() + b"\n" for name in self._numbers)
            added = b"".join(json.dumps(name).encode() + b"\n" for name in new)
            _write_after(self._folder / _NAMES, len(known), added)
            sync_folder(self._folder)
            self._numbers.update({name: len(self._numbers) + place for place, name in enumerate(new)})
        return self._numbers


def _append_whole(path: Path, data: bytes, *, unit: int) -> None:
    """Append records to a file, over what is left of one that was cut short."""
    size = path.stat().st_size if path.exists() else 0
    _write_after(path, size - size % unit, data)


def _write_after(path: Path, offset: int, data: bytes) -> None:
    """Write everything at an offset, or nothing."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        if os.fstat(descriptor).st_size > offset:
            os.ftruncate(descriptor, offset)
        try:
            written = 0
            while written < len(data):
                written += os.pwrite(descriptor, data[written:], offset + written)
        except OSError:
            os.ftruncate(descriptor, offset)
            raise
    finally:
        os.close(descriptor)

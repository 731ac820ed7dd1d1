"""Metric points: one append-only file of fixed-size records per series.

A record is a point (its microsecond, and the sum, minimum, maximum and count of its values) with a watermark, so that a
binary search finds a time range even if points came late. A record that a crash cut short does not count; the next
append removes it.
"""

import hashlib
import math
import os
import re
import struct
import sys
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from trainyard.formats.watermark import LOWEST, Watermark, find_first_reaching
from trainyard.foundation.errors import Unavailable
from trainyard.foundation.files import PRIVATE_FILE, make_folder, sync_folder

_RECORD = struct.Struct("<qqQdddd")
RECORD_BYTES = _RECORD.size
_WORDS = _RECORD.size // 8
_BATCH_POINTS = 16_384
# File systems allow 255 bytes.
_MAX_NAME_LENGTH = 200
_PERCENTILE = re.compile(r"p(100(?:\.0+)?|[0-9]{1,2}(?:\.[0-9]+)?)")


@dataclass(frozen=True, slots=True)
class Point:
    """The values of a series at one moment: one value, several equal ones, or the statistics of many."""

    micros: int
    sum: float
    minimum: float
    maximum: float
    count: float

    @classmethod
    def of(cls, value: float, micros: int, *, count: float = 1.0) -> "Point":
        """Return the point of a value that occurred `count` times."""
        return cls(micros, value * count, value, value, count)


@dataclass(frozen=True, slots=True)
class Points:
    """Points as columns, in order of time."""

    micros: Sequence[int]
    sums: Sequence[float]
    minima: Sequence[float]
    maxima: Sequence[float]
    counts: Sequence[float]


def series_file(folder: Path, name: str) -> Path:
    """Return the file of a series in a folder; its name may have any characters and length."""
    readable = quote(name, safe="", errors="surrogatepass")
    if len(readable) > _MAX_NAME_LENGTH:
        readable = (
            f"{readable[: _MAX_NAME_LENGTH // 2]}-{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()}"
        )
    return folder / f"{readable}.points"


class PointsFile:
    """The points of one series. A missing file has none. Safe for many threads and processes at once."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, points: Iterable[Point], *, durable: bool = True) -> None:
        """Append all points in one write; `durable` waits until they survive a power cut.

        A full or failing disk raises Unavailable, and nothing is appended.
        """
        # Imported here: clients on Windows read points, and lack it.
        import fcntl

        try:
            make_folder(self._path.parent, parents=True)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
            with os.fdopen(descriptor, "r+b", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                if not os.fstat(descriptor).st_size:
                    # While the file is empty, so that a file with points has been synced.
                    sync_folder(self._path.parent)
                _append(file, points)
                if durable:
                    os.fdatasync(descriptor)
        except OSError as error:
            raise Unavailable(f"The points in {self._path} cannot be written: {error.strerror}.") from error

    def last_micros(self) -> int | None:
        """Return the latest time of any point; None if there is none."""
        try:
            file = self._path.open("rb", buffering=0)
        except FileNotFoundError:
            return None
        with file:
            count = _count(file)
            return _watermark(file, count - 1).peak if count else None

    def count(self) -> int:
        """Return the number of points."""
        try:
            return self._path.stat().st_size // _RECORD.size
        except FileNotFoundError:
            return 0

    def numbers_between(self, start_micros: int | None, end_micros: int | None) -> range:
        """Return the numbers of the points of a time range, and of points that came late among them."""
        try:
            file = self._path.open("rb", buffering=0)
        except FileNotFoundError:
            return range(0)
        with file:
            count = _count(file)
            lag = _watermark(file, count - 1).lag
            return range(
                0 if start_micros is None else _find(file, start_micros, count),
                count if end_micros is None else _find(file, end_micros + lag, count),
            )

    def tail(self, first: int, *, limit: int = _BATCH_POINTS) -> Points:
        """Return up to `limit` points from number `first` on, in the order in which they were appended."""
        try:
            file = self._path.open("rb", buffering=0)
        except FileNotFoundError:
            return _columns(b"")
        with file:
            size = max(0, min(_count(file) - first, limit)) * _RECORD.size
            return _columns(os.pread(file.fileno(), size, first * _RECORD.size))

    def read(self, start_micros: int, end_micros: int) -> Iterator[Points]:
        """Iterate over the points from `start_micros`, inclusive, to `end_micros`, exclusive, in sorted batches."""
        try:
            file = self._path.open("rb", buffering=0)
        except FileNotFoundError:
            return
        with file:
            count = _count(file)
            lag = _watermark(file, count - 1).lag
            first, stop = _find(file, start_micros, count), _find(file, end_micros + lag, count)
            for number in range(first, stop, _BATCH_POINTS):
                points = _columns(
                    os.pread(file.fileno(), min(_BATCH_POINTS, stop - number) * _RECORD.size, number * _RECORD.size)
                )
                yield _sort_range(points, start_micros, end_micros) if lag else points


@dataclass(slots=True)
class PeriodStatistics:
    """The statistics of the points of one period.

    `values`, each with its weight, are None if they are not kept, or if a point has unequal values.
    """

    start_micros: int
    sum: float = 0.0
    count: float = 0.0
    minimum: float = math.inf
    maximum: float = -math.inf
    values: list[tuple[float, float]] | None = None

    def statistic(self, name: str) -> float | None:
        """Return a statistic by name; `is_statistic` must accept it.

        None if it is undefined: the average of no values, or a percentile if a point has unequal values.
        """
        if name in _STATISTICS:
            return _STATISTICS[name](self)
        return self._percentile(float(name[1:]))

    def add(self, points: Points, *, first: int, stop: int) -> None:
        """Add the points from number `first` on and before `stop`."""
        minima, maxima, counts = points.minima[first:stop], points.maxima[first:stop], points.counts[first:stop]
        self.sum += math.fsum(points.sums[first:stop])
        self.count += math.fsum(counts)
        self.minimum = min(self.minimum, min(minima))
        self.maximum = max(self.maximum, max(maxima))
        if self.values is not None and minima == maxima:
            self.values += zip(minima, counts, strict=True)
        else:
            self.values = None

    def _percentile(self, rank: float) -> float | None:
        """Return the smallest value that at least `rank` percent of all values do not exceed."""
        if not self.values:
            return None
        ordered = sorted(self.values)
        weights = list(accumulate(weight for _, weight in ordered))
        number = bisect_left(weights, weights[-1] * rank / 100)
        return ordered[min(number, len(ordered) - 1)][0]


_STATISTICS: Mapping[str, Callable[[PeriodStatistics], float | None]] = {
    "Average": lambda bucket: bucket.sum / bucket.count if bucket.count else None,
    "Sum": lambda bucket: bucket.sum,
    "Minimum": lambda bucket: bucket.minimum,
    "Maximum": lambda bucket: bucket.maximum,
    "SampleCount": lambda bucket: bucket.count,
}


def is_percentile(name: str) -> bool:
    """Whether a name is p0 to p100, such as p50 or p99.9."""
    return _PERCENTILE.fullmatch(name) is not None


def is_statistic(name: str) -> bool:
    return name in _STATISTICS or is_percentile(name)


def aggregate(
    batches: Iterable[Points], start_micros: int, *, period_micros: int, keep_values: bool = False
) -> list[PeriodStatistics]:
    """Return the statistics of each period from `start_micros` on, in order; periods without points are left out.

    Percentiles need `keep_values`, and memory for every value.
    """
    buckets: dict[int, PeriodStatistics] = {}
    for points in batches:
        first = 0
        while first < len(points.micros):
            number = (points.micros[first] - start_micros) // period_micros
            begins = start_micros + number * period_micros
            stop = bisect_left(points.micros, begins + period_micros, lo=first)
            if number not in buckets:
                buckets[number] = PeriodStatistics(begins, values=[] if keep_values else None)
            buckets[number].add(points, first=first, stop=stop)
            first = stop
    return [buckets[number] for number in sorted(buckets)]


def _append(file: BinaryIO, points: Iterable[Point]) -> None:
    count = _count(file)
    watermark = _watermark(file, count - 1)
    data = bytearray()
    for point in points:
        watermark = watermark.with_time(point.micros)
        data += _RECORD.pack(
            point.micros, watermark.peak, watermark.lag, point.sum, point.minimum, point.maximum, point.count
        )
    size = count * _RECORD.size
    os.ftruncate(file.fileno(), size)
    try:
        while data:
            written = os.pwrite(file.fileno(), data, os.fstat(file.fileno()).st_size)
            del data[:written]
    except OSError:
        os.ftruncate(file.fileno(), size)
        raise


def _count(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size // _RECORD.size


def _watermark(file: BinaryIO, number: int) -> Watermark:
    """Return the watermark of a record; LOWEST if the number is negative."""
    if number < 0:
        return LOWEST
    _, peak, lag, *_ = _RECORD.unpack(os.pread(file.fileno(), _RECORD.size, number * _RECORD.size))
    return Watermark(peak, lag)


def _find(file: BinaryIO, micros: int, count: int) -> int:
    """Return the number of the first record at or after which a point of this time or later can be."""
    return find_first_reaching(micros, count, peak_of=lambda number: _watermark(file, number).peak)


def _columns(data: bytes) -> Points:
    integers, floats = array("q", data), array("d", data)
    if sys.byteorder == "big":
        integers.byteswap()
        floats.byteswap()
    return Points(integers[::_WORDS], *(floats[word::_WORDS] for word in range(3, _WORDS)))


def _sort_range(points: Points, start_micros: int, end_micros: int) -> Points:
    """Select the points in the range and sort them by time; the sort is stable."""
    wanted = [number for number, micros in enumerate(points.micros) if start_micros <= micros < end_micros]
    wanted.sort(key=points.micros.__getitem__)
    columns = (points.sums, points.minima, points.maxima, points.counts)
    return Points([points.micros[n] for n in wanted], *([column[n] for n in wanted] for column in columns))

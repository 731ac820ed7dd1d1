"""Metric points: one file per series, to which fixed records are appended.

A record is a point (its microsecond, and the sum, minimum, maximum and count of the values it stands for) with a
watermark, so that a range of times is found by binary search also where points came late. A record cut short by a crash
does not exist; the next append takes it away.
"""

import fcntl
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

from trainyard.formats.watermark import LOWEST, Watermark, first_reaching
from trainyard.foundation.errors import Unavailable
from trainyard.foundation.files import PRIVATE_FILE, make_folder, sync_folder

_RECORD = struct.Struct("<qqQdddd")
RECORD_BYTES = _RECORD.size
_WORDS = _RECORD.size // 8
_BATCH = 16_384  # points in memory at once
_LONGEST_NAME = 200  # file systems take 255 bytes
_PERCENTILE = re.compile(r"p(100(?:\.0+)?|[0-9]{1,2}(?:\.[0-9]+)?)")


@dataclass(frozen=True, slots=True)
class Point:
    """What one moment says of a series: one value, some equal ones, or the statistics of many."""

    micros: int
    sum: float
    minimum: float
    maximum: float
    count: float

    @classmethod
    def of(cls, value: float, micros: int, *, count: float = 1.0) -> "Point":
        """A value that occurred `count` times."""
        return cls(micros, value * count, value, value, count)


@dataclass(frozen=True, slots=True)
class Points:
    """Columns of points in the order of time."""

    micros: Sequence[int]
    sums: Sequence[float]
    minima: Sequence[float]
    maxima: Sequence[float]
    counts: Sequence[float]


def series_file(folder: Path, name: str) -> Path:
    """Where the points of a series lie among others, each with a name of any characters and length."""
    readable = quote(name, safe="", errors="surrogatepass")
    if len(readable) > _LONGEST_NAME:
        readable = f"{readable[: _LONGEST_NAME // 2]}-{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()}"
    return folder / f"{readable}.points"


class PointsFile:
    """The points of one series. An absent file has none. Safe to use from many threads and processes at once."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, points: Iterable[Point], *, durable: bool = True) -> None:
        """Append all points in one write; `durable` waits until they survive a power cut.

        A full or failing disk raises Unavailable, and nothing is appended.
        """
        try:
            make_folder(self._path.parent, parents=True)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
            with os.fdopen(descriptor, "r+b", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                if not os.fstat(descriptor).st_size:
                    sync_folder(self._path.parent)  # before anything is in it, so that a point tells that it was done
                _append(file, points)
                if durable:
                    os.fdatasync(descriptor)
        except OSError as error:
            raise Unavailable(f"The points in {self._path} cannot be written: {error.strerror}.") from error

    def last_micros(self) -> int | None:
        """The latest time of any point."""
        try:
            file = self._path.open("rb", buffering=0)
        except FileNotFoundError:
            return None
        with file:
            count = _count(file)
            return _watermark(file, count - 1).peak if count else None

    def tail(self, first: int, *, limit: int = _BATCH) -> Points:
        """The points from number `first` on as they were appended, so many at most."""
        try:
            file = self._path.open("rb", buffering=0)
        except FileNotFoundError:
            return _columns(b"")
        with file:
            size = max(0, min(_count(file) - first, limit)) * _RECORD.size
            return _columns(os.pread(file.fileno(), size, first * _RECORD.size))

    def read(self, start_micros: int, end_micros: int) -> Iterator[Points]:
        """The points from `start_micros`, inclusive, to `end_micros`, exclusive, in batches that are each in order."""
        try:
            file = self._path.open("rb", buffering=0)
        except FileNotFoundError:
            return
        with file:
            count = _count(file)
            lag = _watermark(file, count - 1).lag
            first = first_reaching(start_micros, count, peak_of=lambda number: _watermark(file, number).peak)
            stop = first_reaching(end_micros + lag, count, peak_of=lambda number: _watermark(file, number).peak)
            for number in range(first, stop, _BATCH):
                points = _columns(
                    os.pread(file.fileno(), min(_BATCH, stop - number) * _RECORD.size, number * _RECORD.size)
                )
                yield _in_order(points, start_micros, end_micros) if lag else points


@dataclass(slots=True)
class Bucket:
    """The points of one period put together.

    `values`, each with its weight, are None when not all are known, or when they were not asked to be kept.
    """

    start_micros: int
    sum: float = 0.0
    count: float = 0.0
    minimum: float = math.inf
    maximum: float = -math.inf
    values: list[tuple[float, float]] | None = None

    def statistic(self, name: str) -> float | None:
        """The statistic of that name, which `is_statistic` knows.

        None when it cannot be told: the average of nothing, or a percentile where a point stood for unequal values.
        """
        if name in _STATISTICS:
            return _STATISTICS[name](self)
        return self._percentile(float(name[1:]))

    def add(self, points: Points, *, first: int, stop: int) -> None:
        """Put in the points from number `first` on and before `stop`."""
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
        """The least value that at least `rank` percent of all are not above."""
        if not self.values:
            return None
        ordered = sorted(self.values)
        weights = list(accumulate(weight for _, weight in ordered))
        number = bisect_left(weights, weights[-1] * rank / 100)
        return ordered[min(number, len(ordered) - 1)][0]


_STATISTICS: Mapping[str, Callable[[Bucket], float | None]] = {
    "Average": lambda bucket: bucket.sum / bucket.count if bucket.count else None,
    "Sum": lambda bucket: bucket.sum,
    "Minimum": lambda bucket: bucket.minimum,
    "Maximum": lambda bucket: bucket.maximum,
    "SampleCount": lambda bucket: bucket.count,
}


def is_percentile(name: str) -> bool:
    """Whether it is p0 to p100, as p50 or p99.9."""
    return _PERCENTILE.fullmatch(name) is not None


def is_statistic(name: str) -> bool:
    return name in _STATISTICS or is_percentile(name)


def aggregate(
    batches: Iterable[Points], start_micros: int, *, period_micros: int, keep_values: bool = False
) -> list[Bucket]:
    """Buckets of one period each, counted from `start_micros`, in order; periods without a point are left out.

    Percentiles need `keep_values`, and memory for every value.
    """
    buckets: dict[int, Bucket] = {}
    for points in batches:
        first = 0
        while first < len(points.micros):
            number = (points.micros[first] - start_micros) // period_micros
            begins = start_micros + number * period_micros
            stop = bisect_left(points.micros, begins + period_micros, lo=first)
            if number not in buckets:
                buckets[number] = Bucket(begins, values=[] if keep_values else None)
            buckets[number].add(points, first=first, stop=stop)
            first = stop
    return [buckets[number] for number in sorted(buckets)]


def _append(file: BinaryIO, points: Iterable[Point]) -> None:
    count = _count(file)
    mark = _watermark(file, count - 1)
    data = bytearray()
    for point in points:
        mark = mark.raised(point.micros)
        data += _RECORD.pack(point.micros, mark.peak, mark.lag, point.sum, point.minimum, point.maximum, point.count)
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
    """That of a record, or of none when the number is below 0."""
    if number < 0:
        return LOWEST
    _, peak, lag, *_ = _RECORD.unpack(os.pread(file.fileno(), _RECORD.size, number * _RECORD.size))
    return Watermark(peak, lag)


def _columns(data: bytes) -> Points:
    integers, floats = array("q", data), array("d", data)
    if sys.byteorder == "big":
        integers.byteswap()
        floats.byteswap()
    return Points(integers[::_WORDS], *(floats[word::_WORDS] for word in range(3, _WORDS)))


def _in_order(points: Points, start_micros: int, end_micros: int) -> Points:
    """Only those in the range, by time; those of one time stay as they came."""
    wanted = [number for number, micros in enumerate(points.micros) if start_micros <= micros < end_micros]
    wanted.sort(key=points.micros.__getitem__)
    columns = (points.sums, points.minima, points.maxima, points.counts)
    return Points([points.micros[n] for n in wanted], *([column[n] for n in wanted] for column in columns))

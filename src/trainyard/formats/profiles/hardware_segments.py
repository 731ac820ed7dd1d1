"""Segments of hardware samples: append-only files of fixed-size records, behind a header that names the series.

A record is a time in Unix microseconds and one float for each series of the segment, in the order of the header; NaN
stands for a value that the sample lacks. Times increase. A change of the series or of the interval begins a new
segment. A record that a crash cut short does not count, and neither do the zeros that a power cut may leave. Standard
library only: agents write segments, and yards without numpy read them.
"""

import json
import os
import re
import struct
import sys
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from trainyard.formats.profiles.contract import HardwareMetric, HardwareSeries

SEGMENT_BYTES = 4 * 1024 * 1024
# Of one instance. At one sample a second, a machine with two cores writes about 20 MB a day.
LIMIT_BYTES = 256 * 1024 * 1024
WORD_BYTES = 8

_MAGIC = b"TYHARDW1"
# Of a header: the magic, the size of its text, and the checksum of the text. Spaces fill the text up to whole words.
_PREAMBLE = struct.Struct("<8sII")
_MAX_TEXT_BYTES = 4 * 1024 * 1024
_NAME = re.compile(r"([0-9]{20})\.samples")
_TIME = struct.Struct("<q")


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """What a segment holds. `names` are pairs of a metric and a device, as written: newer writers know more metrics."""

    interval_us: int
    names: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, series: Sequence[HardwareSeries], interval_us: int) -> "SegmentHeader":
        return cls(interval_us, tuple((each.metric.value, each.device) for each in series))

    @property
    def record_bytes(self) -> int:
        return (1 + len(self.names)) * WORD_BYTES

    @property
    def series(self) -> dict[HardwareSeries, int]:
        """The series by their column; those of unknown metrics are left out."""
        known = set(HardwareMetric)
        return {
            HardwareSeries(HardwareMetric(metric), device): column
            for column, (metric, device) in enumerate(self.names)
            if metric in known
        }

    def encode(self) -> bytes:
        text = json.dumps({"interval_us": self.interval_us, "series": self.names}, separators=(",", ":")).encode()
        text += b" " * (-len(text) % WORD_BYTES)
        return _PREAMBLE.pack(_MAGIC, len(text), zlib.crc32(text)) + text


@dataclass(frozen=True, slots=True)
class SampleColumns:
    """Samples as columns, in order of time."""

    times_us: Sequence[int]
    values: dict[HardwareSeries, Sequence[float]]


def hardware_segments(folder: Path) -> "list[HardwareSegment]":
    """Return the segments in a folder in order; none if it is missing."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 - polled often, and only the names count
    except FileNotFoundError:
        return []
    numbers = sorted(int(match[1]) for match in map(_NAME.fullmatch, names) if match)
    return [HardwareSegment(segment_file(folder, number)) for number in numbers]


def segment_file(folder: Path, number: int) -> Path:
    return folder / f"{number:020d}.samples"


class HardwareSegment:
    """A snapshot of one segment at its first use; later appends are not seen.

    A segment that is removed meanwhile, or has no complete header, has no samples.
    """

    def __init__(self, file: Path) -> None:
        self.file = file

    @property
    def number(self) -> int:
        return int(self.file.stem)

    @cached_property
    def header(self) -> SegmentHeader | None:
        return self._header_and_size[0]

    @cached_property
    def count(self) -> int:
        """The number of complete samples."""
        if self.header is None:
            return 0
        count = max(0, self._size - self._header_size) // self.header.record_bytes
        # A power cut leaves zeros if the length of a file reached the disk before its bytes.
        while count and self.time_us(count - 1) <= 0:
            count -= 1
        return count

    @property
    def whole_bytes(self) -> int:
        """The size of the header and all complete samples, which no writer takes back."""
        return self._header_size + self.count * self.header.record_bytes if self.header is not None else 0

    def time_us(self, number: int) -> int:
        data = self._read(self._offset(number), _TIME.size)
        return int(_TIME.unpack(data)[0]) if len(data) == _TIME.size else 0

    def number_at(self, time_us: int) -> int:
        """Return the number of the first sample at `time_us` or later; `count` if there is none."""
        return bisect_left(range(self.count), time_us, key=self.time_us)

    def records(self, first: int, stop: int) -> bytes:
        """Return whole records from number `first` on and before `stop`."""
        if self.header is None or stop <= first:
            return b""
        size = self.header.record_bytes
        data = self._read(self._offset(first), (stop - first) * size)
        return data[: len(data) // size * size]

    def columns(self, first: int, stop: int) -> SampleColumns:
        """Return samples from number `first` on and before `stop`, as columns."""
        data = self.records(first, stop)
        if self.header is None or not data:
            return SampleColumns(array("q"), {})
        times, floats = array("q", data), array("d", data)
        if sys.byteorder == "big":
            times.byteswap()
            floats.byteswap()
        words = 1 + len(self.header.names)
        return SampleColumns(
            times[::words], {each: floats[1 + column :: words] for each, column in self.header.series.items()}
        )

    def _offset(self, number: int) -> int:
        assert self.header is not None, "only a segment with a header has samples"
        return self._header_size + number * self.header.record_bytes

    @cached_property
    def _size(self) -> int:
        try:
            return self.file.stat().st_size
        except FileNotFoundError:
            return 0

    @cached_property
    def _header_size(self) -> int:
        return self._header_and_size[1]

    @cached_property
    def _header_and_size(self) -> tuple[SegmentHeader | None, int]:
        preamble = self._read(0, _PREAMBLE.size)
        if len(preamble) < _PREAMBLE.size:
            return None, 0
        magic, size, checksum = _PREAMBLE.unpack(preamble)
        if magic != _MAGIC or size > _MAX_TEXT_BYTES:
            return None, 0
        text = self._read(_PREAMBLE.size, size)
        if len(text) < size or zlib.crc32(text) != checksum:
            return None, 0
        fields = json.loads(text)
        names = tuple((str(metric), str(device)) for metric, device in fields["series"])
        return SegmentHeader(int(fields["interval_us"]), names), _PREAMBLE.size + size

    def _read(self, offset: int, size: int) -> bytes:
        try:
            with self.file.open("rb", buffering=0) as opened:
                return os.pread(opened.fileno(), size, offset)
        except FileNotFoundError:
            return b""

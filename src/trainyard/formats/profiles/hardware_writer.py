"""Writes hardware samples into segments, within a limit of bytes. Standard library only: agents write samples."""

import os
import struct
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from trainyard.formats.profiles.contract import HardwareSeries
from trainyard.formats.profiles.hardware_segments import (
    LIMIT_BYTES,
    SEGMENT_BYTES,
    SegmentHeader,
    hardware_segments,
    segment_file,
)
from trainyard.foundation.files import PRIVATE_FILE, PRIVATE_FOLDER

# However small they are: a series that comes and goes begins a segment each time.
_MAX_SEGMENTS = 512
_MAX_BUFFERED_BYTES = 1 << 20


class HardwareWriter:
    """Appends samples to the segments in a folder, which is created with the first of them.

    `append` only collects; `flush` writes. Beyond the limit, the oldest segments are removed, except the first one: the
    start of a training is worth more than its middle. A full disk loses samples and raises nothing; `lost` counts them.
    One thread uses a writer.
    """

    def __init__(self, folder: Path, *, limit_bytes: int = LIMIT_BYTES, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._segment_bytes = min(segment_bytes, limit_bytes // 4)
        self._header: SegmentHeader | None = None
        self._record = struct.Struct("<q")
        self._buffer = bytearray()
        self._descriptor = -1
        self._size = 0
        # The sizes of the segments by number, the open one last; read from the folder once.
        self._sizes: dict[int, int] | None = None
        self._last_us = 0
        self.lost = 0

    def begin(self, series: Sequence[HardwareSeries], interval_us: int) -> None:
        """From now on, samples have these series at this interval."""
        header = SegmentHeader.of(series, interval_us)
        if header == self._header:
            return
        self.flush()
        self._close_segment()
        self._header = header
        self._record = struct.Struct(f"<q{len(series)}d")

    def append(self, time_us: int, values: Sequence[float]) -> None:
        """Add a sample; `values` are in the order of the series. A time that does not increase loses the sample."""
        assert self._header is not None, "begin comes before the first sample"
        if time_us <= self._last_us or len(self._buffer) >= _MAX_BUFFERED_BYTES:
            self.lost += 1
            return
        self._last_us = time_us
        self._buffer += self._record.pack(time_us, *values)

    def flush(self) -> None:
        """Write what was collected; whole records or none of them."""
        if not self._buffer:
            return
        data, self._buffer = bytes(self._buffer), bytearray()
        try:
            if self._descriptor < 0 or self._size + len(data) > self._segment_bytes:
                self._open_segment()
            self._write(data)
        except OSError:
            self.lost += len(data) // self._record.size

    def close(self) -> None:
        self.flush()
        self._close_segment()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open_segment(self) -> None:
        self._close_segment()
        assert self._header is not None, "there are samples, so they have series"
        self._folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        if self._sizes is None:
            self._sizes = {each.number: each.file.stat().st_size for each in hardware_segments(self._folder)}
        self._remove_old(self._sizes)
        number = max(self._sizes, default=-1) + 1
        file = segment_file(self._folder, number)
        self._descriptor = os.open(
            file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, PRIVATE_FILE
        )
        self._size, self._sizes[number] = 0, 0
        try:
            self._write(self._header.encode())
        except OSError:
            self._close_segment()
            file.unlink()
            del self._sizes[number]
            raise

    def _remove_old(self, sizes: dict[int, int]) -> None:
        """Make room for one more segment."""
        for number in list(sizes)[1:-1]:
            if sum(sizes.values()) + self._segment_bytes <= self._limit_bytes and len(sizes) < _MAX_SEGMENTS:
                return
            segment_file(self._folder, number).unlink(missing_ok=True)
            del sizes[number]

    def _write(self, data: bytes) -> None:
        """Write all of it, or take back what was written and raise OSError."""
        written = 0
        try:
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
        except OSError:
            os.ftruncate(self._descriptor, self._size)
            raise
        self._size += written

    def _close_segment(self) -> None:
        if self._descriptor >= 0:
            assert self._sizes, "an open segment is the last of those that are known"
            os.close(self._descriptor)
            self._descriptor = -1
            self._sizes[max(self._sizes)] = self._size

"""Reads the hardware samples of an instance as numpy arrays."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trainyard.formats.profiles.contract import HardwareSeries
from trainyard.formats.profiles.hardware_segments import HardwareSegment, hardware_segments

_FOREVER_US = 2**62


@dataclass(frozen=True, slots=True)
class HardwareTable:
    """Samples in order of time. A value that a sample lacks is NaN."""

    times_us: NDArray[np.int64]
    series: Mapping[HardwareSeries, NDArray[np.float64]]

    def __len__(self) -> int:
        return len(self.times_us)


def read_hardware(folder: Path, start_us: int = 0, end_us: int = _FOREVER_US) -> HardwareTable:
    """Return the samples from `start_us`, inclusive, to `end_us`, exclusive; empty if there are none.

    The folder may be written to, and its oldest segments removed, meanwhile.
    """
    parts = list(_parts(folder, start_us, end_us))
    times = np.concatenate([part.times_us for part in parts]) if parts else np.empty(0, np.int64)
    columns: dict[HardwareSeries, NDArray[np.float64]] = {}
    first = 0
    for part in parts:
        for series, values in part.series.items():
            if series not in columns:
                columns[series] = np.full(len(times), np.nan)
            columns[series][first : first + len(part)] = values
        first += len(part)
    return HardwareTable(times, columns)


def _parts(folder: Path, start_us: int, end_us: int) -> Iterator[HardwareTable]:
    for segment in hardware_segments(folder):
        part = _part(segment, start_us, end_us)
        if part is not None:
            yield part


def _part(segment: HardwareSegment, start_us: int, end_us: int) -> HardwareTable | None:
    if segment.header is None:
        return None
    data = segment.records(segment.number_at(start_us), segment.number_at(end_us))
    if not data:
        return None
    words = 1 + len(segment.header.names)
    times = np.frombuffer(data, "<i8").reshape(-1, words)[:, 0].astype(np.int64)
    values = np.frombuffer(data, "<f8").reshape(-1, words)
    return HardwareTable(
        times,
        {
            series: np.ascontiguousarray(values[:, 1 + column], np.float64)
            for series, column in segment.header.series.items()
        },
    )

"""Hardware samples are read as they were written, whatever a crash, a full disk or a limit left of the files."""

import errno
import math
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from trainyard.formats.profiles.contract import HardwareMetric, HardwareSeries
from trainyard.formats.profiles.hardware_reader import read_hardware
from trainyard.formats.profiles.hardware_segments import HardwareSegment, hardware_segments
from trainyard.formats.profiles.hardware_summary import (
    SeriesSummary,
    SummaryPeriods,
    latest_values,
    summarize,
    time_range,
)
from trainyard.formats.profiles.hardware_writer import HardwareWriter

CPU = HardwareSeries(HardwareMetric.CPU_PERCENT, "total")
CORE = HardwareSeries(HardwareMetric.CPU_PERCENT, "core0")
MEMORY = HardwareSeries(HardwareMetric.MEMORY_BYTES)
GPU = HardwareSeries(HardwareMetric.GPU_PERCENT, "gpu0")
SECOND = 1_000_000
START = 1_700_000_000 * SECOND


def at(second: float) -> int:
    return START + int(second * SECOND)


def write(folder: Path, values: Sequence[float], *, series: Sequence[HardwareSeries] = (CPU, MEMORY)) -> None:
    """Write one sample per second; each later series has a value twice that of the one before."""
    with HardwareWriter(folder) as writer:
        writer.begin(series, SECOND)
        for second, value in enumerate(values):
            writer.append(at(second), [value * 2**column for column in range(len(series))])


def only_segment(folder: Path) -> Path:
    (segment,) = hardware_segments(folder)
    return segment.file


def test_samples_are_read_as_they_were_written(tmp_path: Path) -> None:
    write(tmp_path / "hardware", [0.1, 50.0, 99.9])

    table = read_hardware(tmp_path / "hardware")

    assert table.times_us.tolist() == [at(0), at(1), at(2)]
    assert table.series[CPU].tolist() == [0.1, 50.0, 99.9]
    assert table.series[MEMORY].tolist() == [0.2, 100.0, 199.8]


def test_a_range_includes_its_start_and_excludes_its_end(tmp_path: Path) -> None:
    write(tmp_path, [0, 1, 2, 3, 4])
    assert read_hardware(tmp_path, at(1), at(3)).series[CPU].tolist() == [1, 2]
    assert read_hardware(tmp_path, at(0.5), at(1.5)).series[CPU].tolist() == [1]
    assert len(read_hardware(tmp_path, at(7), at(9))) == 0


def test_nothing_was_sampled_in_a_folder_that_is_missing_or_empty(tmp_path: Path) -> None:
    assert len(read_hardware(tmp_path / "missing")) == len(read_hardware(tmp_path)) == 0
    assert time_range(tmp_path / "missing") is None


def test_the_last_sample_is_found_if_it_is_recent(tmp_path: Path) -> None:
    assert latest_values(tmp_path, since_us=0) == {}
    write(tmp_path, [1, math.nan, 3, math.nan])
    assert latest_values(tmp_path, since_us=at(3)) == {}
    with HardwareWriter(tmp_path) as writer:
        writer.begin([CPU, GPU], SECOND)
        writer.append(at(4), [7, math.nan])
    assert latest_values(tmp_path, since_us=at(4)) == {CPU: 7}
    assert latest_values(tmp_path, since_us=at(4) + 1) == {}


def test_samples_can_be_read_while_they_are_written(tmp_path: Path) -> None:
    with HardwareWriter(tmp_path) as writer:
        writer.begin([CPU], SECOND)
        writer.append(at(0), [1])
        writer.flush()
        assert len(read_hardware(tmp_path)) == 1
        writer.append(at(1), [2])
        assert len(read_hardware(tmp_path)) == 1
        writer.flush()
        assert read_hardware(tmp_path).series[CPU].tolist() == [1, 2]


def test_series_that_come_and_go_are_nan_where_they_are_missing(tmp_path: Path) -> None:
    with HardwareWriter(tmp_path) as writer:
        writer.begin([CPU], SECOND)
        writer.append(at(0), [1])
        writer.begin([CPU, GPU], SECOND)
        writer.append(at(1), [2, 80])
        writer.begin([CPU], SECOND // 10)
        writer.append(at(1.1), [3])

    table = read_hardware(tmp_path)

    assert len(hardware_segments(tmp_path)) == 3
    assert table.series[CPU].tolist() == [1, 2, 3]
    np.testing.assert_array_equal(table.series[GPU], [math.nan, 80, math.nan])


def test_metrics_of_a_newer_version_are_skipped(tmp_path: Path) -> None:
    write(tmp_path, [1, 2])
    segment = HardwareSegment(only_segment(tmp_path))
    assert segment.header is not None
    newer = type(segment.header)(SECOND, (("invented_percent", ""), *segment.header.names[1:]))
    data = segment.file.read_bytes()
    segment.file.write_bytes(newer.encode() + data[len(segment.header.encode()) :])

    table = read_hardware(tmp_path)

    assert list(table.series) == [MEMORY]
    assert table.series[MEMORY].tolist() == [2, 4]


@pytest.mark.parametrize("cut", range(1, 25))
def test_a_record_that_a_crash_cut_short_does_not_count(tmp_path: Path, cut: int) -> None:
    write(tmp_path, [1, 2, 3])
    file = only_segment(tmp_path)
    os.truncate(file, file.stat().st_size - cut)
    assert read_hardware(tmp_path).series[CPU].tolist() == [1, 2]


def test_zeros_that_a_power_cut_left_do_not_count(tmp_path: Path) -> None:
    write(tmp_path, [1, 2])
    with only_segment(tmp_path).open("ab") as file:
        file.write(bytes(1000))
    assert read_hardware(tmp_path).series[CPU].tolist() == [1, 2]
    assert time_range(tmp_path) == (at(0), at(1))


def test_a_segment_with_a_damaged_header_has_no_samples_and_hides_no_others(tmp_path: Path) -> None:
    write(tmp_path, [1, 2])
    good = only_segment(tmp_path).read_bytes()
    for number, damaged in enumerate(
        [b"", good[:7], good[:20], b"X" + good[1:], good[:18] + b"X" + good[19:]], start=1
    ):
        (tmp_path / f"{number:020d}.samples").write_bytes(damaged)
    (tmp_path / "notes.txt").write_text("not a segment")
    assert read_hardware(tmp_path).series[CPU].tolist() == [1, 2]


def test_a_writer_continues_after_the_segments_of_an_earlier_one(tmp_path: Path) -> None:
    write(tmp_path, [1])
    with HardwareWriter(tmp_path) as writer:
        writer.begin([CPU], SECOND)
        writer.append(at(1), [2])
    assert read_hardware(tmp_path).series[CPU].tolist() == [1, 2]


def test_times_that_do_not_increase_are_lost_and_counted(tmp_path: Path) -> None:
    with HardwareWriter(tmp_path) as writer:
        writer.begin([CPU], SECOND)
        for second in (1, 1, 0, 2):
            writer.append(at(second), [second])
    assert read_hardware(tmp_path).series[CPU].tolist() == [1, 2]
    assert writer.lost == 2


def test_beyond_the_limit_the_oldest_samples_are_removed_but_not_the_first(tmp_path: Path) -> None:
    with HardwareWriter(tmp_path, limit_bytes=16_000, segment_bytes=2_000) as writer:
        writer.begin([CPU], SECOND)
        for second in range(4000):
            writer.append(at(second), [second])
            writer.flush()

    size = sum(segment.file.stat().st_size for segment in hardware_segments(tmp_path))
    values = read_hardware(tmp_path).series[CPU]

    assert size <= 16_000
    assert values[0] == 0
    assert values[-1] == 3999
    assert (np.diff(values) > 1).sum() == 1
    assert writer.lost == 0


def test_changes_of_the_series_cannot_make_any_number_of_segments(tmp_path: Path) -> None:
    with HardwareWriter(tmp_path) as writer:
        for second in range(1200):
            writer.begin([CPU] if second % 2 else [CPU, MEMORY], SECOND)
            writer.append(at(second), [second] if second % 2 else [second, 0])
    assert len(hardware_segments(tmp_path)) <= 512
    assert read_hardware(tmp_path).series[CPU][-1] == 1199


def test_a_full_disk_loses_whole_samples_and_raises_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, room = os.write, 10_000

    # As the kernel answers when a disk has some room left, and then none; only root can have such a disk.
    def write_into_room(descriptor: int, data: bytes) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = real(descriptor, data[:room])
        room -= written
        return written

    monkeypatch.setattr(os, "write", write_into_room)
    with HardwareWriter(tmp_path) as writer:
        writer.begin([CPU], SECOND)
        for second, given in enumerate((10_000, 5, 0, 10_000)):
            room = given
            writer.append(at(second), [second])
            writer.flush()
    assert read_hardware(tmp_path).series[CPU].tolist() == [0, 3]
    assert writer.lost == 2


def summary(folder: Path, start: float, end: float, count: int) -> dict[HardwareSeries, SeriesSummary]:
    return summarize(folder, SummaryPeriods.between(at(start), at(end), count=count))


def test_a_summary_has_the_extremes_and_the_mean_of_each_period(tmp_path: Path) -> None:
    write(tmp_path, [1, 2, 6, 10, 20, 30])
    found = summary(tmp_path, 0, 6, 2)[CPU]
    assert (found.starts_us, found.minima, found.means, found.maxima) == ([at(0), at(3)], [1, 10], [3, 20], [6, 30])


def test_a_summary_leaves_out_periods_and_values_that_are_missing(tmp_path: Path) -> None:
    with HardwareWriter(tmp_path) as writer:
        writer.begin([CPU, GPU], SECOND)
        for second, value in ((0, 1.0), (1, math.nan), (8, math.nan), (9, 5.0)):
            writer.append(at(second), [second, value])
    found = summary(tmp_path, 0, 10, 5)
    assert found[CPU].starts_us == [at(0), at(8)]
    assert found[GPU].starts_us == [at(0), at(8)]
    assert found[GPU].means == [1, 5]


@pytest.mark.parametrize(("samples", "count"), [(10, 3), (1000, 7), (9000, 100)])
def test_a_summary_is_bounded_and_agrees_with_the_samples(tmp_path: Path, samples: int, count: int) -> None:
    values = [float((number * 7919) % 1000) for number in range(samples)]
    write(tmp_path, values, series=(CPU,))

    found = summary(tmp_path, 0, samples, count)[CPU]

    assert len(found.starts_us) <= count
    length_us = found.starts_us[1] - found.starts_us[0]
    for start_us, low, mean, high in zip(found.starts_us, found.minima, found.means, found.maxima, strict=True):
        part = read_hardware(tmp_path, start_us, start_us + length_us).series[CPU]
        assert (low, high) == (part.min(), part.max())
        assert mean == pytest.approx(part.mean())


def test_a_summary_can_be_limited_to_some_metrics(tmp_path: Path) -> None:
    write(tmp_path, [1, 2], series=(CPU, CORE, MEMORY))
    periods = SummaryPeriods.between(at(0), at(2), count=1)
    assert list(summarize(tmp_path, periods, metrics=frozenset({"cpu_percent"}))) == [CORE, CPU]

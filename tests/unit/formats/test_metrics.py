"""Metric points as written, read back by time, and put together by period."""

import math
import os
import subprocess
import sys
import threading
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainyard.formats.metrics import (
    PeriodStatistics,
    Point,
    Points,
    PointsFile,
    aggregate,
    is_percentile,
    is_statistic,
)

TIMES = st.integers(-50, 50)
VALUES = st.integers(-8, 8).map(float)
POINTS = st.one_of(
    st.builds(Point.of, VALUES, TIMES, count=st.integers(1, 4).map(float)),
    st.builds(
        lambda micros, low, high: Point(micros, low + high, min(low, high), max(low, high), 2.0), TIMES, VALUES, VALUES
    ),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(POINTS, max_size=8), max_size=5), TIMES, TIMES)
def test_a_time_range_holds_exactly_its_points_in_whatever_order_they_came(
    appends: list[list[Point]], start: int, end: int
) -> None:
    with TemporaryDirectory() as folder, patch("trainyard.formats.metrics._BATCH_POINTS", 3):
        file = PointsFile(Path(folder) / "series.points")
        for points in appends:
            file.append(points, durable=False)
        batches = list(file.read(start, end))
    expected = [point for point in chain.from_iterable(appends) if start <= point.micros < end]
    read = [point for batch in batches for point in rows(batch)]
    assert sorted(read, key=repr) == sorted(expected, key=repr)
    assert all(list(batch.micros) == sorted(batch.micros) for batch in batches)


@settings(max_examples=200, deadline=None)
@given(st.lists(POINTS, max_size=20), st.integers(1, 30), TIMES)
def test_periods_tell_the_statistics_of_their_points(points: list[Point], period: int, start: int) -> None:
    with TemporaryDirectory() as folder, patch("trainyard.formats.metrics._BATCH_POINTS", 4):
        file = PointsFile(Path(folder) / "series.points")
        file.append(points, durable=False)
        buckets = aggregate(file.read(start, 51), start, period_micros=period, keep_values=True)
    assert [bucket.start_micros for bucket in buckets] == sorted(
        {start + (point.micros - start) // period * period for point in points if start <= point.micros}
    )
    for bucket in buckets:
        inside = [point for point in points if 0 <= point.micros - bucket.start_micros < period]
        assert bucket.statistic("Sum") == sum(point.sum for point in inside)
        assert bucket.statistic("SampleCount") == sum(point.count for point in inside)
        assert bucket.statistic("Minimum") == min(point.minimum for point in inside)
        assert bucket.statistic("Maximum") == max(point.maximum for point in inside)
        average = bucket.statistic("Average")
        assert average is not None
        assert math.isclose(average, sum(point.sum for point in inside) / sum(point.count for point in inside))
        assert bucket.statistic("p50") == median_of(inside)


@pytest.mark.parametrize(
    ("rank", "expected"), [("p0", 1.0), ("p25", 1.0), ("p25.1", 2.0), ("p50", 2.0), ("p90", 9.0), ("p100", 9.0)]
)
def test_a_percentile_is_the_least_value_that_enough_are_not_above(rank: str, expected: float) -> None:
    bucket = PeriodStatistics(0, values=[(9.0, 2.0), (1.0, 1.0), (2.0, 1.0)])
    assert bucket.statistic(rank) == expected


def test_a_percentile_of_unequal_values_put_together_before_is_not_known(tmp_path: Path) -> None:
    file = PointsFile(tmp_path / "series.points")
    file.append([Point.of(1.0, 0), Point(1, 6.0, 1.0, 5.0, 2.0)])
    (bucket,) = aggregate(file.read(0, 10), 0, period_micros=10, keep_values=True)
    assert bucket.statistic("p50") is None
    assert bucket.statistic("Maximum") == 5.0


@pytest.mark.parametrize("name", ["p0", "p0.0", "p5", "p99", "p99.99", "p100", "p100.0"])
def test_percentiles_from_0_to_100_are_statistics(name: str) -> None:
    assert is_percentile(name)
    assert is_statistic(name)


@pytest.mark.parametrize("name", ["", "p", "p101", "p100.1", "p-1", "p1e1", "P50", "p50 ", "tm99", "average", "p٣"])
def test_other_names_are_no_statistics(name: str) -> None:
    assert not is_statistic(name)


def test_a_series_never_written_has_no_points(tmp_path: Path) -> None:
    file = PointsFile(tmp_path / "absent.points")
    assert list(file.read(0, 100)) == []
    assert file.last_micros() is None
    assert aggregate([], 0, period_micros=60) == []


def test_a_series_can_be_read_on_as_it_grows(tmp_path: Path) -> None:
    series = PointsFile(tmp_path / "series")
    assert list(series.tail(0).minima) == []
    series.append([Point.of(value, 9 - number) for number, value in enumerate((3.0, 1.0, 2.0))])
    assert list(series.tail(0, limit=2).minima) == [3.0, 1.0]
    assert list(series.tail(2).minima) == [2.0]
    assert list(series.tail(3).minima) == list(series.tail(9).minima) == []


def test_a_record_cut_short_by_a_crash_does_not_exist_and_the_next_takes_its_place(tmp_path: Path) -> None:
    path = tmp_path / "series.points"
    file = PointsFile(path)
    file.append([Point.of(1.0, 10), Point.of(2.0, 20)])
    os.truncate(path, path.stat().st_size - 5)
    assert [point for batch in file.read(0, 99) for point in rows(batch)] == [Point.of(1.0, 10)]
    file.append([Point.of(3.0, 30)])
    assert [point.sum for batch in file.read(0, 99) for point in rows(batch)] == [1.0, 3.0]
    assert file.last_micros() == 30


def test_a_full_disk_makes_the_series_unavailable_and_keeps_its_points(tmp_path: Path) -> None:
    program = """
import resource, sys
from pathlib import Path
from trainyard.formats.metrics import Point, PointsFile
from trainyard.foundation.errors import Unavailable
resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
file = PointsFile(Path(sys.argv[1]))
file.append([Point.of(1.0, 1)])
try:
    file.append([Point.of(2.0, 2)])
except Unavailable as error:
    print(error)
"""
    path = tmp_path / "series.points"
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True, timeout=60
    )
    assert "cannot be written: File too large" in done.stdout
    assert [point.sum for batch in PointsFile(path).read(0, 99) for point in rows(batch)] == [1.0]
    assert path.stat().st_size == 56


def test_threads_that_append_at_once_lose_no_point(tmp_path: Path) -> None:
    path = tmp_path / "series.points"

    def append(thread: int) -> None:
        for number in range(25):
            PointsFile(path).append([Point.of(float(thread), number)], durable=False)

    threads = [threading.Thread(target=append, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (bucket,) = aggregate(PointsFile(path).read(0, 25), 0, period_micros=25)
    assert bucket.statistic("SampleCount") == 100
    assert bucket.statistic("Sum") == 25 * (0 + 1 + 2 + 3)


def median_of(points: list[Point]) -> float | None:
    if any(point.minimum != point.maximum for point in points):
        return None
    values = sorted(point.minimum for point in points for _ in range(int(point.count)))
    return values[math.ceil(len(values) / 2) - 1]


def rows(points: Points) -> list[Point]:
    columns = (points.micros, points.sums, points.minima, points.maxima, points.counts)
    return [Point(*row) for row in zip(*columns, strict=True)]

"""Values of metrics, as points on disk and as reports."""

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainyard.formats.extraction import MetricScanner
from trainyard.formats.metrics import PointsFile, series_file
from trainyard.instance.agent.reports import Reports
from trainyard.instance.agent.series import MetricSeries
from trainyard.link.contract import FrameKind, MetricSpec
from trainyard.link.spool import SpoolWriter, read_frames

DEFINITIONS = [MetricSpec("loss", "loss=([0-9.]+)"), MetricSpec("train:acc/top 1", "acc=([0-9.]+)")]


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[SpoolWriter]:
    with SpoolWriter(tmp_path / "spool") as opened:
        yield opened


@pytest.fixture
def made(tmp_path: Path, spool: SpoolWriter) -> MetricSeries:
    reports = Reports(spool)
    return MetricSeries(MetricScanner(DEFINITIONS, note=reports.note), tmp_path / "metrics", reports=reports)


def points(folder: Path, name: str) -> list[tuple[int, float]]:
    batches = PointsFile(series_file(folder / "metrics", name)).read(0, 2**62)
    return [pair for batch in batches for pair in zip(batch.micros, batch.sums, strict=True)]


def told(folder: Path) -> list[dict[str, object]]:
    frames = read_frames(folder / "spool", 0).frames
    return [dict(frame.payload) for frame in frames if frame.kind is FrameKind.METRIC]


def test_every_value_is_a_point_with_the_time_it_came(made: MetricSeries, tmp_path: Path) -> None:
    made.write(b"loss=1 acc=0.5\nloss=2\n", 1_000)
    made.write(b"loss=3\n", 2_000)
    assert points(tmp_path, "loss") == [(1_000, 1.0), (1_000, 2.0), (2_000, 3.0)]
    assert points(tmp_path, "train:acc/top 1") == [(1_000, 0.5)]


def test_the_newest_value_is_told_with_how_many_there_were(made: MetricSeries, tmp_path: Path) -> None:
    made.write(b"loss=1\nloss=2\n", 1_000)
    assert told(tmp_path) == [{"name": "loss", "value": 2.0, "at_us": 1_000, "count": 2}]


def test_a_flood_is_told_ten_times_a_second_and_its_last_value_at_the_end(tmp_path: Path, spool: SpoolWriter) -> None:
    hands = iter(number / 1000 for number in range(1, 10_000))
    scanner = MetricScanner(DEFINITIONS, note=pytest.fail)
    made = MetricSeries(scanner, tmp_path / "metrics", reports=Reports(spool), monotonic=lambda: next(hands))
    for number in range(1000):  # a second of that clock
        made.write(f"loss={number}\n".encode(), number)
    assert 9 <= len(told(tmp_path)) <= 11
    made.finish()
    assert told(tmp_path)[-1] == {"name": "loss", "value": 999.0, "at_us": 999, "count": 1000}
    assert len(points(tmp_path, "loss")) == 1000


def test_a_last_line_without_an_end_counts(made: MetricSeries, tmp_path: Path) -> None:
    made.write(b"loss=4", 1_000)
    assert told(tmp_path) == []
    made.finish()
    assert [each["value"] for each in told(tmp_path)] == [4.0]


def test_what_is_no_number_is_noted_at_the_end(tmp_path: Path, spool: SpoolWriter) -> None:
    scanner = MetricScanner([MetricSpec("loss", "loss=(.*)")], note=pytest.fail)
    made = MetricSeries(scanner, tmp_path / "metrics", reports=Reports(spool))
    made.write(f"loss={math.nan}\n".encode(), 1)
    made.finish()
    metric, note = read_frames(tmp_path / "spool", 0).frames
    assert (metric.payload["count"], metric.payload["has_lapsed"]) == (0, True)
    assert note.kind is FrameKind.NOTE
    assert "Metric loss captured something that is not a finite number 1 times" in note.payload["text"]


@pytest.mark.parametrize(("last", "has_lapsed"), [("nan", True), ("-inf", True), ("1e999", True), ("3", False)])
def test_a_training_that_has_diverged_is_told_from_one_that_came_back(
    tmp_path: Path, spool: SpoolWriter, last: str, has_lapsed: bool
) -> None:
    scanner = MetricScanner([MetricSpec("loss", "loss=(.*)")], note=pytest.fail)
    made = MetricSeries(scanner, tmp_path / "metrics", reports=Reports(spool))
    made.write(f"loss=2\nloss=nan\nloss={last}\n".encode(), 1)
    made.finish()
    assert told(tmp_path)[-1].get("has_lapsed", False) is has_lapsed
    assert told(tmp_path)[-1]["value"] == (2.0 if has_lapsed else 3.0)


def test_a_name_of_any_length_and_characters_has_a_file_of_its_own(tmp_path: Path) -> None:
    names = ["a/b", "a%2Fb", "é" * 255, "é" * 254, "x" * 255, "..", "a b", "."]
    files = {series_file(tmp_path, name) for name in names}
    assert len(files) == len(names)
    assert {file.parent for file in files} == {tmp_path}
    assert all(len(file.name) <= 255 for file in files)

"""Values of metrics, as points on disk and as reports."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from trainyard.formats.metrics import PointsFile, series_file
from trainyard.instance.agent.reports import Reports
from trainyard.instance.agent.watch.metric_series import MetricSeries
from trainyard.link.contract import FrameKind
from trainyard.link.spool import SpoolWriter, read_frames


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[SpoolWriter]:
    with SpoolWriter(tmp_path / "spool") as opened:
        yield opened


@pytest.fixture
def made(tmp_path: Path, spool: SpoolWriter) -> MetricSeries:
    return MetricSeries(tmp_path / "metrics", reports=Reports(spool))


def points(folder: Path, name: str) -> list[tuple[int, float]]:
    batches = PointsFile(series_file(folder / "metrics", name)).read(0, 2**62)
    return [pair for batch in batches for pair in zip(batch.micros, batch.sums, strict=True)]


def told(folder: Path) -> list[dict[str, object]]:
    frames = read_frames(folder / "spool", 0).frames
    return [dict(frame.payload) for frame in frames if frame.kind is FrameKind.METRIC]


def notes(folder: Path) -> list[str]:
    frames = read_frames(folder / "spool", 0).frames
    return [frame.payload["text"] for frame in frames if frame.kind is FrameKind.NOTE]


def test_every_value_is_a_point_with_the_time_it_came(made: MetricSeries, tmp_path: Path) -> None:
    made.add("loss", [1.0, 2.0], 1_000)
    made.add("train:acc/top 1", [0.5], 1_000)
    made.add("loss", [3.0], 2_000)
    assert points(tmp_path, "loss") == [(1_000, 1.0), (1_000, 2.0), (2_000, 3.0)]
    assert points(tmp_path, "train:acc/top 1") == [(1_000, 0.5)]


def test_the_newest_value_is_reported_with_the_number_and_the_range_of_all(made: MetricSeries, tmp_path: Path) -> None:
    made.add("loss", [1.0, 3.0], 1_000)
    made.add("loss", [2.0], 2_000)
    made.report()
    assert told(tmp_path) == [{"name": "loss", "value": 2.0, "at_us": 2_000, "count": 3, "lowest": 1.0, "highest": 3.0}]


def test_a_flood_of_values_is_reported_ten_times_a_second_and_its_last_value_at_the_end(
    tmp_path: Path, spool: SpoolWriter
) -> None:
    hands = iter(number / 1000 for number in range(1, 10_000))
    made = MetricSeries(tmp_path / "metrics", reports=Reports(spool), monotonic=lambda: next(hands))
    for number in range(1000):  # a second of that clock
        made.add("loss", [float(number)], number)
        made.report()
    assert 9 <= len(told(tmp_path)) <= 11
    made.finish()
    last = told(tmp_path)[-1]
    assert (last["value"], last["at_us"], last["count"]) == (999.0, 999, 1000)
    assert len(points(tmp_path, "loss")) == 1000


def test_a_metric_that_diverged_before_its_first_value_is_distinguished_from_one_that_never_came(
    made: MetricSeries, tmp_path: Path
) -> None:
    made.lapse("loss")
    made.finish()
    assert [(each["name"], each["count"], each["has_lapsed"]) for each in told(tmp_path)] == [("loss", 0, True)]


def test_points_are_bounded_for_each_series_and_for_all_while_values_are_still_counted(
    tmp_path: Path, spool: SpoolWriter
) -> None:
    made = MetricSeries(tmp_path / "metrics", reports=Reports(spool), max_points=5, max_total_points=8)
    for number in range(4):
        made.add("loss", [float(number)] * 2, number)
        made.add("acc", [float(number)] * 2, number)
    made.finish()
    assert (len(points(tmp_path, "loss")), len(points(tmp_path, "acc"))) == (4, 4)
    assert {each["name"]: (each["value"], each["count"]) for each in told(tmp_path)} == {
        "loss": (3.0, 8),
        "acc": (3.0, 8),
    }
    made.add("loss", [9.0], 9)
    assert len(points(tmp_path, "loss")) == 4
    assert [text for text in notes(tmp_path) if text.startswith("Metric loss has 8 values, of which the first 4 are")]


def test_a_series_that_is_full_leaves_the_room_of_others(tmp_path: Path, spool: SpoolWriter) -> None:
    made = MetricSeries(tmp_path / "metrics", reports=Reports(spool), max_points=5, max_total_points=8)
    made.add("loss", [1.0] * 100, 1)
    made.add("acc", [1.0] * 3, 1)
    assert (len(points(tmp_path, "loss")), len(points(tmp_path, "acc"))) == (5, 3)


def test_a_name_of_any_length_and_characters_has_a_file_of_its_own(tmp_path: Path) -> None:
    names = ["a/b", "a%2Fb", "é" * 255, "é" * 254, "x" * 255, "..", "a b", "."]
    files = {series_file(tmp_path, name) for name in names}
    assert len(files) == len(names)
    assert {file.parent for file in files} == {tmp_path}
    assert all(len(file.name) <= 255 for file in files)

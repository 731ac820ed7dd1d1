"""Metrics in the files of a program: read line by line, whatever else the program puts there."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.instance.agent.watch.test_metric_series import notes, points, told
from trainyard.instance.agent.reports import Reports, now_us
from trainyard.instance.agent.watch.metric_files import MAX_NAMES, METRICS_FOLDER, MetricFiles
from trainyard.instance.agent.watch.metric_series import MetricSeries
from trainyard.link.spool import SpoolWriter


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[SpoolWriter]:
    with SpoolWriter(tmp_path / "spool") as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "ml" / METRICS_FOLDER
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def files(tmp_path: Path, folder: Path, spool: SpoolWriter) -> MetricFiles:
    assert folder.exists()
    reports = Reports(spool)
    return MetricFiles(tmp_path / "ml", MetricSeries(tmp_path / "metrics", reports=reports), reports=reports)


def line(name: str, value: object, **more: object) -> str:
    return json.dumps({"MetricName": name, "Value": value, **more}) + "\n"


def values(tmp_path: Path, name: str) -> list[float]:
    return [value for _, value in points(tmp_path, name)]


def test_lines_are_read_as_they_come_and_once(tmp_path: Path, folder: Path, files: MetricFiles) -> None:
    at_s = now_us() // 1_000_000 - 60
    file = folder / "7.json"
    file.write_text(line("loss", 2.0, Timestamp=at_s, IterationNumber=0) + line("loss", 1.0)[:10])
    files.poll(0.0)
    assert points(tmp_path, "loss") == [(at_s * 1_000_000, 2.0)]
    with file.open("a") as opened:
        opened.write(line("loss", 1.0)[10:])
    (folder / "8.json").write_text(line("acc", 0.5))
    files.poll(0.5)
    assert values(tmp_path, "loss") == [2.0]
    files.poll(1.0)
    files.poll(2.0)
    assert (values(tmp_path, "loss"), values(tmp_path, "acc")) == ([2.0, 1.0], [0.5])
    assert {each["name"] for each in told(tmp_path)} == {"loss", "acc"}


def test_what_is_no_metric_is_left_out_and_noted_once(tmp_path: Path, folder: Path, files: MetricFiles) -> None:
    odd = ["no json\n", "[]\n", "null\n", line("", 1), line("x\ty", 1), line("x", "many"), line("x", None), "[" * 5000]
    (folder / "1.json").write_text("".join(odd) + "\n" + line("loss", 1.0, Timestamp=1e300))
    (folder / "notes.txt").write_text(line("other", 1.0))
    (folder / "2.json").mkdir()
    files.poll(0.0)
    files.finish()
    assert values(tmp_path, "loss") == [1.0]
    assert values(tmp_path, "other") == []
    assert len(notes(tmp_path)) == 1


def test_long_files_are_read_piece_by_piece_to_their_end(tmp_path: Path, folder: Path, files: MetricFiles) -> None:
    (folder / "1.json").write_text("".join(line("loss", float(step)) for step in range(20_000)))
    files.poll(0.0)
    first = len(values(tmp_path, "loss"))
    assert 0 < first < 20_000
    files.poll(0.0)
    assert len(values(tmp_path, "loss")) > first
    files.finish()
    assert values(tmp_path, "loss") == [float(step) for step in range(20_000)]


def test_the_number_of_metrics_is_limited(tmp_path: Path, folder: Path, files: MetricFiles) -> None:
    (folder / "1.json").write_text("".join(line(f"m{number}", 1.0) for number in range(MAX_NAMES + 5)))
    files.finish()
    assert values(tmp_path, f"m{MAX_NAMES - 1}") == [1.0]
    assert values(tmp_path, f"m{MAX_NAMES}") == []
    assert f"more than {MAX_NAMES} metrics" in notes(tmp_path)[0]


def test_links_lead_nowhere(tmp_path: Path, folder: Path, files: MetricFiles) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text(line("stolen", 1.0))
    (folder / "1.json").symlink_to(secret)
    files.poll(0.0)
    folder.rename(tmp_path / "moved")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "2.json").write_text(line("stolen", 1.0))
    folder.symlink_to(elsewhere)
    files.finish()
    assert values(tmp_path, "stolen") == []

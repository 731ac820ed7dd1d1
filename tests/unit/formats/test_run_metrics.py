from pathlib import Path

from trainyard.formats.run_metrics import RECORD_BYTES, RunMetrics, RunPoint

POINTS = [RunPoint("loss", 5, 0.5, 0), RunPoint("größe\n", 6, -1e300), RunPoint("loss", 4, float("inf"), 1)]


def test_points_come_back_in_the_order_in_which_they_were_appended(tmp_path: Path) -> None:
    metrics = RunMetrics(tmp_path / "run")
    metrics.append(POINTS[:2])
    metrics.append(POINTS[2:])
    metrics.sync()
    assert list(RunMetrics(tmp_path / "run").read_all()) == POINTS
    assert metrics.names() == ["loss", "größe\n"]


def test_reading_continues_at_an_offset(tmp_path: Path) -> None:
    metrics = RunMetrics(tmp_path)
    assert metrics.read(0).end == 0
    metrics.append(POINTS[:2])
    first = metrics.read(0)
    assert (list(first.points), first.end) == (POINTS[:2], 2 * RECORD_BYTES)
    assert metrics.read(first.end).points == []
    metrics.append(POINTS[2:])
    assert list(metrics.read(first.end).points) == POINTS[2:]


def test_what_a_crash_cut_short_does_not_count_and_is_replaced(tmp_path: Path) -> None:
    RunMetrics(tmp_path).append(POINTS)
    for name, torn in (("run.points", b"\x01" * (RECORD_BYTES - 1)), ("run.names", b'"new')):
        with (tmp_path / name).open("ab") as file:
            file.write(torn)
    reopened = RunMetrics(tmp_path)
    assert list(reopened.read_all()) == POINTS
    added = [RunPoint("other", 7, 1.0, 2), RunPoint("loss", 8, 2.0)]
    reopened.append(added)
    assert list(RunMetrics(tmp_path).read_all()) == POINTS + added


def test_points_whose_name_was_lost_are_left_out(tmp_path: Path) -> None:
    RunMetrics(tmp_path).append(POINTS)
    names = tmp_path / "run.names"
    names.write_bytes(names.read_bytes()[:-3])
    assert [point.name for point in RunMetrics(tmp_path).read_all()] == ["loss", "loss"]

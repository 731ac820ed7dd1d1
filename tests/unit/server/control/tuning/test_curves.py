from pathlib import Path

from trainyard.formats.metrics import Point, PointsFile, series_file
from trainyard.link.folders import AttemptRef, InstanceRef
from trainyard.server.control.tuning import curves
from trainyard.server.control.tuning.curves import LiveCurve
from trainyard.server.records.contract import ResourceId

JOB = ResourceId("job")


def report(jobs: Path, *values: float, attempt: int = 1, instance: str = "algo-1", micros: int = 1) -> None:
    folder = InstanceRef(AttemptRef(JOB, attempt), instance).folder(jobs)
    PointsFile(series_file(folder.metrics, "loss")).append([Point.of(each, micros) for each in values], durable=False)


def test_a_curve_is_read_on_where_the_last_look_ended(tmp_path: Path) -> None:
    curve = LiveCurve(tmp_path, JOB, "loss")
    assert not curve.read()
    report(tmp_path, 0.5, 0.4)
    assert curve.read()
    assert not curve.read()
    report(tmp_path, 0.3)
    assert curve.read()
    assert curve.values == [0.5, 0.4, 0.3]


def test_the_attempts_of_a_job_follow_each_other(tmp_path: Path) -> None:
    curve = LiveCurve(tmp_path, JOB, "loss")
    report(tmp_path, 0.5)
    curve.read()
    report(tmp_path, 0.4)  # after the last look, and before the next attempt
    report(tmp_path, 0.3, attempt=2)
    report(tmp_path, 0.2, attempt=3)
    assert curve.read()
    assert curve.values == [0.5, 0.4, 0.3, 0.2]
    again = LiveCurve(tmp_path, JOB, "loss")
    again.read()
    assert again.values == curve.values


def test_an_attempt_that_reported_nothing_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / JOB / "1" / "algo-1").mkdir(parents=True)
    report(tmp_path, 0.3, attempt=2)
    curve = LiveCurve(tmp_path, JOB, "loss")
    assert curve.read()
    assert curve.values == [0.3]


def test_of_several_instances_the_first_that_reports_counts(tmp_path: Path) -> None:
    report(tmp_path, 0.5, instance="algo-1", micros=9)
    report(tmp_path, 0.4, instance="algo-2", micros=5)
    curve = LiveCurve(tmp_path, JOB, "loss")
    curve.read()
    report(tmp_path, 0.3, instance="algo-1", micros=10)
    assert not curve.read()
    assert curve.values == [0.4]


def test_a_flood_of_reports_is_cut_off(tmp_path: Path) -> None:
    report(tmp_path, *[0.5] * (curves.MAX_REPORTS + 10))
    curve = LiveCurve(tmp_path, JOB, "loss")
    curve.read()
    assert len(curve.values) == curves.MAX_REPORTS
    assert not curve.read()

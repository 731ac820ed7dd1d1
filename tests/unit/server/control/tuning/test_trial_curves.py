import math
from dataclasses import replace
from pathlib import Path

from trainyard.formats.metrics import Point, PointsFile, series_file
from trainyard.foundation.jobs.tuning import TrialStatus, TuningTrial
from trainyard.link.folders import AttemptRef, InstanceRef
from trainyard.server.control.tuning.trial_curves import (
    MAX_POINTS,
    MAX_TUNING_JOBS,
    CurveTable,
    ReducedCurve,
    TrialCurves,
    reduce_curve,
)
from trainyard.server.records.contract import ResourceId

RUNNING = TuningTrial(1, "t-1", "", {}, TrialStatus.IN_PROGRESS, job_id="job-1")


def report(jobs: Path, *values: float, job: str = "job-1") -> None:
    folder = InstanceRef(AttemptRef(ResourceId(job), 1), "algo-1").folder(jobs)
    PointsFile(series_file(folder.metrics, "loss")).append([Point.of(each, 1) for each in values], durable=False)


def read(curves: TrialCurves, jobs: Path, *trials: TuningTrial, study: str = "s") -> CurveTable:
    return curves.read(jobs, study, [(each, "loss") for each in trials])


def test_a_curve_grows_and_its_change_tells_so(tmp_path: Path) -> None:
    curves, other = TrialCurves(), replace(RUNNING, number=2, job_id="job-2")
    assert read(curves, tmp_path, RUNNING).curves == []
    report(tmp_path, 0.5, 0.4)
    report(tmp_path, 0.9, job="job-2")
    first = read(curves, tmp_path, RUNNING, other)
    assert [(each.number, each.values) for each in first.curves] == [(1, (0.5, 0.4)), (2, (0.9,))]
    report(tmp_path, 0.3)
    second = read(curves, tmp_path, RUNNING, other)
    assert second.id == first.id
    assert second.curves[0].values == (0.5, 0.4, 0.3)
    newest = max(each.change for each in first.curves)
    assert [each.number for each in second.curves if each.change > newest] == [1]


def test_a_trial_that_has_ended_is_read_once_more_and_then_never(tmp_path: Path) -> None:
    curves, ended = TrialCurves(), replace(RUNNING, status=TrialStatus.COMPLETED)
    report(tmp_path, 0.5)
    read(curves, tmp_path, RUNNING)
    report(tmp_path, 0.4)
    assert read(curves, tmp_path, ended).curves[0].values == (0.5, 0.4)
    report(tmp_path, 0.3)
    assert read(curves, tmp_path, ended).curves[0].values == (0.5, 0.4)


def test_a_stored_curve_needs_no_files(tmp_path: Path) -> None:
    ended = replace(RUNNING, status=TrialStatus.STOPPED, curve=(0.5, math.nan, 0.25))
    (curve,) = read(TrialCurves(), tmp_path, ended).curves
    assert (curve.total, curve.reports, curve.values) == (3, (1, 3), (0.5, 0.25))
    assert curve.change > 0


def test_a_long_curve_keeps_its_ends_and_its_extremes(tmp_path: Path) -> None:
    values = [math.sin(step / 50) for step in range(5000)]
    values[1234] = 9.0
    report(tmp_path, *values)
    (curve,) = read(TrialCurves(), tmp_path, RUNNING).curves
    assert curve.total == 5000
    assert len(curve.values) <= MAX_POINTS
    short = reduce_curve(curve, 20)
    assert len(short.values) <= 20
    assert (short.reports[0], short.reports[-1], max(short.values)) == (1, 5000, 9.0)
    assert reduce_curve(ReducedCurve(1, 2, (1, 2), (0.5, 0.4)), 20).values == (0.5, 0.4)


def test_only_the_tuning_jobs_that_were_viewed_last_stay_in_memory(tmp_path: Path) -> None:
    curves = TrialCurves()
    first = read(curves, tmp_path, RUNNING, study="0")
    for number in range(1, MAX_TUNING_JOBS + 1):
        read(curves, tmp_path, RUNNING, study=str(number))
    assert read(curves, tmp_path, RUNNING, study="0").id != first.id

from typing import Any

import pytest

from tests.unit._sdk.resume_drill.runs import losses, run
from tests.unit._sdk.resume_drill.test_jobs import JOB
from tests.unit.recording import RecordingApi
from trainyard._sdk.resume_drill import drill as module
from trainyard._sdk.resume_drill.drill import EARLIEST_SHARE, LATEST_SHARE, DrillResult, run_drill
from trainyard._sdk.resume_drill.runs import DrillRun, InterruptionPoint
from trainyard._sdk.resume_drill.verdict import ResumeOutcome


def drilled(api: RecordingApi, job: dict[str, Any] = JOB) -> DrillResult:
    return run_drill(api, job, bucket="mine", seed=3, tolerance=0.0, report=lambda _: None)


def test_a_job_without_checkpoints_is_not_run() -> None:
    api = RecordingApi()
    found = drilled(api, {name: value for name, value in JOB.items() if name != "CheckpointConfig"})
    assert (found.verdict.outcome, found.runs, api.asked) == (ResumeOutcome.NO_CONFIG, (), [])


def test_the_second_run_is_interrupted_halfway_through_the_time_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs are simulated; tests/system runs real ones."""
    whole, again = run(losses(1, 40), metrics={"loss": 1.0}), run(losses(1, 20), losses(18, 40), metrics={"loss": 1.0})
    points: list[InterruptionPoint] = []

    def interrupted(api: object, request: dict[str, Any], job: object, *, point: InterruptionPoint) -> DrillRun:
        assert request["EnableManagedSpotTraining"]
        assert {"Key": "trainyard:engine", "Value": "ray"} in request["Tags"]
        points.append(point)
        return with_details(again)

    monkeypatch.setattr(module, "run_whole", lambda *_: with_details(whole))
    monkeypatch.setattr(module, "run_interrupted", interrupted)
    found = drilled(RecordingApi(DescribeJob={"Engine": "ray"}))
    assert found.verdict.outcome is ResumeOutcome.EXACT
    (point,) = points
    assert EARLIEST_SHARE <= point.share <= LATEST_SHARE
    assert point.lines == 40
    assert [job.job_name.rpartition("-")[2] for job in found.jobs] == ["whole", "interrupted"]


def test_a_run_that_fails_by_itself_ends_the_drill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "run_whole", lambda *_: run(["boom"], status="Failed", FailureReason="no"))
    found = drilled(RecordingApi(DescribeJob={"Engine": "ray"}))
    assert (found.verdict.outcome, len(found.runs), len(found.jobs)) == (ResumeOutcome.UNCLEAR, 1, 1)


def with_details(found: DrillRun) -> DrillRun:
    return DrillRun(found.description, {**found.details, "Artifacts": []}, found.lines, found.checkpoint_files)

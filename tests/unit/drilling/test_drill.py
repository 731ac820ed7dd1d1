from typing import Any

import pytest

from tests.unit.drilling.runs import losses, run
from tests.unit.drilling.test_definition import JOB
from tests.unit.recording import RecordingApi
from trainyard.drilling import drill as module
from trainyard.drilling.drill import EARLIEST, LATEST, Drilled, drill
from trainyard.drilling.runs import Moment, Run
from trainyard.drilling.verdict import Finding


def drilled(api: RecordingApi, job: dict[str, Any] = JOB) -> Drilled:
    return drill(api, job, bucket="mine", seed=3, tolerance=0.0, tell=lambda _: None)


def test_a_job_without_checkpoints_is_not_run() -> None:
    api = RecordingApi()
    found = drilled(api, {name: value for name, value in JOB.items() if name != "CheckpointConfig"})
    assert (found.verdict.finding, found.runs, api.asked) == (Finding.NO_CONFIG, (), [])


def test_the_second_run_is_interrupted_in_the_midst_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs are played, since what they do is tests/system's to try."""
    whole, again = run(losses(1, 40), metrics={"loss": 1.0}), run(losses(1, 20), losses(18, 40), metrics={"loss": 1.0})
    moments: list[Moment] = []

    def interrupted(api: object, request: dict[str, Any], places: object, *, moment: Moment) -> Run:
        assert request["EnableManagedSpotTraining"]
        assert {"Key": "trainyard:engine", "Value": "ray"} in request["Tags"]
        moments.append(moment)
        return with_details(again)

    monkeypatch.setattr(module, "run_whole", lambda *_: with_details(whole))
    monkeypatch.setattr(module, "run_interrupted", interrupted)
    found = drilled(RecordingApi(DescribeJob={"Engine": "ray"}))
    assert found.verdict.finding is Finding.EXACT
    (moment,) = moments
    assert EARLIEST <= moment.share <= LATEST
    assert moment.lines == 40
    assert [places.job_name.rpartition("-")[2] for places in found.places] == ["whole", "interrupted"]


def test_a_run_that_fails_by_itself_ends_the_drill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "run_whole", lambda *_: run(["boom"], status="Failed", FailureReason="no"))
    found = drilled(RecordingApi(DescribeJob={"Engine": "ray"}))
    assert (found.verdict.finding, len(found.runs), len(found.places)) == (Finding.UNCLEAR, 1, 1)


def with_details(found: Run) -> Run:
    return Run(found.description, {**found.details, "Artifacts": []}, found.lines, found.kept)

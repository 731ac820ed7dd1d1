import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit._sdk.training.test_replay import DESCRIBED
from tests.unit.cli.conftest import Trainyard
from tests.unit.recording import RecordingApi
from trainyard.cli.debugger import replay as module

RECORD = "debug/mnist/debug-output/records/worker_0/000000000412/record.json"


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> RecordingApi:
    def described(asked: dict[str, Any]) -> dict[str, Any]:
        ended = {"TrainingJobStatus": "Completed", "SecondaryStatus": "Completed"}
        return {**DESCRIBED, **ended, "TrainingJobName": asked["TrainingJobName"]}

    records = {"Contents": [{"Key": RECORD}]}
    api = RecordingApi(DescribeTrainingJob=described, DescribeJob={"Engine": "ray"}, ListObjectsV2=records)

    @contextlib.contextmanager
    def calls(_: Path | None) -> Iterator[RecordingApi]:
        yield api

    monkeypatch.setattr(module, "open_api", calls)
    return api


def test_the_recorded_steps_are_listed(trainyard: Trainyard, api: RecordingApi) -> None:
    said = trainyard("replay", "mnist")
    assert (said.code, said.out) == (0, "412\n")


def test_a_step_is_run_again_by_a_job_of_its_own(trainyard: Trainyard, api: RecordingApi) -> None:
    said = trainyard("replay", "mnist", "--step", "412")
    assert said.code == 0
    assert "replays step 412 of mnist." in said.err
    asked = api.only("CreateTrainingJob")
    assert asked["Environment"]["TRAINYARD_REPLAY"] == "412"
    assert asked["Tags"] == [{"Key": "trainyard:engine", "Value": "ray"}]


def test_a_step_that_was_not_recorded_is_refused_with_those_that_were(trainyard: Trainyard, api: RecordingApi) -> None:
    said = trainyard("replay", "mnist", "--step", "7")
    assert said.code == 4
    assert "mnist did not record step 7; it has 412." in said.err
    api.answers["ListObjectsV2"] = {}
    assert "Steps are recorded when a rule finds an issue." in trainyard("replay", "mnist").err

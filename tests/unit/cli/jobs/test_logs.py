from contextlib import nullcontext
from typing import Any

import pytest

from tests.unit.cli.conftest import Trainyard
from tests.unit.recording import RecordingApi


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> RecordingApi:
    recording = RecordingApi(
        DescribeTrainingJob={"TrainingJobName": "mnist", "ResourceConfig": {"InstanceCount": 2}},
        DescribeLogStreams={"logStreams": []},
    )
    monkeypatch.setattr("trainyard.cli.jobs.logs.open_api", lambda _: nullcontext(recording))
    return recording


def test_an_instance_that_the_job_does_not_have_is_not_found(trainyard: Trainyard, api: RecordingApi) -> None:
    result = trainyard("logs", "mnist", "--instance", "algo-9")

    assert result.code == 4
    assert 'Training job "mnist" has no instance "algo-9".' in result.err
    assert "It has algo-1 to algo-2." in result.err


def test_an_empty_log_is_said_to_be_empty(trainyard: Trainyard, api: RecordingApi) -> None:
    result = trainyard("logs", "mnist")
    assert (result.code, result.out) == (0, "")
    assert result.err == 'The log of training job "mnist" is empty.\n'

    def one_page(asked: dict[str, Any]) -> dict[str, Any]:
        is_first = "nextToken" not in asked
        return {"events": [{"timestamp": 0, "message": "hello"}] * is_first, "nextForwardToken": "f/1"}

    api.answers |= {
        "DescribeLogStreams": {"logStreams": [{"logStreamName": "mnist/algo-1-1700000000"}]},
        "GetLogEvents": one_page,
    }
    assert "hello" in trainyard("logs", "mnist").out
    assert trainyard("logs", "mnist", "--instance", "algo-2").err == (
        'The log of training job "mnist" is empty for algo-2.\n'
    )

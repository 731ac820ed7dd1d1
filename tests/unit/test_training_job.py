from datetime import UTC, datetime
from typing import Any

import pytest

from tests.unit.recording import RecordingApi
from trainyard.exceptions import CapacityError, UnexpectedStatusException
from trainyard.training_job import TrainingJob, detached, require_completed


def ended(status: str, **more: Any) -> dict[str, Any]:
    return {
        "TrainingJobName": "mnist-7",
        "TrainingJobStatus": status,
        "CreationTime": datetime(2026, 11, 15, tzinfo=UTC),
        "ResourceConfig": {"InstanceCount": 1},
    } | more


def test_a_job_is_known_by_either_name() -> None:
    job = TrainingJob(RecordingApi(), "mnist-7")
    assert (job.name, job.job_name) == ("mnist-7", "mnist-7")


def test_a_failure_says_which_job_and_why() -> None:
    with pytest.raises(UnexpectedStatusException, match='"mnist-7" is Failed') as raised:
        require_completed(ended("Failed", FailureReason="AlgorithmError: no data"))
    assert "AlgorithmError: no data" in str(raised.value)
    assert raised.value.actual_status == "Failed"
    assert raised.value.allowed_statuses == ("Completed",)


def test_to_be_stopped_is_no_success() -> None:
    with pytest.raises(UnexpectedStatusException) as raised:
        require_completed(ended("Stopped"))
    assert raised.value.actual_status == "Stopped"


def test_lack_of_room_is_an_error_of_its_own() -> None:
    with pytest.raises(CapacityError):
        require_completed(ended("Failed", FailureReason="CapacityError: none left"))


def test_waiting_for_a_failed_job_raises_after_its_lines_were_shown(capsys: pytest.CaptureFixture[str]) -> None:
    api = RecordingApi(
        DescribeTrainingJob=ended("Failed", FailureReason="AlgorithmError"),
        DescribeLogStreams={"logStreams": [{"logStreamName": "mnist-7/algo-1-1"}]},
        GetLogEvents=lambda asked: {
            "events": [] if "nextToken" in asked else [{"timestamp": 1, "message": "last words"}],
            "nextForwardToken": "t",
        },
    )
    with pytest.raises(UnexpectedStatusException):
        TrainingJob(api, "mnist-7").wait()
    assert "last words\n" in capsys.readouterr().out


def test_waiting_without_logs_asks_for_none(capsys: pytest.CaptureFixture[str]) -> None:
    api = RecordingApi(DescribeTrainingJob=ended("Completed"))
    TrainingJob(api, "mnist-7").wait(logs=False)
    assert {operation for operation, _ in api.asked} == {"DescribeTrainingJob"}
    assert '"mnist-7" is Completed' in capsys.readouterr().out


def test_an_interrupt_says_how_to_come_back(capsys: pytest.CaptureFixture[str]) -> None:
    asked_before = []

    def interrupt(asked: dict[str, Any]) -> dict[str, Any]:
        asked_before.append(asked)
        if len(asked_before) > 1:
            raise KeyboardInterrupt
        return ended("InProgress")

    with pytest.raises(KeyboardInterrupt):
        TrainingJob(RecordingApi(DescribeTrainingJob=interrupt), "mnist-7").wait()
    assert detached("mnist-7") in capsys.readouterr().out
    assert "trainyard logs -f mnist-7" in detached("mnist-7")

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.unit.recording import RecordingApi
from trainyard._sdk.training.job import TrainingJobHandle, detached_message, instance_count, require_no_failure
from trainyard.exceptions import CapacityError, UnexpectedStatusException

DETAILS: dict[str, Any] = {"Artifacts": [], "Cost": 0.0}
ENDED = {"kind": "ended", "status": "Completed", "cursor": "1"}


def ended(status: str, **more: Any) -> dict[str, Any]:
    return {
        "TrainingJobName": "mnist-7",
        "TrainingJobStatus": status,
        "CreationTime": datetime(2026, 11, 15, tzinfo=UTC),
        "ResourceConfig": {"InstanceCount": 1},
    } | more


def test_a_job_is_known_by_either_name() -> None:
    job = TrainingJobHandle(RecordingApi(), "mnist-7")
    assert (job.name, job.job_name) == ("mnist-7", "mnist-7")


def test_a_failure_says_which_job_and_why() -> None:
    with pytest.raises(UnexpectedStatusException, match='"mnist-7" is Failed') as raised:
        require_no_failure(ended("Failed", FailureReason="AlgorithmError: no data"), DETAILS)
    assert "AlgorithmError: no data" in str(raised.value)
    assert raised.value.actual_status == "Failed"
    assert raised.value.allowed_statuses == ("Completed", "Stopped")


@pytest.mark.parametrize("status", ["Completed", "Stopped"])
def test_a_job_that_has_not_failed_raises_nothing(status: str) -> None:
    require_no_failure(ended(status), DETAILS)


def test_lack_of_room_is_an_error_of_its_own() -> None:
    with pytest.raises(CapacityError):
        require_no_failure(ended("Failed", FailureReason="CapacityError: none left"), DETAILS)


def test_waiting_for_a_failed_job_raises_after_its_lines_were_shown(capsys: pytest.CaptureFixture[str]) -> None:
    words = {"kind": "log", "instance": "algo-1", "at_ms": 1, "text": "last words", "cursor": "0"}
    api = RecordingApi(
        DescribeTrainingJob=ended("Failed", FailureReason="AlgorithmError"),
        DescribeJob=DETAILS,
        FollowJob={"Lines": [words, ENDED]},
    )
    with pytest.raises(UnexpectedStatusException):
        TrainingJobHandle(api, "mnist-7").wait()
    assert "last words\n" in capsys.readouterr().out
    assert api.only("FollowJob") == {"TrainingJobName": "mnist-7", "Logs": True}


# What sagemaker accepts here, too.
@pytest.mark.parametrize(("logs", "shown"), [(False, False), ("None", False), ("All", True), (["Rules"], False)])
def test_waiting_asks_for_the_log_only_if_it_is_wanted(
    capsys: pytest.CaptureFixture[str], logs: str | bool | list[str], shown: bool
) -> None:
    api = RecordingApi(DescribeTrainingJob=ended("Completed"), DescribeJob=DETAILS, FollowJob={"Lines": [ENDED]})
    TrainingJobHandle(api, "mnist-7").wait(logs=logs)
    assert api.only("FollowJob") == {"TrainingJobName": "mnist-7", "Logs": shown}
    assert '"mnist-7" is Completed' in capsys.readouterr().out


def test_an_interrupt_says_how_to_come_back(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(asked: dict[str, Any]) -> dict[str, Any]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        TrainingJobHandle(RecordingApi(DescribeTrainingJob=ended("InProgress"), FollowJob=interrupt), "mnist-7").wait()
    assert detached_message("mnist-7") in capsys.readouterr().out
    assert "trainyard logs -f mnist-7" in detached_message("mnist-7")


def test_a_job_is_changed_by_the_names_of_the_wire() -> None:
    api = RecordingApi()
    TrainingJobHandle(api, "mnist-7").update(ResourceConfig={"KeepAlivePeriodInSeconds": 60})
    assert api.only("UpdateTrainingJob") == {
        "TrainingJobName": "mnist-7",
        "ResourceConfig": {"KeepAlivePeriodInSeconds": 60},
    }


@pytest.mark.parametrize(
    ("resources", "count"),
    [({"InstanceCount": 3}, 3), ({"InstanceGroups": [{"InstanceCount": 1}, {"InstanceCount": 2}]}, 3), ({}, 1)],
)
def test_instances_are_counted_in_groups_too(resources: dict[str, Any], count: int) -> None:
    assert instance_count({"ResourceConfig": resources}) == count

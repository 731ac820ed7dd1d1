import contextlib
import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import Trainyard
from tests.unit.recording import RecordingApi
from trainyard.cli.jobs import stop as module
from trainyard.wire.client import CallFailed


def job(name: str, status: str) -> dict[str, Any]:
    return {"TrainingJobName": name, "TrainingJobStatus": status, "SecondaryStatus": status, "CreationTime": NOON}


NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
JOBS = {
    each["TrainingJobName"]: each
    for each in (job("mnist-1", "InProgress"), job("mnist-2", "Completed"), job("mnist-3", "Failed"))
}


def describe(asked: dict[str, Any]) -> dict[str, Any]:
    if asked["TrainingJobName"] not in JOBS:
        raise CallFailed("ValidationException", "Requested resource not found.", status=400)
    return JOBS[asked["TrainingJobName"]]


def processing_job(name: str, status: str) -> dict[str, Any]:
    return {"ProcessingJobName": name, "ProcessingJobStatus": status, "CreationTime": NOON}


PROCESSING_JOBS = {"clean-1": processing_job("clean-1", "InProgress"), "clean-2": processing_job("clean-2", "Stopped")}


def describe_processing(asked: dict[str, Any]) -> dict[str, Any]:
    if asked["ProcessingJobName"] not in PROCESSING_JOBS:
        raise CallFailed("ValidationException", "Could not find requested job.", status=400)
    return PROCESSING_JOBS[asked["ProcessingJobName"]]


def list_processing(asked: dict[str, Any]) -> dict[str, Any]:
    found = [each for each in PROCESSING_JOBS.values() if each["ProcessingJobStatus"] == asked["StatusEquals"]]
    return {
        "ProcessingJobSummaries": [each for each in found if asked.get("NameContains", "") in each["ProcessingJobName"]]
    }


def list_jobs(asked: dict[str, Any]) -> dict[str, Any]:
    return {
        "TrainingJobSummaries": [each for each in JOBS.values() if each["TrainingJobStatus"] == asked["StatusEquals"]]
    }


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> RecordingApi:
    recording = RecordingApi(
        DescribeTrainingJob=describe,
        ListTrainingJobs=list_jobs,
        StopTrainingJob={},
        DeleteTrainingJob={},
        DescribeProcessingJob=describe_processing,
        ListProcessingJobs=list_processing,
        StopProcessingJob={},
        DeleteProcessingJob={},
    )

    @contextlib.contextmanager
    def calls(_: Path | None) -> Iterator[RecordingApi]:
        yield recording

    monkeypatch.setattr(module, "open_api", calls)
    return recording


class Terminal(io.StringIO):
    """A terminal at which somebody types."""

    def isatty(self) -> bool:
        return True


def named(api: RecordingApi, operation: str) -> list[str]:
    return sorted(params["TrainingJobName"] for name, params in api.asked if name == operation)


def test_patterns_stop_only_what_runs_and_remove_only_what_has_ended(trainyard: Trainyard, api: RecordingApi) -> None:
    assert trainyard("stop", "mnist-*", "--yes").code == 0
    assert named(api, "StopTrainingJob") == ["mnist-1"]
    assert trainyard("rm", "mnist-*", "--yes").code == 0
    assert named(api, "DeleteTrainingJob") == ["mnist-2", "mnist-3"]


def test_options_narrow_a_pattern_down(trainyard: Trainyard, api: RecordingApi) -> None:
    assert trainyard("rm", "mnist-*", "--status", "failed", "--older-than", "7d", "-y").code == 0
    assert named(api, "DeleteTrainingJob") == ["mnist-3"]


def test_without_a_terminal_nothing_is_removed_unless_confirmed(trainyard: Trainyard, api: RecordingApi) -> None:
    result = trainyard("rm", "mnist-*")
    assert result.code == 2
    assert "Remove 2 training jobs: mnist-2, mnist-3?" in result.err
    assert named(api, "DeleteTrainingJob") == []


def test_jobs_named_one_by_one_need_no_confirmation(trainyard: Trainyard, api: RecordingApi) -> None:
    assert trainyard("rm", "mnist-2", "mnist-3").code == 0
    assert named(api, "DeleteTrainingJob") == ["mnist-2", "mnist-3"]


def test_processing_jobs_are_stopped_and_removed_like_training_jobs(trainyard: Trainyard, api: RecordingApi) -> None:
    result = trainyard("stop", "clean-1", "mnist-1")
    assert result.err == 'Processing job "clean-1" is stopping.\nTraining job "mnist-1" is stopping.\n'
    result = trainyard("rm", "*-2", "--yes")
    assert 'Removed processing job "clean-2"; its files on S3 are kept.' in result.err
    assert [params for name, params in api.asked if name == "DeleteProcessingJob"] == [{"ProcessingJobName": "clean-2"}]
    assert named(api, "DeleteTrainingJob") == ["mnist-2"]


def test_a_job_that_is_named_twice_is_removed_once(trainyard: Trainyard, api: RecordingApi) -> None:
    result = trainyard("rm", "mnist-2", "mnist-2")
    assert named(api, "DeleteTrainingJob") == ["mnist-2"]
    assert result.err.count("Removed training job") == 1


def test_a_no_does_nothing_and_says_so(
    trainyard: Trainyard, api: RecordingApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    result = trainyard("rm", "mnist-*")
    assert result.code == 1
    assert result.err.endswith("Nothing was done.\n")
    assert not named(api, "DeleteTrainingJob")


def test_a_wrong_status_shows_the_statuses_as_the_api_spells_them(trainyard: Trainyard, api: RecordingApi) -> None:
    result = trainyard("rm", "--status", "Fail")
    assert result.code == 2
    assert '"Fail" is not one of Completed, Failed, Stopped.' in result.err


def test_a_selection_without_jobs_does_nothing(trainyard: Trainyard, api: RecordingApi) -> None:
    result = trainyard("stop", "cifar-*")
    assert (result.code, result.err) == (0, "No running job matches.\n")


@pytest.mark.parametrize(
    "arguments", [("rm",), ("stop",), ("rm", "mnist-2", "cifar-*"), ("rm", "mnist-2", "--status", "Failed")]
)
def test_what_to_remove_must_be_clear(trainyard: Trainyard, api: RecordingApi, arguments: tuple[str, ...]) -> None:
    assert trainyard(*arguments).code == 2
    assert named(api, "DeleteTrainingJob") == []


def test_a_job_that_has_ended_in_the_meantime_is_not_an_error(trainyard: Trainyard, api: RecordingApi) -> None:
    def refuse(_: dict[str, Any]) -> dict[str, Any]:
        JOBS["mnist-1"]["TrainingJobStatus"] = "Completed"
        raise CallFailed("ValidationException", "It has ended.", status=400)

    api.answers["StopTrainingJob"] = refuse
    api.answers["DescribeJob"] = {"Artifacts": []}
    try:
        assert trainyard("stop", "mnist-1").code == 0
    finally:
        JOBS["mnist-1"]["TrainingJobStatus"] = "InProgress"


def test_what_was_done_is_printed_as_json(trainyard: Trainyard, api: RecordingApi) -> None:
    result = trainyard("stop", "mnist-1", "mnist-2", "--json")
    assert result.err == ""
    assert json.loads(result.out) == {
        "Jobs": [
            {"TrainingJobName": "mnist-2", "TrainingJobStatus": "Completed"},
            {"TrainingJobName": "mnist-1", "TrainingJobStatus": "Stopping"},
        ]
    }


def test_an_unknown_field_is_refused_before_anything_is_done(trainyard: Trainyard, api: RecordingApi) -> None:
    assert trainyard("rm", "mnist-2", "--json", "Nme").code == 2
    assert api.asked == []


def with_data(api: RecordingApi) -> None:
    """Let mnist-2 have stored two objects below its output, and checkpoints at a place of others."""

    def describe_with_data(asked: dict[str, Any]) -> dict[str, Any]:
        return {
            **describe(asked),
            "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
            "CheckpointConfig": {"S3Uri": "s3://bucket/shared"},
        }

    def list_data(asked: dict[str, Any]) -> dict[str, Any]:
        count = 0 if asked["Prefix"].endswith("/profiler-output/") else 2
        return {"Contents": [{"Key": f"k{n}", "Size": 512, "ETag": "e", "LastModified": None} for n in range(count)]}

    api.answers |= {"DescribeTrainingJob": describe_with_data, "ListObjectsV2": list_data}


def test_data_is_shown_and_removed_only_when_it_is_confirmed(trainyard: Trainyard, api: RecordingApi) -> None:
    with_data(api)

    asked = trainyard("rm", "mnist-2", "--data")
    assert asked.code == 2
    assert ", and 2 objects, 1.0 KiB?" in asked.err
    assert not [name for name, _ in api.asked if name.startswith("Delete")]

    removed = trainyard("rm", "mnist-2", "--data", "--yes")
    assert removed.code == 0
    assert "mnist-2  output  s3://bucket/out/mnist-2/output/        2  1.0 KiB" in removed.err
    assert "Kept s3://bucket/shared/, the checkpoints" in removed.err
    assert 'Removed training job "mnist-2" and its objects.' in removed.err
    deletes = [name for name, _ in api.asked if name.startswith("Delete")]
    assert deletes == ["DeleteObjects", "DeleteTrainingJob"]


def test_shared_checkpoints_are_removed_only_on_request(trainyard: Trainyard, api: RecordingApi) -> None:
    with_data(api)
    assert trainyard("rm", "mnist-2", "--shared").code == 2
    assert "s3://bucket/shared/" in trainyard("rm", "mnist-2", "--data", "--shared", "--yes").err
    assert [name for name, _ in api.asked].count("DeleteObjects") == 2


def test_objects_that_cannot_be_removed_leave_the_job(trainyard: Trainyard, api: RecordingApi) -> None:
    with_data(api)
    api.answers["DeleteObjects"] = {"Errors": [{"Key": "k0", "Code": "AccessDenied", "Message": "no"}]}
    assert "k0: no" in trainyard("rm", "mnist-2", "--data", "--yes").err
    assert "DeleteTrainingJob" not in [name for name, _ in api.asked]

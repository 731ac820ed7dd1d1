from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.unit.recording import RecordingApi
from trainyard.cli.jobs.kinds import KINDS
from trainyard.cli.jobs.lookup import exit_code_of, find_access, find_job, to_json, translate_failures
from trainyard.cli.terminal.failure import ExitCode, Failure
from trainyard.foundation.home import Home
from trainyard.wire.client import CallFailed

NAMES = ["mnist-1", "mnist-12", "cifar-1", "my-mnist"]


def describe(asked: dict[str, Any]) -> dict[str, Any]:
    if asked["TrainingJobName"] not in NAMES:
        raise CallFailed("ValidationException", "Requested resource not found.", status=400)
    return {"TrainingJobName": asked["TrainingJobName"]}


def list_jobs(asked: dict[str, Any]) -> dict[str, Any]:
    found = [name for name in NAMES if asked.get("NameContains", "") in name]
    start = int(asked.get("NextToken", 0))
    page = {"TrainingJobSummaries": [{"TrainingJobName": name} for name in found[start : start + 1]]}
    return page | ({"NextToken": str(start + 1)} if start + 1 < len(found) else {})


ALL: dict[str, Any] = {"TrainingJobSummaries": [{"TrainingJobName": name} for name in NAMES]}


@pytest.fixture
def api() -> RecordingApi:
    return RecordingApi(DescribeTrainingJob=describe, ListTrainingJobs=list_jobs)


@pytest.mark.parametrize(
    ("given", "meant"),
    [("mnist-1", "mnist-1"), ("cif", "cifar-1"), ("my", "my-mnist"), ("mnist-12", "mnist-12"), ("@last", "mnist-1")],
)
def test_a_job_is_meant_by_name_by_beginning_or_as_the_last(api: RecordingApi, given: str, meant: str) -> None:
    assert find_job(api, given)["TrainingJobName"] == meant


def test_a_number_after_last_goes_back_in_time() -> None:
    names = [{"TrainingJobName": name} for name in ("newest", "middle", "oldest")]
    api = RecordingApi(
        DescribeTrainingJob=lambda asked: asked,
        ListTrainingJobs=lambda asked: {"TrainingJobSummaries": names[: asked["MaxResults"]]},
    )
    assert find_job(api, "@last~0")["TrainingJobName"] == "newest"
    assert find_job(api, "@last~2")["TrainingJobName"] == "oldest"
    with pytest.raises(Failure, match=r'no job "@last~3": there are only 3') as raised:
        find_job(api, "@last~3")
    assert raised.value.code == ExitCode.NOT_FOUND


@pytest.mark.parametrize("given", ["@2", "@", "@last~", "@last~x", "@latest"])
def test_other_words_for_jobs_are_refused_with_those_that_exist(api: RecordingApi, given: str) -> None:
    with pytest.raises(Failure, match=f'"{given}" means no job; @last is') as raised:
        find_job(api, given)
    assert raised.value.code == ExitCode.USAGE


def test_a_beginning_of_several_names_is_not_guessed(api: RecordingApi) -> None:
    with pytest.raises(Failure, match='Several training jobs have names that start with "mnist"') as raised:
        find_job(api, "mnist")
    assert raised.value.why == "mnist-1, mnist-12"
    assert raised.value.code == ExitCode.USAGE


def test_no_such_job_is_not_found(api: RecordingApi) -> None:
    with pytest.raises(Failure) as raised:
        find_job(api, "imagenet")
    assert raised.value.code == ExitCode.NOT_FOUND
    assert raised.value.next_step == "trainyard ls"


@pytest.mark.parametrize(("given", "meant"), [("mnst-1", "mnist-1"), ("cifar1", "cifar-1"), ("imagenet", "")])
def test_the_name_that_a_mistyped_one_is_like_is_suggested(api: RecordingApi, given: str, meant: str) -> None:
    api.answers["ListTrainingJobs"] = lambda asked: (
        list_jobs(asked | {"MaxResults": 9}) if "NameContains" in asked else ALL
    )
    with pytest.raises(Failure) as raised:
        find_job(api, given)
    assert raised.value.message.endswith(f'Did you mean "{meant}"?' if meant else "starts with it.")


def test_the_last_of_no_jobs_is_not_found() -> None:
    with pytest.raises(Failure, match="no training job yet") as raised:
        find_job(RecordingApi(ListTrainingJobs={"TrainingJobSummaries": []}), "@last")
    assert raised.value.code == ExitCode.NOT_FOUND


@pytest.mark.parametrize(
    ("status", "secondary", "code"),
    [
        ("Completed", "Completed", 0),
        ("Failed", "Failed", 1),
        ("Stopped", "Stopped", 3),
        ("Stopped", "MaxRuntimeExceeded", 124),
        ("Stopped", "MaxWaitTimeExceeded", 124),
    ],
)
def test_the_exit_code_tells_how_a_job_ended(status: str, secondary: str, code: int) -> None:
    assert exit_code_of({"TrainingJobStatus": status, "SecondaryStatus": secondary}) == code


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("ResourceNotFound", ExitCode.NOT_FOUND),
        ("AccessDeniedException", ExitCode.AUTH),
        ("UnrecognizedClientException", ExitCode.AUTH),
        ("ResourceLimitExceeded", ExitCode.QUOTA),
        ("ValidationException", ExitCode.FAILED),
    ],
)
def test_a_refusal_of_the_yard_ends_the_command_with_its_code(fault: str, code: ExitCode) -> None:
    with pytest.raises(Failure, match="because") as raised, translate_failures():
        raise CallFailed(fault, "because", status=400)
    assert raised.value.code == code


def test_answers_become_json() -> None:
    given = {"At": datetime(2026, 1, 2, tzinfo=UTC), "In": [{"At": None}], "ResponseMetadata": {"RequestId": "x"}}
    assert to_json(given) == {"At": "2026-01-02T00:00:00+00:00", "In": [{"At": None}]}


@pytest.mark.usefixtures("command_context")
def test_the_exported_yard_is_meant_unless_a_home_is_named(yard: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://10.0.0.1:4780")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAANNA")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hers")
    assert find_access(None).access_key_id == "AKIAANNA"
    assert find_access(yard.root).access_key_id == "AKIAEXAMPLE"


@pytest.mark.usefixtures("command_context")
def test_a_command_that_reads_starts_no_yard(user_home: Path) -> None:
    with pytest.raises(Failure, match="No yard is running") as raised:
        find_access(None)
    assert raised.value.code == ExitCode.NOT_FOUND
    assert list(user_home.iterdir()) == []


def test_where_other_kinds_are_shown_too_a_name_can_mean_a_processing_job() -> None:
    noon = datetime(2026, 7, 1, 12, tzinfo=UTC)
    trained = [{"TrainingJobName": "mnist-1", "CreationTime": noon}]
    cleaned = [{"ProcessingJobName": "clean-1", "CreationTime": noon.replace(hour=13)}]

    def describe_processing(asked: dict[str, Any]) -> dict[str, Any]:
        if asked["ProcessingJobName"] != "clean-1":
            raise CallFailed("ValidationException", "Could not find requested job.", status=400)
        return asked

    api = RecordingApi(
        DescribeTrainingJob=describe,
        ListTrainingJobs={"TrainingJobSummaries": trained},
        DescribeProcessingJob=describe_processing,
        ListProcessingJobs={"ProcessingJobSummaries": cleaned},
    )
    for given in ("clean-1", "cle", "@last"):
        assert find_job(api, given, kinds=KINDS) == {"ProcessingJobName": "clean-1"}
    assert find_job(api, "@last~1", kinds=KINDS) == find_job(api, "@last") == {"TrainingJobName": "mnist-1"}
    with pytest.raises(Failure, match='no training job or processing job named "cifar"'):
        find_job(api, "cifar", kinds=KINDS)

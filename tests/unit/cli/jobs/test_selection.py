from datetime import UTC, datetime, timedelta
from typing import Any

import click
import pytest

from tests.unit.recording import RecordingApi
from trainyard.cli.jobs.selection import (
    AgeParameter,
    JobSelection,
    is_pattern,
    map_in_parallel,
    names_text,
    select_jobs,
)

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
JOBS = [
    {
        "TrainingJobName": name,
        "TrainingJobStatus": status,
        "SecondaryStatus": secondary,
        "CreationTime": NOON - timedelta(days=age),
    }
    for name, status, secondary, age in [
        ("mnist-3", "InProgress", "Pending", 0),
        ("mnist-2", "InProgress", "Training", 1),
        ("mnist-1", "Failed", "Failed", 9),
        ("cifar-1", "Completed", "Completed", 10),
    ]
]
ALL = ("InProgress", "Completed", "Failed")


def list_jobs(asked: dict[str, Any]) -> dict[str, Any]:
    """Answer with pages of one job, as a yard with a small limit would."""
    found = [job for job in JOBS if job["TrainingJobStatus"] == asked["StatusEquals"]]
    found = [job for job in found if asked.get("NameContains", "") in str(job["TrainingJobName"])]
    start = int(asked.get("NextToken", 0))
    page = {"TrainingJobSummaries": found[start : start + 1]}
    return page | ({"NextToken": str(start + 1)} if start + 1 < len(found) else {})


def selected(statuses: tuple[str, ...] = ALL, **parts: Any) -> list[str]:
    api = RecordingApi(ListProcessingJobs={"ProcessingJobSummaries": []}, ListTrainingJobs=list_jobs)
    return [job["TrainingJobName"] for job in select_jobs(api, JobSelection(**parts), statuses=statuses)]


def test_patterns_match_whole_names_over_all_pages() -> None:
    assert selected(patterns=["mnist-*"]) == ["mnist-3", "mnist-2", "mnist-1"]
    assert selected(patterns=["*-1"]) == ["cifar-1", "mnist-1"]
    assert selected(patterns=["mnist-[12]", "cif*"]) == ["mnist-2", "cifar-1", "mnist-1"]
    assert selected(patterns=["mnist"]) == []


def test_a_status_can_be_primary_or_secondary() -> None:
    assert selected(status="failed") == ["mnist-1"]
    assert selected(("InProgress",), status="Pending") == ["mnist-3"]


def test_an_age_counts_from_the_creation() -> None:
    assert selected(created_before=NOON - timedelta(days=7)) == ["cifar-1", "mnist-1"]
    assert selected(patterns=["m*"], created_before=NOON - timedelta(days=7)) == ["mnist-1"]


@pytest.mark.parametrize(
    ("name", "has_wildcards"), [("mnist-1", False), ("@last", False), ("m*", True), ("m[12]", True)]
)
def test_wildcards_make_a_pattern(name: str, has_wildcards: bool) -> None:
    assert is_pattern(name) == has_wildcards


@pytest.mark.parametrize(
    ("text", "age"), [("90m", timedelta(minutes=90)), ("12 h", timedelta(hours=12)), ("2W", timedelta(weeks=2))]
)
def test_an_age_has_a_unit(text: str, age: timedelta) -> None:
    assert AgeParameter().convert(text, None, None) == age


@pytest.mark.parametrize("text", ["7", "d", "-1d", "1y", ""])
def test_an_age_without_a_known_unit_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="write 90m, 12h, 7d or 2w"):
        AgeParameter().convert(text, None, None)


def test_a_question_names_a_few_of_many_jobs() -> None:
    jobs = [{"TrainingJobName": f"job-{number}"} for number in range(1200)]
    assert names_text(jobs) == "1,200 training jobs: job-0, job-1, job-2, job-3, job-4 and 1,195 more"
    assert names_text(jobs[:1]) == "1 training job: job-0"


def test_parallel_work_keeps_the_order_and_its_first_error_ends_it() -> None:
    assert list(map_in_parallel(str, range(50))) == [str(number) for number in range(50)]
    with pytest.raises(ZeroDivisionError):
        list(map_in_parallel(lambda number: 1 // number, [1, 0, 2]))

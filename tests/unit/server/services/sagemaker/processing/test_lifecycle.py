from typing import Any

import pytest

from tests.unit.foundation.sample_jobs import seconds
from tests.unit.server.services.accounts import As
from tests.unit.server.services.sagemaker.processing.requests import create, describe
from trainyard.foundation.errors import NotFound
from trainyard.wire.fault import Fault


@pytest.fixture
def filled(anna: As) -> As:
    for number, name in enumerate(["delta", "alpha", "charlie", "bravo"]):
        create(anna.at(seconds(number)), name)
    anna.at(seconds(10))("sagemaker", "StopProcessingJob", ProcessingJobName="charlie")
    return anna


def names(user: As, **asked: Any) -> list[str]:
    """Return the names of all pages."""
    found: list[str] = []
    while True:
        page = user("sagemaker", "ListProcessingJobs", **asked)
        found += [each["ProcessingJobName"] for each in page["ProcessingJobSummaries"]]
        if "NextToken" not in page:
            return found
        asked = asked | {"NextToken": page["NextToken"]}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, ["bravo", "charlie", "alpha", "delta"]),
        ({"SortBy": "Name", "SortOrder": "Ascending"}, ["alpha", "bravo", "charlie", "delta"]),
        ({"NameContains": "l", "SortBy": "CreationTime", "SortOrder": "Ascending"}, ["delta", "alpha", "charlie"]),
        ({"StatusEquals": "Stopped"}, ["charlie"]),
        ({"CreationTimeAfter": seconds(1), "LastModifiedTimeBefore": seconds(5)}, ["bravo"]),
    ],
)
def test_filters_and_orders_hold_over_pages(filled: As, asked: dict[str, Any], expected: list[str]) -> None:
    assert names(filled, **asked, MaxResults=1) == names(filled, **asked) == expected


def test_a_job_that_waits_is_stopped_at_once_and_only_then_it_can_be_deleted(anna: As) -> None:
    create(anna)
    with pytest.raises(Fault) as caught:
        anna("sagemaker", "DeleteProcessingJob", ProcessingJobName="clean")
    assert caught.value.code == "ResourceInUse"
    anna("sagemaker", "StopProcessingJob", ProcessingJobName="clean")
    assert describe(anna)["ProcessingJobStatus"] == "Stopped"
    with pytest.raises(Fault, match="in status Stopped"):
        anna("sagemaker", "StopProcessingJob", ProcessingJobName="clean")
    anna("sagemaker", "DeleteProcessingJob", ProcessingJobName="clean")
    assert names(anna) == []


@pytest.mark.parametrize("operation", ["DescribeProcessingJob", "StopProcessingJob", "DeleteProcessingJob"])
def test_a_job_that_does_not_exist_is_not_found(anna: As, operation: str) -> None:
    with pytest.raises((Fault, NotFound)) as caught:
        anna("sagemaker", operation, ProcessingJobName="nobody")
    assert "nobody" in str(caught.value)

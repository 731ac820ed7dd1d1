from typing import Any

import pytest

from tests.unit.foundation.jobs import seconds
from tests.unit.server.services.accounts import Accounts, As
from tests.unit.server.services.sagemaker.requests import create
from trainyard.wire.fault import Fault


@pytest.fixture
def filled(anna: As) -> As:
    for number, name in enumerate(["delta", "alpha", "charlie", "bravo"]):
        create(anna.at(seconds(number)), name)
    anna.at(seconds(10))("sagemaker", "StopTrainingJob", TrainingJobName="charlie")
    return anna


def names(user: As, **asked: Any) -> list[str]:
    """All pages, one after the other."""
    found: list[str] = []
    while True:
        page = user("sagemaker", "ListTrainingJobs", **asked)
        found += [each["TrainingJobName"] for each in page["TrainingJobSummaries"]]
        if "NextToken" not in page:
            return found
        asked = asked | {"NextToken": page["NextToken"]}


def test_the_newest_come_first(filled: As) -> None:
    assert names(filled) == ["bravo", "charlie", "alpha", "delta"]


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"SortBy": "Name", "SortOrder": "Ascending"}, ["alpha", "bravo", "charlie", "delta"]),
        ({"SortBy": "Name", "SortOrder": "Descending"}, ["delta", "charlie", "bravo", "alpha"]),
        ({"SortBy": "CreationTime", "SortOrder": "Ascending"}, ["delta", "alpha", "charlie", "bravo"]),
        ({"SortBy": "Status", "SortOrder": "Descending"}, ["charlie", "bravo", "alpha", "delta"]),
        ({"NameContains": "l", "SortBy": "Name", "SortOrder": "Ascending"}, ["alpha", "charlie", "delta"]),
        ({"StatusEquals": "Stopped"}, ["charlie"]),
        ({"CreationTimeAfter": seconds(1)}, ["bravo", "charlie"]),
        ({"CreationTimeBefore": seconds(1)}, ["delta"]),
        ({"LastModifiedTimeAfter": seconds(5)}, ["charlie"]),
        ({"LastModifiedTimeBefore": seconds(1)}, ["delta"]),
    ],
)
def test_filters_and_orders_hold_over_pages(filled: As, asked: dict[str, Any], expected: list[str], size: int) -> None:
    assert names(filled, **asked, MaxResults=size) == expected


def test_a_summary_tells_when_the_job_ended(filled: As) -> None:
    (told,) = filled("sagemaker", "ListTrainingJobs", StatusEquals="Stopped")["TrainingJobSummaries"]
    assert (told["TrainingEndTime"], told["SecondaryStatus"]) == (seconds(10), "Stopped")


def test_a_token_stays_good_while_jobs_are_added(filled: As) -> None:
    page = filled("sagemaker", "ListTrainingJobs", MaxResults=2)
    create(filled.at(seconds(20)), "echo")
    rest = filled("sagemaker", "ListTrainingJobs", MaxResults=2, NextToken=page["NextToken"])
    assert [each["TrainingJobName"] for each in rest["TrainingJobSummaries"]] == ["alpha", "delta"]


def test_a_token_of_something_else_is_refused(filled: As) -> None:
    with pytest.raises(Fault) as caught:
        filled("sagemaker", "ListTrainingJobs", NextToken="bm9uc2Vuc2U=")
    assert caught.value.code == "ValidationException"


def test_warm_pools_are_not_ignored(filled: As) -> None:
    with pytest.raises(Fault, match="neither warm pools nor training plans"):
        filled("sagemaker", "ListTrainingJobs", WarmPoolStatusEquals="InUse")


def test_others_list_nothing_of_it_and_an_administrator_all(accounts: Accounts, filled: As) -> None:
    assert names(accounts.ben) == []
    assert len(names(accounts.admin)) == 4

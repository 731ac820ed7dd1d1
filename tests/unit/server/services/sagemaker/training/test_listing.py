from dataclasses import replace
from typing import Any

import pytest

from tests.unit.foundation.sample_jobs import seconds
from tests.unit.server.services.accounts import Accounts, As
from tests.unit.server.services.sagemaker.requests import create
from tests.unit.server.services.sagemaker.training.test_description import load, remember
from trainyard.foundation.jobs.attempts import Attempt, InstanceState
from trainyard.foundation.jobs.status import SecondaryStatus
from trainyard.foundation.jobs.training.job import PoolEnd
from trainyard.foundation.jobs.training.transitions import advance
from trainyard.wire.fault import Fault

S = SecondaryStatus


@pytest.fixture
def filled(anna: As) -> As:
    for number, name in enumerate(["delta", "alpha", "charlie", "bravo"]):
        create(anna.at(seconds(number)), name)
    anna.at(seconds(10))("sagemaker", "StopTrainingJob", TrainingJobName="charlie")
    return anna


def names(user: As, **asked: Any) -> list[str]:
    """Return the names of all pages."""
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


@pytest.fixture
def pooled(anna: As) -> As:
    """Create jobs with warm pools in every state, as of two minutes later."""
    resources = {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1}
    for number, (name, keep_s) in enumerate(
        {"none": 0, "running": 60, "warm": 3600, "cold": 30, "taken": 3600, "waiting": 60}.items()
    ):
        create(anna.at(seconds(number)), name, ResourceConfig=resources | {"KeepAlivePeriodInSeconds": keep_s})
    for name in ("none", "running", "warm", "cold", "taken"):
        attempt = Attempt(1, seconds(10), "KEY", (InstanceState("algo-1"),), is_started=True)
        remember(anna, advance(replace(load(anna, name), attempts=(attempt,)), S.STARTING, at=seconds(10)))
    for name in ("none", "warm", "cold", "taken"):
        job = advance(load(anna, name), S.COMPLETED, at=seconds(60))
        remember(anna, replace(job, pool_end=PoolEnd(seconds(70), "next")) if name == "taken" else job)
    return anna.at(seconds(120))


@pytest.mark.parametrize("size", [1, 100])
@pytest.mark.parametrize(
    ("status", "expected"),
    [("InUse", ["running"]), ("Available", ["warm"]), ("Terminated", ["cold"]), ("Reused", ["taken"])],
)
def test_jobs_are_found_by_the_state_of_their_warm_pools(
    pooled: As, status: str, expected: list[str], size: int
) -> None:
    assert names(pooled, WarmPoolStatusEquals=status, MaxResults=size) == expected
    (told,) = pooled("sagemaker", "ListTrainingJobs", WarmPoolStatusEquals=status)["TrainingJobSummaries"]
    assert told["WarmPoolStatus"]["Status"] == status


def test_a_search_finds_warm_pools_too(pooled: As) -> None:
    expression = {"Filters": [{"Name": "WarmPoolStatus.Status", "Operator": "Equals", "Value": "Available"}]}
    (found,) = pooled("sagemaker", "Search", Resource="TrainingJob", SearchExpression=expression)["Results"]
    assert found["TrainingJob"]["TrainingJobName"] == "warm"
    assert found["TrainingJob"]["WarmPoolStatus"]["Status"] == "Available"


def test_each_page_of_warm_pools_starts_where_the_last_one_ended(pooled: As, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainyard.server.services.sagemaker.training.listing._BATCH", 2)
    for name in ("warm-2", "warm-3"):
        resources = {"InstanceType": "ml.m5.large", "InstanceCount": 1, "KeepAlivePeriodInSeconds": 3600}
        create(pooled.at(seconds(100)), name, ResourceConfig=resources | {"VolumeSizeInGB": 1})
        attempt = Attempt(1, seconds(100), "KEY", (InstanceState("algo-1"),), is_started=True)
        job = advance(replace(load(pooled, name), attempts=(attempt,)), S.STARTING, at=seconds(100))
        remember(pooled, advance(job, S.FAILED, at=seconds(101)))
    asked = {"WarmPoolStatusEquals": "Available", "SortBy": "Name", "SortOrder": "Ascending"}
    for size in (1, 2, 3):
        assert names(pooled, **asked, MaxResults=size) == ["warm", "warm-2", "warm-3"]


def test_a_page_of_warm_pools_may_be_short_but_has_its_token(pooled: As, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainyard.server.services.sagemaker.training.listing._BATCH", 1)
    monkeypatch.setattr("trainyard.server.services.sagemaker.training.listing.MAX_SCANNED", 2)
    page = pooled("sagemaker", "ListTrainingJobs", WarmPoolStatusEquals="InUse")
    assert page["TrainingJobSummaries"] == []
    assert page["NextToken"]
    assert names(pooled, WarmPoolStatusEquals="InUse") == ["running"]


def test_no_job_has_a_training_plan(filled: As) -> None:
    plan = "arn:aws:sagemaker:eu-west-3:123456789012:training-plan/mine"
    assert names(filled, TrainingPlanArnEquals=plan) == []


@pytest.mark.parametrize(
    "asked",
    [
        {"SortBy": sort_by, "SortOrder": order, **extra}
        for sort_by in ("Name", "CreationTime", "Status")
        for order in ("Ascending", "Descending")
        for extra in ({}, {"NameContains": "job"}, {"StatusEquals": "InProgress"})
    ],
    ids=lambda asked: "-".join(asked.values()),
)
def test_pages_show_each_job_once_while_others_are_added(anna: As, asked: dict[str, Any]) -> None:
    first = {f"job-{number}" for number in range(6)}
    for number, name in enumerate(sorted(first)):
        create(anna.at(seconds(number)), name)
    found: list[str] = []
    token: dict[str, Any] = {}
    while len(set(found) & first) < len(first):
        page = anna("sagemaker", "ListTrainingJobs", **asked, **token, MaxResults=2)
        found += [each["TrainingJobName"] for each in page["TrainingJobSummaries"]]
        create(anna.at(seconds(100 + len(found))), f"job-{len(found)}-new")
        token = {"NextToken": page.get("NextToken", "")}
        assert token["NextToken"] or first <= set(found), "the list ended before all were shown"
    assert len(found) == len(set(found))


def test_others_list_nothing_of_it_and_an_administrator_all(accounts: Accounts, filled: As) -> None:
    assert names(accounts.ben) == []
    assert len(names(accounts.admin)) == 4

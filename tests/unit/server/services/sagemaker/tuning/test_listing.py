import math
from datetime import timedelta
from typing import Any

import pytest

from tests.unit.server.services.accounts import NOON, Accounts, As
from tests.unit.server.services.sagemaker.requests import create
from tests.unit.server.services.sagemaker.tuning.requests import add_trials, create_tuning, end_tuning, trial
from trainyard.foundation.jobs.tuning import TrialStatus
from trainyard.server.jobs.training import KIND
from trainyard.server.records.contract import Change, ResourceKey
from trainyard.wire.fault import Fault

S = TrialStatus


def names(user: As, **asked: Any) -> list[str]:
    """Return the names of all listed tuning jobs."""
    found: list[str] = []
    while True:
        page = user("sagemaker", "ListHyperParameterTuningJobs", **asked)
        found += [each["HyperParameterTuningJobName"] for each in page["HyperParameterTuningJobSummaries"]]
        if "NextToken" not in page:
            return found
        asked["NextToken"] = page["NextToken"]


def numbers(user: As, **asked: Any) -> list[int]:
    """Return the names of all listed trials."""
    found: list[int] = []
    while True:
        page = user(
            "sagemaker", "ListTrainingJobsForHyperParameterTuningJob", HyperParameterTuningJobName="tune", **asked
        )
        found += [int(each["TunedHyperParameters"]["depth"]) for each in page["TrainingJobSummaries"]]
        if "NextToken" not in page:
            return found
        asked["NextToken"] = page["NextToken"]


@pytest.fixture
def tuned(anna: As) -> As:
    """Return a user with a tuning job of six trials, of which the last has not started."""
    create_tuning(anna)
    add_trials(
        anna,
        trial(anna, 1, status=S.COMPLETED, objective=0.5),
        trial(anna, 2, status=S.FAILED, objective=0.125, why="it broke"),
        trial(anna, 3, status=S.STOPPED, objective=0.25),
        trial(anna, 4, status=S.COMPLETED, objective=math.nan),
        trial(anna, 5, objective=0.75),
        trial(anna, 6, status=S.PLANNED),
    )
    return anna


def test_tuning_jobs_are_listed_by_name_whatever_its_case(anna: As) -> None:
    for minute, name in enumerate(("beta", "Alpha", "gamma")):
        create_tuning(anna.at(NOON + timedelta(minutes=minute)), name)
    assert names(anna, MaxResults=1) == ["Alpha", "beta", "gamma"]
    assert names(anna, SortBy="CreationTime", SortOrder="Descending") == ["gamma", "Alpha", "beta"]
    assert names(anna, NameContains="ALPH") == ["Alpha"]
    assert names(anna, CreationTimeAfter=NOON) == ["Alpha", "gamma"]


def test_tuning_jobs_are_listed_by_status_and_with_their_counters(accounts: Accounts, anna: As) -> None:
    create_tuning(anna)
    create_tuning(anna, "over")
    end_tuning(anna, "over", t1=0.5, t2=0.25)
    assert names(anna, SortBy="Status") == ["over", "tune"]
    assert names(anna, StatusEquals="InProgress") == ["tune"]
    assert names(accounts.ben) == []
    (told,) = anna("sagemaker", "ListHyperParameterTuningJobs", StatusEquals="Completed")[
        "HyperParameterTuningJobSummaries"
    ]
    assert (told["Strategy"], told["ResourceLimits"]["MaxNumberOfTrainingJobs"]) == ("Random", 20)
    assert told["TrainingJobStatusCounters"]["Completed"] == told["ObjectiveStatusCounters"]["Succeeded"] == 2
    assert told["HyperParameterTuningEndTime"] == NOON + timedelta(hours=1)


def test_training_jobs_are_listed_by_number_without_those_not_begun(tuned: As) -> None:
    assert numbers(tuned) == [1, 2, 3, 4, 5]
    assert numbers(tuned, MaxResults=2) == [1, 2, 3, 4, 5]
    assert numbers(tuned, SortBy="CreationTime", SortOrder="Descending", MaxResults=3) == [5, 4, 3, 2, 1]
    assert numbers(tuned, SortBy="Status") == [1, 4, 2, 5, 3]


def test_training_jobs_are_listed_by_status(tuned: As) -> None:
    assert numbers(tuned, StatusEquals="Completed") == [1, 4]
    assert numbers(tuned, StatusEquals="Stopping") == []


def test_the_order_of_the_objective_leaves_out_those_whose_objective_does_not_count(tuned: As) -> None:
    order = {"SortBy": "FinalObjectiveMetricValue"}
    assert numbers(tuned, **order) == [3, 1, 5]
    assert numbers(tuned, **order, MaxResults=1) == [3, 1, 5]
    assert numbers(tuned, **order, SortOrder="Descending", MaxResults=2) == [5, 1, 3]
    assert numbers(tuned, **order, StatusEquals="Completed") == [1]


def test_a_training_job_shows_its_failure_and_objective_status(tuned: As) -> None:
    page = tuned("sagemaker", "ListTrainingJobsForHyperParameterTuningJob", HyperParameterTuningJobName="tune")
    told = page["TrainingJobSummaries"]
    assert [each["ObjectiveStatus"] for each in told] == ["Succeeded", "Failed", "Succeeded", "Failed", "Pending"]
    assert told[1]["FailureReason"] == "it broke"
    assert "FinalHyperParameterTuningJobObjectiveMetric" not in told[3]


def test_a_training_job_being_stopped_is_stopping_until_it_has_ended(anna: As) -> None:
    create_tuning(anna)
    create(anna, "running")
    create(anna, "leaving")
    records = anna.yard.records
    jobs = [records.load(ResourceKey(anna.account, KIND, name)) for name in ("running", "leaving")]
    records.apply(jobs[1], Change(status="Stopping"), now=NOON)
    add_trials(anna, *(trial(anna, number, job_id=job.id) for number, job in enumerate(jobs, 1)))
    page = anna("sagemaker", "ListTrainingJobsForHyperParameterTuningJob", HyperParameterTuningJobName="tune")
    assert [each["TrainingJobStatus"] for each in page["TrainingJobSummaries"]] == ["InProgress", "Stopping"]


@pytest.mark.parametrize("token", ["x", "WzFd", "W05hTiwgMV0="])
def test_a_token_of_something_else_is_refused(tuned: As, token: str) -> None:
    with pytest.raises(Fault, match="The NextToken is invalid"):
        numbers(tuned, SortBy="FinalObjectiveMetricValue", NextToken=token)

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.foundation.jobs import seconds
from tests.unit.server.services.accounts import Accounts, As
from tests.unit.server.services.sagemaker.requests import create
from tests.unit.server.services.sagemaker.test_described import load, remember
from tests.unit.server.services.trainyard.test_description import describe, start
from trainyard.foundation.jobs import SecondaryStatus
from trainyard.foundation.transitions import advance
from trainyard.wire.fault import Fault

SPOT: dict[str, Any] = {
    "EnableManagedSpotTraining": True,
    "StoppingCondition": {"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 120},
}


def interrupt(user: As, name: str = "mnist") -> dict[str, Any]:
    return user("trainyard", "InterruptJob", TrainingJobName=name)


def test_a_running_spot_job_is_told_to_give_its_place_away(anna: As) -> None:
    create(anna, **SPOT)
    start(anna)
    assert interrupt(anna) == {}
    assert load(anna).attempts[-1].interruption == "anna interrupted it."
    interrupt(anna)  # once more changes nothing
    assert describe(anna)["Attempts"][0]["InterruptionReason"] == "anna interrupted it."


def test_a_job_that_is_not_spot_is_not_interrupted(anna: As) -> None:
    create(anna)
    start(anna)
    with pytest.raises(Fault, match="mnist is no spot job, so that nothing interrupts it; `trainyard stop mnist` ends"):
        interrupt(anna)


def test_a_job_without_a_place_has_none_to_give_away(anna: As) -> None:
    create(anna, **SPOT)
    with pytest.raises(Fault, match='"mnist" is Pending and has no place'):
        interrupt(anna)


def test_a_job_that_ends_is_not_interrupted(anna: As) -> None:
    create(anna, **SPOT)
    start(anna)
    remember(anna, advance(load(anna), SecondaryStatus.UPLOADING, at=seconds(3)))
    with pytest.raises(Fault, match="is Uploading its model and about to end"):
        interrupt(anna)
    job = load(anna)
    ended = replace(job, attempts=(replace(job.attempts[-1], ended_at=seconds(4)),))
    remember(anna, advance(ended, SecondaryStatus.COMPLETED, at=seconds(4)))
    with pytest.raises(Fault, match="is Completed, so that it cannot be interrupted"):
        interrupt(anna)


def test_nobody_interrupts_the_jobs_of_others(anna: As, accounts: Accounts) -> None:
    create(anna, **SPOT)
    start(anna)
    with pytest.raises(Fault) as refused:
        interrupt(accounts.ben)
    assert refused.value.code == "ResourceNotFound"
    assert load(anna).attempts[-1].interruption == ""


def test_an_interrupted_job_has_a_place_in_line_behind_those_that_are_not_spot(anna: As) -> None:
    create(anna, **SPOT)
    start(anna)
    job = load(anna)
    ended = replace(job.attempts[-1], ended_at=seconds(9), interruption="It had to.")
    remember(anna, advance(job.with_attempt(ended), SecondaryStatus.INTERRUPTED, at=seconds(9)))
    assert describe(anna)["QueuePosition"] == 1
    create(anna.at(seconds(20)), "own")
    create(anna.at(seconds(30)), "later", **SPOT)
    assert [describe(anna, name)["QueuePosition"] for name in ("own", "mnist", "later")] == [1, 2, 3]

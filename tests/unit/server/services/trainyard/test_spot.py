from dataclasses import replace
from typing import Any

import pytest

from tests.unit.foundation.jobs import seconds
from tests.unit.server.services.accounts import Accounts, As
from tests.unit.server.services.sagemaker.requests import create
from tests.unit.server.services.sagemaker.test_described import load, remember
from tests.unit.server.services.trainyard.test_description import start
from tests.unit.server.services.trainyard.test_interruption import SPOT
from trainyard.foundation.jobs import SecondaryStatus
from trainyard.foundation.transitions import advance


def run_spot_job(user: As, name: str = "mnist", *, until_s: float = 102) -> None:
    create(user, name, **SPOT)
    start(user, name=name)
    job = load(user, name)
    ended = job.with_attempt(replace(job.attempts[-1], ended_at=seconds(until_s)))
    remember(user, advance(ended, SecondaryStatus.COMPLETED, at=seconds(until_s)))


def told(user: As) -> dict[str, Any]:
    return user("trainyard", "DescribeSpot")


def test_before_the_first_spot_job_there_are_no_sums(anna: As) -> None:
    answer = told(anna)
    assert (answer["Types"], answer["Total"]["Jobs"], answer["Total"]["Saved"]) == ([], 0, 0.0)
    assert answer["Total"].get("SavingInPercent") is None


def test_the_sums_are_those_of_the_bills(anna: As) -> None:
    for name in ("one", "two"):
        run_spot_job(anna, name)
    answer = told(anna)
    bill = anna("sagemaker", "DescribeTrainingJob", TrainingJobName="one")
    (use,) = answer["Types"]
    assert (use["InstanceType"], use["Jobs"]) == ("ml.m5.large", 2)
    assert use["TrainingTimeInSeconds"] == 2 * bill["TrainingTimeInSeconds"]
    assert use["BillableTimeInSeconds"] == 2 * bill["BillableTimeInSeconds"]
    price = anna.yard.workshop.catalog["ml.m5.large"].price_usd(is_spot=False)
    assert use["Saved"] == pytest.approx((use["TrainingTimeInSeconds"] - use["BillableTimeInSeconds"]) / 3600 * price)
    assert use["SavingInPercent"] == pytest.approx(70, abs=1)
    assert answer["Total"] == use | {"InstanceType": "*"}


def test_a_job_counts_when_it_has_ended_and_when_it_is_removed(anna: As) -> None:
    create(anna, "going", **SPOT)
    start(anna, name="going")
    assert told(anna)["Total"]["Jobs"] == 0
    run_spot_job(anna)
    anna("sagemaker", "DeleteTrainingJob", TrainingJobName="mnist")
    assert told(anna)["Total"]["Jobs"] == 1


def test_users_see_their_own_sums_and_administrators_those_of_all(accounts: Accounts, anna: As) -> None:
    run_spot_job(anna)
    assert told(accounts.ben)["Total"]["Jobs"] == 0
    assert told(accounts.admin)["Total"]["Jobs"] == 1

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.foundation.sample_jobs import seconds
from tests.unit.server.services.accounts import Accounts, As
from tests.unit.server.services.sagemaker.requests import create
from tests.unit.server.services.sagemaker.training.test_description import load, remember
from tests.unit.server.services.trainyard.test_jobs import SPOT, start
from trainyard.foundation.jobs.status import SecondaryStatus
from trainyard.foundation.jobs.training.transitions import advance
from trainyard.wire.fault import Fault


def test_a_quote_has_the_price_of_all_instances_and_the_most_it_can_come_to(anna: As) -> None:
    asked = {"InstanceType": "ml.m5.large", "InstanceCount": 2, "MaxRuntimeInSeconds": 1800}
    price = anna.yard.compute.catalog["ml.m5.large"]
    told = anna("trainyard", "QuoteJob", **asked)
    assert (told["PricePerHour"], told["Currency"]) == (2 * price.on_demand_usd, "USD")
    assert told["MostCost"] == pytest.approx(price.on_demand_usd)
    assert not told["PriceIsSet"]
    assert anna("trainyard", "QuoteJob", **asked, Spot=True)["PricePerHour"] == 2 * price.spot_usd
    assert [share["Instance"] for share in told["Shares"]] == ["algo-1", "algo-2"]


def test_a_quote_is_of_all_groups_together(anna: As) -> None:
    groups = [
        {"InstanceGroupName": "feeders", "InstanceType": "ml.c5.xlarge", "InstanceCount": 2},
        {"InstanceGroupName": "trainers", "InstanceType": "ml.m5.large", "InstanceCount": 1},
    ]
    catalog = anna.yard.compute.catalog
    told = anna("trainyard", "QuoteJob", InstanceGroups=groups)
    prices = 2 * catalog["ml.c5.xlarge"].on_demand_usd + catalog["ml.m5.large"].on_demand_usd
    assert told["PricePerHour"] == pytest.approx(prices)
    assert [share["InstanceType"] for share in told["Shares"]] == ["ml.c5.xlarge", "ml.c5.xlarge", "ml.m5.large"]


def test_a_quote_notes_the_shortfalls_of_the_machine(anna: As) -> None:
    told = anna("trainyard", "QuoteJob", InstanceType="ml.p4d.24xlarge", InstanceCount=3)
    assert "MostCost" not in {member for member, value in told.items() if value is not None}
    assert any("ml.p4d.24xlarge" in note for note in told["Notes"])


def test_a_quote_counts_running_and_waiting_jobs(anna: As) -> None:
    slots = anna.yard.compute.engines.default.capacity().slots
    for number in range(3):
        create(anna.at(seconds(number)), f"job-{number}")
    start(anna, name="job-0")
    told = anna("trainyard", "QuoteJob", InstanceType="local", InstanceCount=1)
    assert (told["FreeSlots"], told["QueuedJobs"]) == (slots - 1, 2)


def test_a_quote_tells_why_a_job_with_its_image_would_be_refused(anna: As) -> None:
    told = anna("trainyard", "QuoteJob", InstanceType="local", InstanceCount=1, Image="nobody/knows:1")
    with pytest.raises(Fault) as caught:
        create(anna, AlgorithmSpecification={"TrainingImage": "nobody/knows:1", "TrainingInputMode": "File"})
    assert told["ImageObstacle"] == caught.value.message
    assert anna("trainyard", "QuoteJob", InstanceType="local", InstanceCount=1)["ImageObstacle"] is None


def test_a_type_that_nobody_knows_has_no_price(anna: As) -> None:
    with pytest.raises(Fault, match="is not an instance type this yard knows") as caught:
        anna("trainyard", "QuoteJob", InstanceType="ml.unheard", InstanceCount=1)
    assert caught.value.code == "ValidationException"


def run_spot_job(user: As, name: str = "mnist", *, until_s: float = 102) -> None:
    create(user, name, **SPOT)
    start(user, name=name)
    job = load(user, name)
    ended = job.with_attempt(replace(job.attempts[-1], ended_at=seconds(until_s)))
    remember(user, advance(ended, SecondaryStatus.COMPLETED, at=seconds(until_s)))


def told(user: As) -> dict[str, Any]:
    return user("trainyard", "DescribeSpot")


def test_before_the_first_spot_job_the_sums_are_empty(anna: As) -> None:
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
    price = anna.yard.compute.catalog["ml.m5.large"].price_usd(is_spot=False)
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

import pytest

from tests.unit.foundation.jobs import seconds
from tests.unit.server.services.accounts import As
from tests.unit.server.services.sagemaker.requests import create
from tests.unit.server.services.trainyard.test_description import start
from trainyard.wire.fault import Fault


def test_a_quote_has_the_price_of_all_instances_and_the_most_it_can_come_to(anna: As) -> None:
    asked = {"InstanceType": "ml.m5.large", "InstanceCount": 2, "MaxRuntimeInSeconds": 1800}
    price = anna.yard.workshop.catalog["ml.m5.large"]
    told = anna("trainyard", "QuoteJob", **asked)
    assert (told["PricePerHour"], told["Currency"]) == (2 * price.on_demand_usd, "USD")
    assert told["MostCost"] == pytest.approx(price.on_demand_usd)
    assert anna("trainyard", "QuoteJob", **asked, Spot=True)["PricePerHour"] == 2 * price.spot_usd
    assert [share["Instance"] for share in told["Shares"]] == ["algo-1", "algo-2"]


def test_a_quote_is_of_all_groups_together(anna: As) -> None:
    groups = [
        {"InstanceGroupName": "feeders", "InstanceType": "ml.c5.xlarge", "InstanceCount": 2},
        {"InstanceGroupName": "trainers", "InstanceType": "ml.m5.large", "InstanceCount": 1},
    ]
    catalog = anna.yard.workshop.catalog
    told = anna("trainyard", "QuoteJob", InstanceGroups=groups)
    prices = 2 * catalog["ml.c5.xlarge"].on_demand_usd + catalog["ml.m5.large"].on_demand_usd
    assert told["PricePerHour"] == pytest.approx(prices)
    assert [share["InstanceType"] for share in told["Shares"]] == ["ml.c5.xlarge", "ml.c5.xlarge", "ml.m5.large"]


def test_a_quote_says_what_the_machine_has_less_of(anna: As) -> None:
    told = anna("trainyard", "QuoteJob", InstanceType="ml.p4d.24xlarge", InstanceCount=3)
    assert "MostCost" not in {member for member, value in told.items() if value is not None}
    assert any("ml.p4d.24xlarge" in note for note in told["Notes"])


def test_a_quote_knows_what_runs_and_what_waits(anna: As) -> None:
    slots = anna.yard.workshop.engines.first.capacity().slots
    for number in range(3):
        create(anna.at(seconds(number)), f"job-{number}")
    start(anna, name="job-0")
    told = anna("trainyard", "QuoteJob", InstanceType="local", InstanceCount=1)
    assert (told["FreeSlots"], told["QueuedJobs"]) == (slots - 1, 2)


def test_a_type_that_nobody_knows_has_no_price(anna: As) -> None:
    with pytest.raises(Fault, match="is not an instance type this yard knows") as caught:
        anna("trainyard", "QuoteJob", InstanceType="ml.unheard", InstanceCount=1)
    assert caught.value.code == "ValidationException"

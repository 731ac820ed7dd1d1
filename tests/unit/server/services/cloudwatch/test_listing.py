from typing import Any
from unittest.mock import patch

from tests.unit.server.services.accounts import NOON, Accounts, As
from tests.unit.server.services.cloudwatch.metrics import JOB, Metrics, minute
from trainyard.server.services.contract import Shape


def test_a_metric_is_listed_once_whatever_units_it_was_put_with(accounts: Accounts) -> None:
    metrics = Metrics(accounts.anna)
    for unit in ("Count", "Seconds"):
        metrics.put(Value=1.0, Unit=unit, Dimensions=JOB)
    assert listed(accounts.anna) == [{"Namespace": "Yard", "MetricName": "loss", "Dimensions": JOB}]


def test_metrics_are_found_by_namespace_name_and_dimensions(accounts: Accounts) -> None:
    other = [{"Name": "TrainingJobName", "Value": "bert"}, {"Name": "Host", "Value": "algo-1"}]
    Metrics(accounts.anna, "A").put("loss", Value=1.0)
    Metrics(accounts.anna, "A").put("loss", Value=1.0, Dimensions=JOB)
    Metrics(accounts.anna, "A/B").put("loss", Value=1.0, Dimensions=other)
    Metrics(accounts.anna, "A/B").put("loss/x", Value=1.0)
    assert found(accounts.anna, Namespace="A") == ["A loss", "A loss mnist"]
    assert found(accounts.anna, Namespace="A/B") == ["A/B loss algo-1 bert", "A/B loss/x"]
    assert found(accounts.anna, MetricName="loss") == ["A loss", "A loss mnist", "A/B loss algo-1 bert"]
    assert found(accounts.anna, Namespace="A/B", MetricName="loss/x") == ["A/B loss/x"]
    assert found(accounts.anna, Dimensions=[{"Name": "TrainingJobName"}]) == ["A loss mnist", "A/B loss algo-1 bert"]
    assert found(accounts.anna, Dimensions=JOB) == ["A loss mnist"]
    assert found(accounts.anna, Dimensions=[{"Name": "Host"}, {"Name": "TrainingJobName"}]) == ["A/B loss algo-1 bert"]
    assert found(accounts.anna, Namespace="Nothing") == []


def test_only_recently_active_metrics_are_listed_when_asked_for(accounts: Accounts) -> None:
    Metrics(accounts.anna).put("old", Value=1.0, Timestamp=NOON)
    Metrics(accounts.anna).put("new", Value=1.0, Timestamp=minute(60))
    later = accounts.anna.at(minute(200))
    assert [metric["MetricName"] for metric in listed(later, RecentlyActive="PT3H")] == ["new"]


def test_pages_hold_at_most_500_and_every_metric_once(accounts: Accounts) -> None:
    metrics = Metrics(accounts.anna)
    # 600 waits for the disk would prove nothing here.
    with patch("trainyard.formats.metrics.os.fdatasync"):
        metrics.put_all([{"MetricName": f"m{number}", "Value": 1.0} for number in range(600)])
    first = accounts.anna("cloudwatch", "ListMetrics")
    second = accounts.anna("cloudwatch", "ListMetrics", NextToken=first["NextToken"])
    assert (len(first["Metrics"]), len(second["Metrics"])) == (500, 100)
    assert "NextToken" not in second
    names = {metric["MetricName"] for metric in first["Metrics"] + second["Metrics"]}
    assert names == {f"m{number}" for number in range(600)}


def test_a_filter_that_rarely_matches_still_pages_to_the_end(accounts: Accounts) -> None:
    metrics = Metrics(accounts.anna)
    for number in range(12):
        metrics.put(f"m{number:02}", Value=1.0, Dimensions=JOB if number == 11 else [])
    with (
        patch("trainyard.server.services.cloudwatch.listing.PAGE", 2),
        patch("trainyard.server.services.cloudwatch.listing.MAX_SCANNED", 4),
    ):
        answer = accounts.anna("cloudwatch", "ListMetrics", Dimensions=JOB)
        assert answer["Metrics"] == []
        names = []
        while "NextToken" in answer:
            answer = accounts.anna("cloudwatch", "ListMetrics", Dimensions=JOB, NextToken=answer["NextToken"])
            names += [metric["MetricName"] for metric in answer["Metrics"]]
    assert names == ["m11"]


def test_users_list_their_own_metrics_and_an_administrator_all(accounts: Accounts) -> None:
    Metrics(accounts.anna).put(Value=1.0)
    Metrics(accounts.ben).put(Value=1.0)
    assert len(listed(accounts.anna)) == 1
    assert listed(accounts.anna, OwningAccount=accounts.ben.account) == []
    answer = accounts.admin("cloudwatch", "ListMetrics", IncludeLinkedAccounts=True)
    assert sorted(answer["OwningAccounts"]) == sorted([accounts.anna.account, accounts.ben.account])
    assert len(listed(accounts.admin, OwningAccount=accounts.ben.account)) == 1


def listed(caller: As, **request: Any) -> list[Shape]:
    metrics: list[Shape] = caller("cloudwatch", "ListMetrics", **request)["Metrics"]
    return metrics


def found(caller: As, **request: Any) -> list[str]:
    """Return the metrics as sorted text, because those of one name come in any order."""
    return sorted(
        " ".join([each["Namespace"], each["MetricName"], *(pair["Value"] for pair in each["Dimensions"])])
        for each in listed(caller, **request)
    )

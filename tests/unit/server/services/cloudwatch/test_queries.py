from datetime import timedelta
from typing import Any

import pytest

from tests.unit.server.services.accounts import NOON, Accounts
from tests.unit.server.services.cloudwatch.metrics import Metrics, minute
from trainyard.server.services.contract import Shape
from trainyard.wire.fault import Fault


def test_several_metrics_are_answered_in_one_call_the_newest_value_first(accounts: Accounts) -> None:
    metrics = Metrics(accounts.anna)
    for number in range(3):
        metrics.put("loss", Value=float(number), Timestamp=minute(number))
        metrics.put("speed", Value=10.0 * number, Timestamp=minute(number))
    loss, speed, nothing = metrics.data(
        metrics.query("a", stat="Average"),
        metrics.query("b", name="speed", stat="Maximum", Label="how fast"),
        metrics.query("c", name="never"),
    )["MetricDataResults"]
    assert loss == {
        "Id": "a",
        "Label": "loss",
        "Timestamps": [minute(2), minute(1), minute(0)],
        "Values": [2.0, 1.0, 0.0],
        "StatusCode": "Complete",
    }
    assert (speed["Label"], speed["Values"]) == ("how fast", [20.0, 10.0, 0.0])
    assert (nothing["Values"], nothing["StatusCode"]) == ([], "Complete")


def test_queries_of_one_metric_have_distinct_labels(accounts: Accounts) -> None:
    metrics = Metrics(accounts.anna)

    def labels(*asked: tuple[str, int]) -> list[str]:
        queries = [metrics.query(f"q{number}", stat=stat, period=s) for number, (stat, s) in enumerate(asked)]
        other = metrics.query("other", name="speed", stat="p90")
        return [result["Label"] for result in metrics.data(*queries, other)["MetricDataResults"]]

    assert labels(("Sum", 60)) == ["loss", "speed"]
    assert labels(("Sum", 60), ("Minimum", 60)) == ["loss Sum", "loss Minimum", "speed"]
    assert labels(("Sum", 60), ("Sum", 300)) == ["loss 60", "loss 300", "speed"]
    assert labels(("Sum", 60), ("Average", 300)) == ["loss Sum 60", "loss Average 300", "speed"]


def test_the_oldest_value_comes_first_when_asked_for(accounts: Accounts) -> None:
    metrics = Metrics(accounts.anna)
    for number in range(3):
        metrics.put(Values=[float(number), 9.0], Timestamp=minute(number))
    (result,) = metrics.data(metrics.query(stat="p50"), ScanBy="TimestampAscending")["MetricDataResults"]
    assert (result["Timestamps"], result["Values"]) == ([minute(0), minute(1), minute(2)], [0.0, 1.0, 2.0])


def test_units_are_put_together_unless_one_is_chosen(accounts: Accounts) -> None:
    metrics = Metrics(accounts.anna)
    metrics.put(Value=1.0, Unit="Count", Timestamp=NOON)
    metrics.put(Value=2.0, Unit="Seconds", Timestamp=NOON)
    query = metrics.query()
    assert metrics.data(query)["MetricDataResults"][0]["Values"] == [3.0]
    query["MetricStat"]["Unit"] = "Seconds"
    assert metrics.data(query)["MetricDataResults"][0]["Values"] == [2.0]


def test_a_query_with_return_data_false_is_left_out(accounts: Accounts) -> None:
    metrics = Metrics(accounts.anna)
    results = metrics.data(metrics.query("a", ReturnData=False), metrics.query("b"))["MetricDataResults"]
    assert [result["Id"] for result in results] == ["b"]


@pytest.mark.parametrize("scan_by", ["TimestampAscending", "TimestampDescending"])
@pytest.mark.parametrize("page", [1, 2, 3, 5, 10])
def test_pages_of_any_size_hold_every_value_once_also_when_more_come_meanwhile(
    accounts: Accounts, scan_by: str, page: int
) -> None:
    metrics = Metrics(accounts.anna)
    for number in range(5):
        metrics.put("loss", Value=float(number), Timestamp=minute(10 + number))
        metrics.put("speed", Value=float(number), Timestamp=minute(10 + number))
    queries = [metrics.query("a"), metrics.query("b", name="speed")]
    answer = metrics.data(*queries, ScanBy=scan_by, MaxDatapoints=page)
    seen: dict[str, list[float]] = {"a": [], "b": []}
    collect(answer, seen, page)
    # A point on the side of the range that was already read must not push another one onto the next page.
    metrics.put("loss", Value=99.0, Timestamp=minute(1 if scan_by == "TimestampAscending" else 50))
    while "NextToken" in answer:
        answer = metrics.data(*queries, ScanBy=scan_by, MaxDatapoints=page, NextToken=answer["NextToken"])
        collect(answer, seen, page)
    expected = [0.0, 1.0, 2.0, 3.0, 4.0]
    expected = expected if scan_by == "TimestampAscending" else expected[::-1]
    assert seen == {"a": expected, "b": expected}


def collect(answer: Shape, seen: dict[str, list[float]], page: int) -> None:
    assert sum(len(result["Values"]) for result in answer["MetricDataResults"]) <= page
    for result in answer["MetricDataResults"]:
        assert len(result["Timestamps"]) == len(result["Values"])
        seen[result["Id"]] += result["Values"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"Id": "Capital"}, "begin with a lower-case letter"),
        ({"Id": "a-b"}, "letters, digits and underscores"),
        ({"Expression": "m1 / m2"}, "does not serve metric math"),
        ({"MetricStat": None}, "has no MetricStat"),
        ({"stat": "tm90"}, "is not served"),
        ({"period": 7}, "Period is invalid"),
        ({"no_name": True}, "has no MetricName"),
    ],
)
def test_a_query_that_cannot_be_answered_is_refused(accounts: Accounts, change: dict[str, Any], message: str) -> None:
    metrics = Metrics(accounts.anna)
    query = metrics.query(stat=change.pop("stat", "Sum"), period=change.pop("period", 60))
    if change.pop("no_name", False):
        del query["MetricStat"]["Metric"]["MetricName"]
    query |= change
    if query["MetricStat"] is None:
        del query["MetricStat"]
    with pytest.raises(Fault, match=message) as refused:
        metrics.data(query)
    assert refused.value.code == "ValidationError"


@pytest.mark.parametrize(
    "request_",
    [
        {"MaxDatapoints": 0},
        {"MaxDatapoints": 100_801},
        {"EndTime": NOON},
        {"MetricDataQueries": []},
        {"MetricDataQueries": [{"Id": "a"}, {"Id": "a"}]},
    ],
)
def test_a_request_that_cannot_be_answered_is_refused(accounts: Accounts, request_: dict[str, Any]) -> None:
    metrics = Metrics(accounts.anna)
    queries = request_.pop("MetricDataQueries", [metrics.query()])
    with pytest.raises(Fault) as refused:
        metrics.data(*queries, **request_)
    assert refused.value.code == "ValidationError"


@pytest.mark.parametrize(
    "token", ["nonsense", "W10=", "WzEsMiwzXQ==", "Wy0xLG51bGxd", "WzEsOTk5OTk5OTk5OTk5OTk5OTk5OTk5XQ=="]
)
def test_an_invalid_token_is_refused(accounts: Accounts, token: str) -> None:
    metrics = Metrics(accounts.anna)
    with pytest.raises(Fault) as refused:
        metrics.data(metrics.query(), NextToken=token)
    assert refused.value.code == "InvalidNextToken"


def test_the_account_of_a_query_is_the_callers_own_or_any_for_an_administrator(accounts: Accounts) -> None:
    Metrics(accounts.anna).put(Value=1.0, Timestamp=NOON)
    Metrics(accounts.ben).put(Value=2.0, Timestamp=NOON)

    def read(caller: Any, account: str) -> list[float]:
        metrics = Metrics(caller)
        values: list[float] = metrics.data(metrics.query(AccountId=account))["MetricDataResults"][0]["Values"]
        return values

    assert read(accounts.anna, accounts.anna.account) == [1.0]
    assert read(accounts.anna, accounts.ben.account) == []
    assert read(accounts.admin, accounts.ben.account) == [2.0]
    assert read(accounts.admin, accounts.admin.account) == []


def test_a_long_range_in_short_periods_reads_only_existing_points(accounts: Accounts) -> None:
    metrics = Metrics(accounts.anna)
    metrics.put(Value=1.0, Timestamp=NOON)
    years = {"StartTime": NOON - timedelta(days=3650), "EndTime": NOON + timedelta(days=3650)}
    (result,) = metrics.data(metrics.query(period=1), **years)["MetricDataResults"]
    assert (result["Timestamps"], result["Values"]) == ([NOON], [1.0])

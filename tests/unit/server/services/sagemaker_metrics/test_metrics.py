"""Metrics that clients put into trial components, their summaries, and what a kill leaves behind."""

from datetime import timedelta
from typing import Any

import pytest

from tests.unit.foundation.sample_jobs import seconds
from tests.unit.server.services.accounts import NOON, Accounts, As
from trainyard.server.control.experiments.metric_summaries import MetricSummaryKind
from trainyard.server.experiments import metric_inbox
from trainyard.server.experiments.metric_inbox import MetricInbox
from trainyard.wire.fault import Fault


@pytest.fixture
def anna(accounts: Accounts) -> As:
    accounts.anna("sagemaker", "CreateTrialComponent", TrialComponentName="run")
    return accounts.anna


def put(user: As, *data: tuple[str, float, int], name: str = "run") -> Any:
    metrics = [
        {"MetricName": metric, "Value": value, "Step": step, "Timestamp": NOON + timedelta(seconds=20 * step)}
        for metric, value, step in data
    ]
    return user.at(NOON + timedelta(hours=1))(
        "sagemaker-metrics", "BatchPutMetrics", TrialComponentName=name, MetricData=metrics
    )


def summarize_due(user: As, inbox: MetricInbox | None = None, *, at: float = 9000) -> int:
    """Do what the controller does at that moment; return how many components were due."""
    yard = user.yard
    kind = MetricSummaryKind(
        yard.records, inbox or yard.metric_inbox, yard.metrics, lambda: seconds(at), worker="w", site=yard.compute.site
    )
    count = 0
    for claim in kind.claim_due():
        kind.step(claim, ())
        count += 1
    return count


def metrics_of(user: As, name: str = "run") -> dict[str, Any]:
    found = user("sagemaker", "DescribeTrialComponent", TrialComponentName=name)["Metrics"]
    return {each["MetricName"]: each for each in found}


def get(user: As, metric: str, stat: str, period: str = "IterationNumber", **asked: Any) -> Any:
    arn = user("sagemaker", "DescribeTrialComponent", TrialComponentName="run")["TrialComponentArn"]
    axis = "IterationNumber" if period == "IterationNumber" else "Timestamp"
    query = {"MetricName": metric, "ResourceArn": arn, "MetricStat": stat, "Period": period, "XAxisType": axis}
    [result] = user("sagemaker-metrics", "BatchGetMetrics", MetricQueries=[query | asked])["MetricQueryResults"]
    return result


def test_metrics_are_summarised_and_found_by_a_search(anna: As) -> None:
    assert put(anna, ("loss", 2.0, 0), ("loss", 1.0, 1), ("acc", 0.5, 1)) == {}
    put(anna, ("loss", 4.0, 2))
    assert summarize_due(anna) == 1
    loss = metrics_of(anna)["loss"]
    assert {name: loss[name] for name in ("Last", "Min", "Max", "Count")} == {
        "Last": 4.0,
        "Min": 1.0,
        "Max": 4.0,
        "Count": 3,
    }
    assert loss["Avg"] == pytest.approx(7 / 3)
    assert loss["StdDev"] == pytest.approx(1.5275, abs=1e-4)
    for name, operator, value, count in (
        ("Metrics.loss.Last", "GreaterThan", "3.9", 1),
        ("metrics.loss.min", "LessThan", "1", 0),
        ("Metrics.loss.Avg", "LessThan", "2.4", 1),
        ("Metrics.acc", "Exists", None, 1),
    ):
        wanted = {"Name": name, "Operator": operator} | ({"Value": value} if value else {})
        found = anna(
            "sagemaker",
            "Search",
            Resource="ExperimentTrialComponent",
            SearchExpression={"Filters": [wanted]},
            SortBy="metrics.loss.max",
        )
        assert len(found["Results"]) == count, name


def test_a_summary_does_not_count_as_a_modification_and_keeps_what_users_change_meanwhile(anna: As) -> None:
    put(anna, ("loss", 2.0, 0))
    anna.at(seconds(5))(
        "sagemaker", "UpdateTrialComponent", TrialComponentName="run", Parameters={"lr": {"NumberValue": 1}}
    )
    summarize_due(anna)
    found = anna("sagemaker", "DescribeTrialComponent", TrialComponentName="run")
    assert (found["LastModifiedTime"], found["Parameters"]) == (seconds(5), {"lr": {"NumberValue": 1.0}})


def test_only_components_with_new_metrics_are_due(anna: As) -> None:
    put(anna, ("loss", 2.0, 0))
    assert (summarize_due(anna), summarize_due(anna, at=9001)) == (1, 0)
    put(anna, ("loss", 3.0, 1))
    assert (summarize_due(anna, at=9002), metrics_of(anna)["loss"]["Count"]) == (1, 2)


def test_metrics_that_come_while_a_summary_is_made_are_summarised_soon(
    anna: As, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(anna, ("loss", 1.0, 0))
    original = metric_inbox._add_batch

    def add_and_put(*arguments: Any, **named: Any) -> bool:
        is_added = original(*arguments, **named)
        if not is_added and metrics_of(anna)["loss"]["Count"] == 1:
            put(anna, ("loss", 2.0, 1))
        return is_added

    # What a client does at the worst moment: after the last read, before the record is settled.
    monkeypatch.setattr(metric_inbox, "_add_batch", add_and_put)
    assert summarize_due(anna) == 1
    assert summarize_due(anna, at=9002) == 1
    assert metrics_of(anna)["loss"]["Count"] == 2


def test_a_killed_yard_finds_all_metrics_that_it_acknowledged_and_doubles_none(anna: As) -> None:
    put(anna, ("loss", 1.0, 0))
    summarize_due(anna)
    put(anna, ("loss", 2.0, 1), ("acc", 1.0, 1))
    assert summarize_due(anna, MetricInbox(), at=9002) == 1
    assert (metrics_of(anna)["loss"]["Count"], metrics_of(anna)["acc"]["Count"]) == (2, 1)


def test_what_is_refused_does_not_affect_the_rest(anna: As, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_inbox, "MAX_METRICS", 2)
    answer = put(anna, ("a", 1.0, 0), ("b", 1.0, 100_000), ("c", float("nan"), 0), ("d", 1.0, 0), ("e", 1.0, 0))
    codes = {each["MetricIndex"]: each["Code"] for each in answer["Errors"]}
    assert codes == {1: "VALIDATION_ERROR", 2: "VALIDATION_ERROR", 4: "METRIC_LIMIT_EXCEEDED"}
    summarize_due(anna)
    assert sorted(metrics_of(anna)) == ["a", "d"]


def test_a_component_that_does_not_exist_takes_no_metrics(accounts: Accounts, anna: As) -> None:
    for user, name in ((anna, "none"), (accounts.ben, "run")):
        with pytest.raises(Fault, match="does not exist"):
            put(user, ("loss", 1.0, 0), name=name)
    put(anna, ("loss", 1.0, 0))
    folder = anna.yard.metrics
    assert len(list(folder.iterdir())) == 1
    anna("sagemaker", "DeleteTrialComponent", TrialComponentName="run")
    assert list(folder.iterdir()) == []
    assert summarize_due(anna) == 0
    with pytest.raises(Fault, match="does not exist"):
        put(anna, ("loss", 1.0, 0))


def test_series_are_read_by_step_and_by_time(anna: As) -> None:
    put(anna, *(("loss", float(step % 5), step) for step in range(10)))
    assert get(anna, "loss", "Last") == {
        "Status": "Complete",
        "XAxisValues": list(range(10)),
        "MetricValues": [float(step % 5) for step in range(10)],
    }
    assert get(anna, "loss", "Last", Start=3, End=4)["XAxisValues"] == [3, 4]
    by_minute = get(anna, "loss", "Max", "OneMinute")
    noon = int(NOON.timestamp())
    assert by_minute["XAxisValues"] == [noon, noon + 60, noon + 120, noon + 180]
    assert by_minute["MetricValues"] == [2.0, 4.0, 3.0, 4.0]
    assert get(anna, "loss", "Count", "OneHour")["MetricValues"] == [10.0]
    assert get(anna, "none", "Last")["XAxisValues"] == []
    assert get(anna, "loss", "Avg", XAxisType="Timestamp")["Status"] == "ValidationError"


def test_a_query_for_what_is_no_component_fails_alone(accounts: Accounts, anna: As) -> None:
    arn = anna("sagemaker", "DescribeTrialComponent", TrialComponentName="run")["TrialComponentArn"]
    query = {"MetricName": "x", "MetricStat": "Last", "Period": "IterationNumber", "XAxisType": "IterationNumber"}
    for user, asked in ((anna, arn.replace("-component", "")), (anna, f"{arn}x"), (accounts.ben, arn)):
        [found] = user("sagemaker-metrics", "BatchGetMetrics", MetricQueries=[{**query, "ResourceArn": asked}])[
            "MetricQueryResults"
        ]
        assert (found["Status"], found["XAxisValues"]) == ("ValidationError", [])


def test_records_of_new_metrics_do_not_outlive_their_component(anna: As) -> None:
    put(anna, ("loss", 1.0, 0))
    anna("sagemaker", "DeleteTrialComponent", TrialComponentName="run")
    kind = metric_inbox.due_kind(anna.yard.compute.site)
    assert anna.yard.records.in_state(kind) == []


def test_the_end_of_a_run_brings_its_summary_up_to_date(anna: As) -> None:
    put(anna, ("loss", 1.0, 0))
    ended = {"PrimaryStatus": "Completed"}
    anna("sagemaker", "UpdateTrialComponent", TrialComponentName="run", Status=ended)
    assert metrics_of(anna)["loss"]["Count"] == 1
    assert (summarize_due(anna), metrics_of(anna)["loss"]["Count"]) == (1, 1)

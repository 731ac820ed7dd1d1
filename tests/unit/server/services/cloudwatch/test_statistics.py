from datetime import timedelta
from typing import Any

import pytest

from tests.unit.server.services.accounts import NOON, Accounts
from tests.unit.server.services.cloudwatch.metrics import Metrics, minute
from trainyard.wire.fault import Fault


def test_points_fall_into_periods_from_the_start_of_the_range(accounts: Accounts) -> None:
    metrics = Metrics(accounts.anna)
    for number in range(10):
        metrics.put(Value=1.0, Timestamp=minute(number))
    points = metrics.statistics("Sum", StartTime=minute(1), Period=180)
    assert [(point["Timestamp"], point["Sum"]) for point in points] == [
        (minute(1), 3.0),
        (minute(4), 3.0),
        (minute(7), 3.0),
    ]


def test_the_start_is_included_and_the_end_is_not(accounts: Accounts) -> None:
    metrics = Metrics(accounts.anna)
    for number in range(4):
        metrics.put(Value=float(number), Timestamp=minute(number))
    points = metrics.statistics("Sum", StartTime=minute(1), EndTime=minute(3))
    assert [point["Sum"] for point in points] == [1.0, 2.0]


def test_units_are_separate_and_can_be_selected(accounts: Accounts) -> None:
    metrics = Metrics(accounts.anna)
    metrics.put(Value=1.0, Unit="Bytes/Second", Timestamp=NOON)
    metrics.put(Value=2.0, Unit="Count", Timestamp=NOON)
    assert [(point["Unit"], point["Sum"]) for point in metrics.statistics("Sum")] == [
        ("Bytes/Second", 1.0),
        ("Count", 2.0),
    ]
    assert [point["Sum"] for point in metrics.statistics("Sum", Unit="Count")] == [2.0]
    assert metrics.statistics("Sum", Unit="Percent") == []


def test_percentiles_come_where_the_values_are_known(accounts: Accounts) -> None:
    metrics = Metrics(accounts.anna)
    metrics.put(Values=[float(value) for value in range(1, 101)], Timestamp=NOON)
    metrics.put(Timestamp=minute(1), StatisticValues={"SampleCount": 2.0, "Sum": 3.0, "Minimum": 1.0, "Maximum": 2.0})
    (point,) = metrics.statistics(ExtendedStatistics=["p50", "p99.5", "p0", "p100"])
    assert point["Timestamp"] == NOON
    assert point["ExtendedStatistics"] == {"p50": 50.0, "p99.5": 100.0, "p0": 1.0, "p100": 100.0}


def test_1440_datapoints_may_be_asked_for_and_no_more(accounts: Accounts) -> None:
    metrics = Metrics(accounts.anna)
    metrics.put(Value=1.0, Timestamp=NOON)
    day: dict[str, Any] = {"StartTime": NOON, "EndTime": NOON + timedelta(days=1)}
    assert len(metrics.statistics("Sum", **day)) == 1
    with pytest.raises(Fault, match=r"up to 2,880 datapoints, which exceeds the limit of 1,440") as refused:
        metrics.statistics("Sum", Period=30, **day)
    assert refused.value.code == "InvalidParameterCombination"


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({"Statistics": ["Sum"], "Period": 45}, "InvalidParameterValue"),
        ({"Statistics": ["Sum"], "EndTime": NOON}, "InvalidParameterValue"),
        ({}, "InvalidParameterCombination"),
        ({"Statistics": ["Sum"], "ExtendedStatistics": ["p50"]}, "InvalidParameterCombination"),
        ({"ExtendedStatistics": ["tm99"]}, "InvalidParameterValue"),
        ({"ExtendedStatistics": ["p101"]}, "InvalidParameterValue"),
    ],
)
def test_a_question_that_has_no_answer_is_refused(accounts: Accounts, request_: dict[str, Any], code: str) -> None:
    with pytest.raises(Fault) as refused:
        Metrics(accounts.anna).statistics(**request_)
    assert refused.value.code == code


def test_a_metric_of_another_user_is_not_there_but_an_administrator_reads_it(accounts: Accounts) -> None:
    Metrics(accounts.anna).put(Value=1.0, Timestamp=NOON)
    assert Metrics(accounts.ben).statistics("Sum") == []
    assert [point["Sum"] for point in Metrics(accounts.admin).statistics("Sum")] == [1.0]
    Metrics(accounts.ben).put(Value=2.0, Timestamp=NOON)
    assert [point["Sum"] for point in Metrics(accounts.anna).statistics("Sum")] == [1.0]
    assert [point["Sum"] for point in Metrics(accounts.ben).statistics("Sum")] == [2.0]
    with pytest.raises(Fault, match="several accounts"):
        Metrics(accounts.admin).statistics("Sum")
    Metrics(accounts.admin).put(Value=4.0, Timestamp=NOON)
    assert [point["Sum"] for point in Metrics(accounts.admin).statistics("Sum")] == [4.0]


def test_a_metric_never_put_has_no_datapoints(accounts: Accounts) -> None:
    assert Metrics(accounts.anna).statistics("Sum", name="never") == []

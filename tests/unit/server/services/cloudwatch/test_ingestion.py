import math
from datetime import timedelta

import pytest

from tests.unit.server.services.accounts import NOON, Accounts
from tests.unit.server.services.cloudwatch.metrics import JOB, Metrics, minute
from trainyard.wire.fault import Fault

ALL = ("Sum", "Average", "Minimum", "Maximum", "SampleCount")


def test_a_value_is_stored_with_its_time(accounts: Accounts) -> None:
    metrics = Metrics(accounts.anna)
    metrics.put(Value=2.5, Timestamp=minute(3.5), Unit="Seconds")
    assert metrics.statistics(*ALL) == [
        {
            "Timestamp": minute(3),
            "Unit": "Seconds",
            "Sum": 2.5,
            "Average": 2.5,
            "Minimum": 2.5,
            "Maximum": 2.5,
            "SampleCount": 1.0,
        }
    ]


def test_a_value_defaults_to_the_current_time_and_no_unit(accounts: Accounts) -> None:
    metrics = Metrics(accounts.anna)
    metrics.at(minute(7)).put(Value=1.0)
    (point,) = metrics.statistics("Sum")
    assert (point["Timestamp"], point["Unit"]) == (minute(7), "None")


def test_values_with_counts_and_statistics_add_up(accounts: Accounts) -> None:
    metrics = Metrics(accounts.anna)
    metrics.put(Values=[1.0, 5.0, 9.0], Counts=[2.0, 1.0, 0.0], Timestamp=NOON)
    metrics.put(Values=[3.0], Timestamp=NOON)
    statistics = {"SampleCount": 4.0, "Sum": 20.0, "Minimum": 0.5, "Maximum": 8.0}
    metrics.put(StatisticValues=statistics, Timestamp=NOON)
    (point,) = metrics.statistics(*ALL)
    assert point == {
        "Timestamp": NOON,
        "Unit": "None",
        "Sum": 30.0,
        "SampleCount": 8.0,
        "Average": 3.75,
        "Minimum": 0.5,
        "Maximum": 8.0,
    }


def test_dimensions_make_metrics_of_their_own_in_any_order(accounts: Accounts) -> None:
    metrics = Metrics(accounts.anna)
    pair = [{"Name": "A", "Value": "1"}, {"Name": "B", "Value": "2"}]
    metrics.put(Value=1.0, Timestamp=NOON)
    metrics.put(Value=2.0, Timestamp=NOON, Dimensions=JOB)
    metrics.put(Value=3.0, Timestamp=NOON, Dimensions=pair)
    metrics.put(Value=4.0, Timestamp=NOON, Dimensions=pair[::-1])
    assert [point["Sum"] for point in metrics.statistics("Sum")] == [1.0]
    assert [point["Sum"] for point in metrics.statistics("Sum", Dimensions=JOB)] == [2.0]
    assert [point["Sum"] for point in metrics.statistics("Sum", Dimensions=pair[::-1])] == [7.0]


@pytest.mark.parametrize(
    ("datum", "code"),
    [
        ({}, "MissingParameter"),
        ({"Value": 1.0, "Values": [1.0]}, "InvalidParameterCombination"),
        ({"Value": math.nan}, "InvalidParameterValue"),
        ({"Value": math.inf}, "InvalidParameterValue"),
        ({"Value": -(2.0**361)}, "InvalidParameterValue"),
        ({"Values": []}, "InvalidParameterValue"),
        ({"Values": [1.0] * 151}, "InvalidParameterValue"),
        ({"Values": [1.0, 2.0], "Counts": [1.0]}, "InvalidParameterValue"),
        ({"Values": [1.0], "Counts": [-1.0]}, "InvalidParameterValue"),
        ({"Values": [2.0**359], "Counts": [8.0]}, "InvalidParameterValue"),
        (
            {"StatisticValues": {"SampleCount": 0.0, "Sum": 0.0, "Minimum": 0.0, "Maximum": 0.0}},
            "InvalidParameterValue",
        ),
        (
            {"StatisticValues": {"SampleCount": 1.0, "Sum": 0.0, "Minimum": 2.0, "Maximum": 1.0}},
            "InvalidParameterValue",
        ),
        ({"Value": 1.0, "StorageResolution": 30}, "InvalidParameterValue"),
        ({"Value": 1.0, "Timestamp": NOON - timedelta(days=14, seconds=1)}, "InvalidParameterValue"),
        ({"Value": 1.0, "Timestamp": NOON + timedelta(hours=2, seconds=1)}, "InvalidParameterValue"),
        ({"Value": 1.0, "Dimensions": JOB * 2}, "InvalidParameterValue"),
        ({"Value": 1.0, "Dimensions": [{"Name": ":colon", "Value": "x"}]}, "InvalidParameterValue"),
        ({"Value": 1.0, "Dimensions": [{"Name": "x", "Value": "\x00"}]}, "InvalidParameterValue"),
        ({"Value": 1.0, "MetricName": "half \ud800 pair"}, "InvalidParameterValue"),
    ],
)
def test_one_bad_datum_refuses_the_request_whole(accounts: Accounts, datum: dict[str, object], code: str) -> None:
    metrics = Metrics(accounts.anna)
    good = {"MetricName": "loss", "Value": 1.0}
    with pytest.raises(Fault, match=r"MetricData\.member\.2") as refused:
        metrics.put_all([good, {"MetricName": "loss"} | datum])
    assert (refused.value.code, refused.value.status) == (code, 400)
    assert metrics.statistics("Sum") == []
    assert accounts.anna("cloudwatch", "ListMetrics")["Metrics"] == []


def test_mutually_exclusive_members_are_refused_in_the_words_of_cloudwatch(accounts: Accounts) -> None:
    where = "MetricData.member.1"
    for datum, message in (
        (
            {"Value": 1.0, "Values": [1.0]},
            f"The parameters {where}.Value and {where}.Values are mutually exclusive and you have specified both.",
        ),
        (
            {"Values": [1.0, 2.0], "Counts": [1.0]},
            f"The parameters {where}.Values and {where}.Counts must be of the same size.",
        ),
    ):
        with pytest.raises(Fault) as refused:
            Metrics(accounts.anna).put_all([{"MetricName": "loss"} | datum])
        assert refused.value.message == message


def test_values_count_where_a_summary_of_them_is_given_too(accounts: Accounts) -> None:
    metrics = Metrics(accounts.anna)
    summary = {"SampleCount": 10.0, "Sum": 55.0, "Minimum": 1.0, "Maximum": 10.0}
    metrics.put_all([{"MetricName": "loss", "Values": [1.0, 2.0], "StatisticValues": summary}])
    assert [point["Sum"] for point in metrics.statistics("Sum")] == [3.0]


@pytest.mark.parametrize(
    ("request_", "code", "message"),
    [
        (
            {"Namespace": "AWS/EC2", "MetricData": [{"MetricName": "x", "Value": 1.0}]},
            "InvalidParameterValue",
            "reserved",
        ),
        (
            {"Namespace": "  ", "MetricData": [{"MetricName": "x", "Value": 1.0}]},
            "InvalidParameterValue",
            "must not be blank",
        ),
        ({"Namespace": "Yard"}, "MissingParameter", "MetricData"),
        (
            {"Namespace": "Yard", "MetricData": [{"MetricName": "x", "Value": 1.0}] * 1001},
            "InvalidParameterValue",
            "size greater than 1000",
        ),
        ({"Namespace": "Yard", "EntityMetricData": [{"MetricData": []}]}, "InvalidParameterValue", "not served"),
    ],
)
def test_an_invalid_request_is_refused(
    accounts: Accounts, request_: dict[str, object], code: str, message: str
) -> None:
    with pytest.raises(Fault, match=message) as refused:
        accounts.anna("cloudwatch", "PutMetricData", **request_)
    assert refused.value.code == code


def test_the_namespace_of_training_jobs_may_be_used(accounts: Accounts) -> None:
    metrics = Metrics(accounts.anna, "/aws/sagemaker/TrainingJobs")
    metrics.put("validation:loss", Value=0.25, Timestamp=NOON, Dimensions=JOB)
    (point,) = metrics.statistics("Average", name="validation:loss", Dimensions=JOB)
    assert point["Average"] == 0.25

import json
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Trainyard
from tests.unit.recording import RecordingApi

POINTS = {"instance": "algo-1", "attempt": 2, "at_us": [0, 1_500_000], "values": [0.5, 0.25]}
NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("definition", ["loss", "=x", "loss="])
def test_an_invalid_definition_is_a_usage_error(trainyard: Trainyard, definition: str) -> None:
    result = trainyard("metrics", "@last", "--define", definition)
    assert result.code == 2
    assert "is not NAME=REGEX" in result.err


def test_the_metrics_of_a_job_of_more_than_a_day_are_all_asked_for(
    trainyard: Trainyard, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = [
        {"Minimum": 0.5, "Maximum": 0.9, "SampleCount": 1500.0},
        {"Minimum": 0.25, "Maximum": 0.5, "SampleCount": 500.0},
    ]
    api = RecordingApi(
        DescribeTrainingJob={
            "TrainingJobName": "long",
            "CreationTime": NOON,
            "TrainingEndTime": NOON + timedelta(hours=30),
            "FinalMetricDataList": [{"MetricName": "loss", "Value": 0.25, "Timestamp": NOON}],
        },
        GetMetricStatistics={"Datapoints": points},
        ReadMetric={"Lines": [POINTS, {}]},
    )
    monkeypatch.setattr("trainyard.cli.jobs.metrics.open_api", lambda _: nullcontext(api))

    (metric,) = json.loads(trainyard("metrics", "long", "--json").out)["Metrics"]

    assert (metric["SampleCount"], metric["Minimum"], metric["Maximum"]) == (2000, 0.25, 0.9)
    asked = api.only("GetMetricStatistics")
    assert (asked["EndTime"] - asked["StartTime"]) / timedelta(seconds=asked["Period"]) <= 1440
    assert metric["Points"][1] == {
        "Timestamp": "1970-01-01T00:00:01.500000+00:00",
        "Value": 0.25,
        "Instance": "algo-1",
        "Attempt": 2,
    }


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> RecordingApi:
    final = {"Value": 0.25, "Timestamp": NOON}
    api = RecordingApi(
        DescribeTrainingJob={
            "TrainingJobName": "mnist",
            "CreationTime": NOON,
            "TrainingEndTime": NOON,
            "FinalMetricDataList": [{"MetricName": "loss", **final}, {"MetricName": "<acc>", **final}],
        },
        ReadMetric={"Lines": [POINTS, {}]},
    )
    monkeypatch.setattr("trainyard.cli.jobs.metrics.open_api", lambda _: nullcontext(api))
    return api


def test_points_are_printed_as_csv(trainyard: Trainyard, api: RecordingApi) -> None:
    assert trainyard("metrics", "mnist", "--csv", "-m", "loss").out.splitlines() == [
        "metric,instance,attempt,timestamp,value",
        "loss,algo-1,2,1970-01-01T00:00:00+00:00,0.5",
        "loss,algo-1,2,1970-01-01T00:00:01.500000+00:00,0.25",
    ]


def test_points_that_are_not_selected_are_not_read(trainyard: Trainyard, api: RecordingApi) -> None:
    shown = json.loads(trainyard("metrics", "mnist", "--json", "MetricName,Value").out)
    assert shown["Metrics"] == [{"MetricName": "loss", "Value": 0.25}, {"MetricName": "<acc>", "Value": 0.25}]
    assert "ReadMetric" not in [operation for operation, _ in api.asked]

    shown = json.loads(trainyard("metrics", "mnist", "--json", "Points", "-m", "loss").out)
    assert [point["Value"] for point in shown["Metrics"][0]["Points"]] == [0.5, 0.25]


def test_an_interrupted_stream_of_points_is_a_failure(trainyard: Trainyard, api: RecordingApi) -> None:
    api.answers["ReadMetric"] = {"Lines": [POINTS]}
    result = trainyard("metrics", "mnist", "--csv")
    assert result.code == 1
    assert "before it had sent all points" in result.err


def test_an_unknown_metric_is_a_failure_that_names_the_known_ones(trainyard: Trainyard, api: RecordingApi) -> None:
    result = trainyard("metrics", "mnist", "-m", "los")
    assert (result.code, "loss, <acc>" in result.err) == (4, True)


def test_curves_are_written_to_a_page_of_their_own(trainyard: Trainyard, api: RecordingApi, tmp_path: Path) -> None:
    assert trainyard("metrics", "mnist", "--plot", str(tmp_path / "m.html")).code == 0
    page = (tmp_path / "m.html").read_text()
    assert "<title>Metrics of mnist</title>" in page
    assert "http" not in page.partition("<script")[0]
    assert api.asked[-1][1]["MaxPoints"] > 100

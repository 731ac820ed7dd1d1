import json
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta

import pytest

from tests.unit.cli.conftest import Trainyard
from tests.unit.recording import RecordingApi

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
    )
    monkeypatch.setattr("trainyard.cli.jobs.metrics.open_api", lambda _: nullcontext(api))

    (metric,) = json.loads(trainyard("metrics", "long", "--json").out)["metrics"]

    assert (metric["count"], metric["min"], metric["max"]) == (2000, 0.25, 0.9)
    asked = api.only("GetMetricStatistics")
    assert (asked["EndTime"] - asked["StartTime"]) / timedelta(seconds=asked["Period"]) <= 1440

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from tests.unit.recording import RecordingApi
from tests.unit.tuning_answers import NOON, RANGES, TRIALS, definition, description
from trainyard.analytics import HyperparameterTuningJobAnalytics, TrainingJobAnalytics
from trainyard.foundation.clock import to_micros
from trainyard.foundation.errors import Unavailable
from trainyard.session import Session


@pytest.fixture
def api() -> RecordingApi:
    return RecordingApi(
        DescribeHyperParameterTuningJob=description(),
        ListTrainingJobsForHyperParameterTuningJob={"TrainingJobSummaries": list(TRIALS)},
    )


@pytest.fixture
def analytics(api: RecordingApi) -> HyperparameterTuningJobAnalytics:
    return HyperparameterTuningJobAnalytics("study", Session(api=api))


def test_the_table_has_a_column_for_each_hyperparameter_and_for_the_result(
    analytics: HyperparameterTuningJobAnalytics,
) -> None:
    frame = analytics.dataframe()

    assert list(frame.columns) == [
        "lr",
        "layers",
        "opt",
        "TrainingJobName",
        "TrainingJobStatus",
        "FinalObjectiveValue",
        "TrainingStartTime",
        "TrainingEndTime",
        "TrainingElapsedTimeSeconds",
    ]
    best = frame.sort_values("FinalObjectiveValue", ascending=0).head(1)
    assert best["lr"].item() == 0.012345
    assert (best["layers"].item(), best["opt"].item()) == (2.0, '"adam"')
    assert best["TrainingElapsedTimeSeconds"].item() == 2.0
    assert frame["FinalObjectiveValue"].isna().sum() == 1


def test_the_name_of_the_algorithm_is_a_column_where_there_are_several(api: RecordingApi) -> None:
    summaries = [{**TRIALS[0], "TrainingJobDefinitionName": "net"}]
    api.answers["ListTrainingJobsForHyperParameterTuningJob"] = {"TrainingJobSummaries": summaries}
    frame = HyperparameterTuningJobAnalytics("study", Session(api=api)).dataframe()
    assert frame["TrainingJobDefinitionName"].tolist() == ["net"]


def test_the_yard_is_called_once_and_again_on_a_refresh(
    api: RecordingApi, analytics: HyperparameterTuningJobAnalytics
) -> None:
    assert api.asked == []
    first = analytics.dataframe()
    assert analytics.dataframe() is first
    assert analytics.dataframe(force_refresh=True) is not first
    listings = [name for name, _ in api.asked if name.startswith("ListTrainingJobs")]
    assert len(listings) == 2
    analytics.description()
    analytics.description()
    analytics.description(force_refresh=True)
    assert [name for name, _ in api.asked].count("DescribeHyperParameterTuningJob") == 2


def test_ranges_are_by_name_and_of_several_algorithms_by_theirs_first(api: RecordingApi) -> None:
    session = Session(api=api)
    ranges = HyperparameterTuningJobAnalytics("study", session).tuning_ranges
    assert ranges["layers"] == RANGES["IntegerParameterRanges"][0]
    told = description()
    del told["TrainingJobDefinition"]
    told["TrainingJobDefinitions"] = [definition(DefinitionName="net", HyperParameterRanges=RANGES)]
    api.answers["DescribeHyperParameterTuningJob"] = told
    assert set(HyperparameterTuningJobAnalytics("study", session).tuning_ranges["net"]) == {"lr", "layers", "opt"}


def test_the_table_can_be_written_to_a_file(analytics: HyperparameterTuningJobAnalytics, tmp_path: Path) -> None:
    analytics.export_csv(str(tmp_path / "study.csv"))
    assert (tmp_path / "study.csv").read_text().splitlines()[2].startswith("1,0.012345,2.0,")


def test_without_pandas_it_is_said_what_to_install(
    analytics: HyperparameterTuningJobAnalytics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(Unavailable, match=r"pip install 'trainyard\[pandas\]'"):
        analytics.dataframe()
    assert analytics.records()[1]["FinalObjectiveValue"] == 0.9


def test_a_period_is_asked_for_as_it_is_given() -> None:
    api = RecordingApi(
        DescribeTrainingJob={
            "AlgorithmSpecification": {"MetricDefinitions": [{"Name": "loss", "Regex": "."}]},
            "TrainingStartTime": NOON,
            "TrainingEndTime": NOON + timedelta(hours=48),
        },
        GetMetricStatistics={"Datapoints": []},
    )

    TrainingJobAnalytics("job", sagemaker_session=Session(api=api), period=3600).records()

    assert api.only("GetMetricStatistics")["Period"] == 3600


def test_pandas_and_bokeh_are_imported_only_when_they_are_needed() -> None:
    program = "import sys, trainyard.tuner, trainyard.analytics, trainyard.cli.tuning.tune; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"pandas", "bokeh", "numpy", "scipy"} & set(run.stdout.split())


def with_points() -> RecordingApi:
    """A yard with a job whose two instances have reported three points of its only metric."""
    start = to_micros(NOON)
    lines = [
        {"instance": "algo-1", "attempt": 1, "at_us": [start, start + 500_000], "values": [0.9, 0.5]},
        {"instance": "algo-2", "attempt": 1, "at_us": [start + 250_000], "values": [0.7]},
    ]
    description = {"AlgorithmSpecification": {"MetricDefinitions": [{"Name": "<loss>", "Regex": "."}]}}
    return RecordingApi(DescribeTrainingJob=description, ReadMetric={"Lines": [*lines, {}]})


def test_every_point_of_a_metric_is_returned_in_the_order_of_time() -> None:
    records = TrainingJobAnalytics("job", sagemaker_session=Session(api=with_points())).records()
    assert [(each["timestamp"], each["value"]) for each in records] == [(0.0, 0.9), (0.25, 0.7), (0.5, 0.5)]
    assert {each["metric_name"] for each in records} == {"<loss>"}


def test_points_outside_the_range_of_time_are_left_out() -> None:
    after = NOON + timedelta(milliseconds=100)
    analytics = TrainingJobAnalytics("job", ["<loss>"], Session(api=with_points()), start_time=after)
    assert [(each["timestamp"], each["value"]) for each in analytics.records()] == [(0.0, 0.7), (0.25, 0.5)]


def test_a_notebook_shows_each_metric_with_a_curve() -> None:
    html = TrainingJobAnalytics("job", sagemaker_session=Session(api=with_points()))._repr_html_()
    assert "&lt;loss&gt;" in html
    assert "<loss>" not in html
    assert all(f">{value}</td>" in html for value in ("3", "0.5", "0.9"))
    assert "<polyline" in html


def test_the_means_of_a_period_are_by_the_seconds_since_the_first() -> None:
    minute = timedelta(minutes=1)
    points = [{"Timestamp": NOON + minute, "Average": 0.5}, {"Timestamp": NOON, "Average": 0.9}]
    api = RecordingApi(
        DescribeTrainingJob={
            "AlgorithmSpecification": {"MetricDefinitions": [{"Name": "loss", "Regex": "."}]},
            "TrainingStartTime": NOON,
            "TrainingEndTime": NOON + minute,
        },
        GetMetricStatistics={"Datapoints": points},
    )

    frame = TrainingJobAnalytics("job", sagemaker_session=Session(api=api), period=60).dataframe()

    assert frame.to_dict("records") == [
        {"timestamp": 0.0, "metric_name": "loss", "value": 0.9},
        {"timestamp": 60.0, "metric_name": "loss", "value": 0.5},
    ]
    asked = api.only("GetMetricStatistics")
    assert (asked["Namespace"], asked["Period"]) == ("/aws/sagemaker/TrainingJobs", 60)
    assert asked["EndTime"] == NOON + 2 * minute

"""Jobs as notebooks show them."""

import pytest

from tests.unit.recording import RecordingApi
from tests.unit.tuning_answers import NOON, TRIALS, description
from trainyard._sdk.training.job import TrainingJobHandle
from trainyard._sdk.training.notebook import view_job
from trainyard._sdk.tuning.job import TuningJobHandle
from trainyard._sdk.tuning.notebook import view_study
from trainyard.estimator import Estimator

JOB = {
    "TrainingJobName": "mnist-1",
    "TrainingJobStatus": "InProgress",
    "SecondaryStatus": "Training",
    "ResourceConfig": {"InstanceCount": 2, "InstanceType": "ml.m5.large"},
    "CreationTime": NOON,
    "HyperParameters": {"lr": "0.1", "note": "<script>", "sagemaker_program": "train.py"},
    "FinalMetricDataList": [{"MetricName": "loss", "Value": 0.25}],
}


def test_a_training_job_is_shown_with_its_status_and_metrics() -> None:
    job = TrainingJobHandle(RecordingApi(DescribeTrainingJob=JOB), "mnist-1")
    html = job._repr_html_()
    assert all(text in html for text in ("mnist-1", "InProgress: Training", "2 x ml.m5.large", "lr=0.1", "0.25"))
    assert "<script>" not in html
    assert "sagemaker_program" not in html
    assert repr(job) == "<training job mnist-1>"


def test_a_tuning_job_is_shown_with_its_best_training_jobs() -> None:
    best = {"TrainingJobSummaries": [TRIALS[1]]}
    api = RecordingApi(DescribeHyperParameterTuningJob=description(), ListTrainingJobsForHyperParameterTuningJob=best)
    html = TuningJobHandle(api, "study")._repr_html_()
    assert TRIALS[1]["TrainingJobName"] in html
    assert api.only("ListTrainingJobsForHyperParameterTuningJob")["SortBy"] == "FinalObjectiveMetricValue"


def test_a_view_of_a_job_has_the_curves_of_its_metrics() -> None:
    points = {"instance": "algo-1", "attempt": 1, "at_us": [1, 2, 3], "values": [3.0, 2.0, 0.25]}
    api = RecordingApi(DescribeTrainingJob=JOB, ReadMetric={"Lines": [points, {}]})
    view = view_job(api, "mnist-1")
    assert "<polyline" in view.html
    assert (view.text, view.is_final) == ("<training job mnist-1: InProgress>", False)
    ended = RecordingApi(DescribeTrainingJob=JOB | {"TrainingJobStatus": "Stopped"}, ReadMetric={"Lines": [{}]})
    assert view_job(ended, "mnist-1").is_final


def test_a_view_of_a_tuning_job_is_final_once_it_has_ended() -> None:
    best = {"TrainingJobSummaries": [TRIALS[1]]}
    for status, is_final in (("InProgress", False), ("Completed", True)):
        described = description() | {"HyperParameterTuningJobStatus": status}
        api = RecordingApi(DescribeHyperParameterTuningJob=described, ListTrainingJobsForHyperParameterTuningJob=best)
        view = view_study(TuningJobHandle(api, "study"), max_trials=10)
        assert TRIALS[1]["TrainingJobName"] in view.html
        assert view.is_final is is_final


def test_an_estimator_without_a_job_is_shown_as_text() -> None:
    estimator = Estimator("image:1", "role")
    assert estimator._repr_html_() is None
    with pytest.raises(NotImplementedError):
        estimator._ipython_display_()

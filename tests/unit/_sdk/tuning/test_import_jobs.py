import logging
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.unit.recording import RecordingApi
from tests.unit.tuning_answers import description
from trainyard._sdk.tuning.import_jobs import import_jobs
from trainyard.foundation.errors import InvalidRequest
from trainyard.session import Session
from trainyard.tuner import CategoricalParameter, ContinuousParameter, HyperparameterTuner

OBJECTIVE = {"MetricName": "acc", "Type": "Maximize"}
RANGES = {"opt": CategoricalParameter(["adam", "sgd"]), "lr": ContinuousParameter(0.001, 0.1)}


@pytest.fixture
def api() -> RecordingApi:
    summaries = [{"TrainingJobName": name} for name in ("my-mnist-1", "mnist-1-2026-01-01-12-00-00-000", "mnist-2")]
    return RecordingApi(
        ListTrainingJobs={"TrainingJobSummaries": summaries},
        DescribeTrainingJob={"HyperParameters": {"opt": '"adam"', "sagemaker_program": '"train.py"'}},
        AdoptTrainingJobs={"PassedOver": []},
        DescribeHyperParameterTuningJob=description(),
        ListTags={"Tags": []},
    )


def categories(api: RecordingApi) -> Any:
    return api.only("AdoptTrainingJobs")["ParameterRanges"]["CategoricalParameterRanges"][0]["Values"]


def test_jobs_are_adopted_by_their_names_and_the_tuner_is_attached(api: RecordingApi) -> None:
    tuner = HyperparameterTuner.from_training_jobs(
        ["mnist-1", "mnist-2"], "acc", RANGES, tuning_job_name="study", sagemaker_session=Session(api=api)
    )
    asked = api.only("AdoptTrainingJobs")
    assert asked["TrainingJobNames"] == ["mnist-1", "mnist-2"]
    assert (asked["HyperParameterTuningJobName"], asked["Objective"]) == ("study", OBJECTIVE)
    assert tuner.latest_tuning_job is not None
    assert tuner.latest_tuning_job.name == "study"


def test_jobs_are_adopted_by_a_prefix_and_the_study_is_named_after_the_first(api: RecordingApi) -> None:
    name = import_jobs(api, "mnist-", name=None, objective=OBJECTIVE, ranges=RANGES)
    assert api.only("AdoptTrainingJobs")["NamePrefix"] == "mnist-"
    assert name.startswith(f"mnist-1-{datetime.now(UTC):%y%m}")


def test_categories_are_as_the_jobs_had_them(api: RecordingApi) -> None:
    import_jobs(api, ["a"], name="study", objective=OBJECTIVE, ranges=RANGES)
    assert categories(api) == ['"adam"', '"sgd"']
    plain = RecordingApi(DescribeTrainingJob={"HyperParameters": {"opt": "adam"}}, AdoptTrainingJobs={"PassedOver": []})
    import_jobs(plain, ["a"], name="study", objective=OBJECTIVE, ranges=RANGES)
    assert categories(plain) == ["adam", "sgd"]


def test_skipped_jobs_are_named_with_the_reason(api: RecordingApi, caplog: pytest.LogCaptureFixture) -> None:
    api.answers["AdoptTrainingJobs"] = {"PassedOver": [{"TrainingJobName": "mnist-2", "Reason": "it has no lr."}]}
    with caplog.at_level(logging.WARNING):
        import_jobs(api, "mnist-", name="study", objective=OBJECTIVE, ranges=RANGES)
    assert "mnist-2 was not imported: it has no lr." in caplog.text


def test_a_prefix_of_nothing_is_refused(api: RecordingApi) -> None:
    with pytest.raises(InvalidRequest, match='No training job has the prefix "cifar-"'):
        import_jobs(api, "cifar-", name="study", objective=OBJECTIVE, ranges=RANGES)

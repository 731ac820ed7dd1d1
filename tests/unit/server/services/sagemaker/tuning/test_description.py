import math
from dataclasses import replace
from datetime import timedelta
from typing import Any

from tests.unit.server.services.accounts import NOON, As
from tests.unit.server.services.sagemaker.tuning.requests import (
    add_trials,
    change_tuning,
    config,
    create_tuning,
    definition,
    describe_tuning,
    study,
    trial,
)
from trainyard.foundation.jobs.tuning import StopCause, TrialStatus, TuningStatus

S = TrialStatus
MINUTE = timedelta(minutes=1)


def test_a_new_tuning_job_is_described_as_requested(anna: As) -> None:
    create_tuning(anna, HyperParameterTuningJobConfig=config(RandomSeed=3))
    told = describe_tuning(anna.at(NOON + MINUTE))
    assert told["HyperParameterTuningJobStatus"] == "InProgress"
    ranges = {**config()["ParameterRanges"], "CategoricalParameterRanges": []}
    same = config(RandomSeed=3, TrainingJobEarlyStoppingType="Off", ParameterRanges=ranges)
    assert told["HyperParameterTuningJobConfig"] == same
    assert told["ConsumedResources"] == {"RuntimeInSeconds": 60}
    assert told["TrainingJobStatusCounters"] == dict.fromkeys(told["TrainingJobStatusCounters"], 0)
    assert told["ObjectiveStatusCounters"] == {"Succeeded": 0, "Pending": 0, "Failed": 0}
    for member in ("BestTrainingJob", "HyperParameterTuningEndTime", "FailureReason", "TrainingJobDefinitions"):
        assert member not in told


def test_members_that_the_sdk_reads_on_attach_are_always_present(anna: As) -> None:
    resources = {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 5}
    changed = {"HyperParameterTuningResourceConfig": resources, "ResourceConfig": None}
    create_tuning(anna, TrainingJobDefinition=definition(anna, **changed))
    described = describe_tuning(anna)
    assert described["HyperParameterTuningJobConfig"]["ParameterRanges"]["CategoricalParameterRanges"] == []
    told = described["TrainingJobDefinition"]
    assert told["StaticHyperParameters"]["_tuning_objective_metric"] == "loss"
    assert told["ResourceConfig"] == told["HyperParameterTuningResourceConfig"] == resources
    assert told["AlgorithmSpecification"]["MetricDefinitions"]
    assert told["EnableManagedSpotTraining"] is False


def test_trials_are_counted_by_outcome(anna: As) -> None:
    create_tuning(anna)
    add_trials(
        anna,
        trial(anna, 1, status=S.COMPLETED, objective=0.5),
        trial(anna, 2, status=S.COMPLETED),
        trial(anna, 3, status=S.STOPPED, objective=0.7, cause=StopCause.EARLY),
        trial(anna, 4, status=S.STOPPED, objective=0.1, cause=StopCause.RULE),
        trial(anna, 5, status=S.FAILED, objective=0.2, why="it broke"),
        trial(anna, 6, status=S.COMPLETED, objective=math.nan),
        trial(anna, 7, objective=0.9),
        trial(anna, 8, status=S.PLANNED),
    )
    told = describe_tuning(anna)
    assert told["TrainingJobStatusCounters"] == {
        "Completed": 3,
        "InProgress": 1,
        "RetryableError": 0,
        "NonRetryableError": 1,
        "Stopped": 2,
    }
    assert told["ObjectiveStatusCounters"] == {"Succeeded": 2, "Pending": 1, "Failed": 4}


def test_the_best_training_job_is_described_in_full(anna: As) -> None:
    create_tuning(anna)
    ended: dict[str, Any] = {"started_at": NOON + MINUTE, "ended_at": NOON + 2 * MINUTE}
    best = trial(anna, 2, status=S.COMPLETED, objective=0.25, **ended)
    add_trials(anna, trial(anna, 1, status=S.COMPLETED, objective=0.5), best)
    assert describe_tuning(anna)["BestTrainingJob"] == {
        "TrainingJobName": best.job,
        "TrainingJobArn": f"arn:aws:sagemaker:eu-west-3:{anna.account}:training-job/{best.job}",
        "TuningJobName": "tune",
        "CreationTime": best.created_at,
        "TrainingStartTime": best.started_at,
        "TrainingEndTime": best.ended_at,
        "TrainingJobStatus": "Completed",
        "TunedHyperParameters": {"lr": "0.01", "depth": "2"},
        "FinalHyperParameterTuningJobObjectiveMetric": {"Type": "Minimize", "MetricName": "loss", "Value": 0.25},
        "ObjectiveStatus": "Succeeded",
    }


def test_an_ended_job_shows_its_time_reason_and_consumed_resources(anna: As) -> None:
    create_tuning(anna)
    job = replace(study(anna), since_best=4, converged_at=NOON + MINUTE, failure="x" * 2000)
    change_tuning(anna, replace(job, status=TuningStatus.FAILED, ended_at=NOON + 3 * MINUTE))
    told = describe_tuning(anna.at(NOON + timedelta(days=1)))
    assert told["HyperParameterTuningEndTime"] == NOON + 3 * MINUTE
    assert told["ConsumedResources"] == {"RuntimeInSeconds": 180}
    assert len(told["FailureReason"]) == 1024
    assert told["TuningJobCompletionDetails"] == {
        "NumberOfTrainingJobsObjectiveNotImproving": 4,
        "ConvergenceDetectedTime": NOON + MINUTE,
    }

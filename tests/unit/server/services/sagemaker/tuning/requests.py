"""Requests for tuning jobs, and trials as a controller stores them."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

from tests.unit.server.services.accounts import NOON, As
from tests.unit.server.services.sagemaker.requests import IMAGE, channel
from trainyard.foundation.arns import role_arn
from trainyard.foundation.jobs.tuning import TrialStatus, TuningJob, TuningStatus, TuningTrial
from trainyard.insight.tuning.completion import progress_of
from trainyard.server.jobs.tuning import (
    change_to,
    job_of,
    trial_draft,
    trial_name,
    trial_of,
    trials_of,
    tuning_key,
)
from trainyard.server.records.contract import Resource

LOSS = {"Name": "loss", "Regex": "loss=([0-9.]+)"}
RATE = {"Name": "lr", "MinValue": "0.001", "MaxValue": "0.1", "ScalingType": "Logarithmic"}
DEPTH = {"Name": "depth", "MinValue": "1", "MaxValue": "9"}
OPTIMIZER = {"Name": "optimizer", "Values": ['"adam"', '"sgd"']}


def config(**changed: Any) -> dict[str, Any]:
    """Return the HyperParameterTuningJobConfig of a random search; None removes a member."""
    shape: dict[str, Any] = {
        "Strategy": "Random",
        "HyperParameterTuningJobObjective": {"Type": "Minimize", "MetricName": "loss"},
        "ResourceLimits": {"MaxNumberOfTrainingJobs": 20, "MaxParallelTrainingJobs": 2},
        "ParameterRanges": {"ContinuousParameterRanges": [RATE], "IntegerParameterRanges": [DEPTH]},
    }
    return {member: value for member, value in (shape | changed).items() if value is not None}


def definition(user: As, **changed: Any) -> dict[str, Any]:
    """Return the SDK's TrainingJobDefinition in script mode."""
    shape: dict[str, Any] = {
        "StaticHyperParameters": {
            "sagemaker_program": json.dumps("train.py"),
            "sagemaker_submit_directory": json.dumps("s3://data/code/sourcedir.tar.gz"),
            "epochs": "3",
        },
        "AlgorithmSpecification": {"TrainingImage": IMAGE, "TrainingInputMode": "File", "MetricDefinitions": [LOSS]},
        "RoleArn": role_arn(user.account, user.caller.role),
        "InputDataConfig": [channel("train", "s3://data/train/")],
        "OutputDataConfig": {"S3OutputPath": "s3://data/output"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 30},
        "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
    }
    return {member: value for member, value in (shape | changed).items() if value is not None}


def tuning_request(user: As, name: str = "tune", **changed: Any) -> dict[str, Any]:
    shape: dict[str, Any] = {
        "HyperParameterTuningJobName": name,
        "HyperParameterTuningJobConfig": config(),
        "TrainingJobDefinition": definition(user),
    }
    return {member: value for member, value in (shape | changed).items() if value is not None}


def create_tuning(user: As, name: str = "tune", **changed: Any) -> dict[str, Any]:
    return user("sagemaker", "CreateHyperParameterTuningJob", **tuning_request(user, name, **changed))


def describe_tuning(user: As, name: str = "tune") -> dict[str, Any]:
    return user("sagemaker", "DescribeHyperParameterTuningJob", HyperParameterTuningJobName=name)


def resource(user: As, name: str = "tune") -> Resource:
    return user.yard.records.load(tuning_key(user.account, name))


def study(user: As, name: str = "tune") -> TuningJob:
    return job_of(resource(user, name))


def trial(user: As, number: int, name: str = "tune", **changed: Any) -> TuningTrial:
    """Return a trial that started as many minutes after noon as its number."""
    at = NOON + timedelta(minutes=number)
    job = trial_name(name, resource(user, name).id, number)
    begun = TuningTrial(number, job, "", {"lr": "0.01", "depth": str(number)}, TrialStatus.IN_PROGRESS, created_at=at)
    return replace(begun, **changed)


def add_trials(user: As, *trials: TuningTrial, name: str = "tune") -> None:
    """Store trials, and their results in the tuning job."""
    parent = resource(user, name)
    for each in trials:
        user.yard.records.create(trial_draft(parent, each), now=each.created_at or NOON)
    everyone = [trial_of(row) for row in trials_of(user.yard.records, parent.id)]
    job = study(user, name)
    progress = progress_of(job.plan, everyone)
    counted = replace(job, planned=len(everyone), measured=progress.measured, best=progress.best)
    change_tuning(user, replace(counted, since_best=progress.since_best))


def change_tuning(user: As, job: TuningJob) -> None:
    known = resource(user, job.name)
    assert user.yard.records.apply(known, change_to(known, job), now=NOON + timedelta(hours=1)) is not None


def end_tuning(user: As, name: str = "tune", **objectives: float) -> None:
    """End a tuning job with trials, each given by its number: `t1=0.5`."""
    numbers = {int(word[1:]): value for word, value in objectives.items()}
    done = TrialStatus.COMPLETED
    trials = [trial(user, number, name, status=done, objective=value) for number, value in numbers.items()]
    add_trials(user, *trials, name=name)
    ended = replace(study(user, name), status=TuningStatus.COMPLETED, ended_at=NOON + timedelta(hours=1))
    change_tuning(user, ended)

"""Answers of a yard about tuning jobs, for tests of clients."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
RANGES: dict[str, list[dict[str, Any]]] = {
    "ContinuousParameterRanges": [{"Name": "lr", "MinValue": "1e-05", "MaxValue": "0.1", "ScalingType": "Logarithmic"}],
    "IntegerParameterRanges": [{"Name": "layers", "MinValue": "1", "MaxValue": "8", "ScalingType": "Auto"}],
    "CategoricalParameterRanges": [{"Name": "opt", "Values": ['"adam"', '"sgd"']}],
}


def definition(**members: Any) -> dict[str, Any]:
    return {
        "StaticHyperParameters": {
            "epochs": "3",
            "sagemaker_program": '"train.py"',
            "sagemaker_submit_directory": '"s3://bucket/code/sourcedir.tar.gz"',
            "sagemaker_estimator_class_name": '"PyTorch"',
            "sagemaker_estimator_module": '"sagemaker.pytorch.estimator"',
            "_tuning_objective_metric": "acc",
        },
        "AlgorithmSpecification": {
            "TrainingImage": "pytorch-training:2.8.0",
            "TrainingInputMode": "File",
            "MetricDefinitions": [{"Name": "acc", "Regex": "acc=(.*)"}],
        },
        "RoleArn": "arn:aws:iam::123456789012:role/R",
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/"},
        "StoppingCondition": {"MaxRuntimeInSeconds": 60},
        "HyperParameterTuningResourceConfig": {
            "InstanceCount": 1,
            "InstanceType": "ml.m5.large",
            "VolumeSizeInGB": 30,
        },
        **members,
    }


def description(status: str = "Completed", **members: Any) -> dict[str, Any]:
    return {
        "HyperParameterTuningJobName": "study",
        "HyperParameterTuningJobArn": "arn:aws:sagemaker:us-east-1:123456789012:hyper-parameter-tuning-job/study",
        "HyperParameterTuningJobConfig": {
            "Strategy": "Bayesian",
            "HyperParameterTuningJobObjective": {"Type": "Maximize", "MetricName": "acc"},
            "ResourceLimits": {"MaxNumberOfTrainingJobs": 4, "MaxParallelTrainingJobs": 2},
            "ParameterRanges": RANGES,
            "TrainingJobEarlyStoppingType": "Auto",
            "RandomSeed": 7,
        },
        "TrainingJobDefinition": definition(),
        "HyperParameterTuningJobStatus": status,
        "CreationTime": NOON,
        "TrainingJobStatusCounters": {"Completed": 2, "Stopped": 1, "NonRetryableError": 1, "InProgress": 0},
        **members,
    }


def trial(number: int, value: float | None = None, status: str = "Completed", **members: Any) -> dict[str, Any]:
    start = NOON + timedelta(seconds=10 * number)
    found = {
        "TrainingJobName": f"study-{number:03}-0123abcd",
        "TrainingJobStatus": status,
        "CreationTime": start,
        "TrainingStartTime": start,
        "TunedHyperParameters": {"lr": "0.012345", "layers": str(number), "opt": '"adam"'},
    }
    if status != "InProgress":
        found["TrainingEndTime"] = start + timedelta(seconds=number)
    if value is not None:
        found["FinalHyperParameterTuningJobObjectiveMetric"] = {"MetricName": "acc", "Value": value}
    return found | members


TRIALS: Sequence[dict[str, Any]] = (
    trial(1, 0.5),
    trial(2, 0.9),
    trial(3, 0.7, "Stopped"),
    trial(4, None, "Failed", FailureReason="AlgorithmError: no memory\nand more"),
)

"""Tuning with only boto3: every call in a tuning job's life."""

import io
import tarfile
import time
import uuid
from collections.abc import Callable
from typing import Any

import boto3
from botocore.exceptions import ClientError

IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-cpu-py312"
RUN = uuid.uuid4().hex[:8]
TRAIN = """
import os, time
print("score=", 1 - abs(float(os.environ["SM_HP_RATE"]) - 0.3), sep="", flush=True)
time.sleep(float(os.environ.get("SM_HP_PAUSE", 0)))
"""

sagemaker, s3 = boto3.client("sagemaker"), boto3.client("s3")


def main() -> None:
    account = boto3.client("sts").get_caller_identity()
    role = f"arn:aws:iam::{account['Account']}:role/{account['Arn'].split('/')[1]}"
    bucket = f"boto3-tuning-{RUN}"
    s3.create_bucket(Bucket=bucket)
    s3.put_object(Bucket=bucket, Key="code/sourcedir.tar.gz", Body=packed("train.py", TRAIN))
    request = asked(bucket, role)
    completes(request)
    starts_warm(request)
    is_refused(request)
    stops(request)
    finds_and_deletes()


def asked(bucket: str, role: str) -> dict[str, Any]:
    return {
        "HyperParameterTuningJobConfig": {
            "Strategy": "Bayesian",
            "HyperParameterTuningJobObjective": {"Type": "Maximize", "MetricName": "score"},
            "ResourceLimits": {"MaxNumberOfTrainingJobs": 3, "MaxParallelTrainingJobs": 2},
            "ParameterRanges": {
                "ContinuousParameterRanges": [{"Name": "rate", "MinValue": "0", "MaxValue": "1"}],
            },
        },
        "TrainingJobDefinition": {
            "AlgorithmSpecification": {
                "TrainingImage": IMAGE,
                "TrainingInputMode": "File",
                "MetricDefinitions": [{"Name": "score", "Regex": "score=([0-9.]+)"}],
            },
            "StaticHyperParameters": {
                "sagemaker_program": "train.py",
                "sagemaker_submit_directory": f"s3://{bucket}/code/sourcedir.tar.gz",
            },
            "OutputDataConfig": {"S3OutputPath": f"s3://{bucket}/out"},
            "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 10},
            "StoppingCondition": {"MaxRuntimeInSeconds": 300},
            "RoleArn": role,
        },
    }


def completes(request: dict[str, Any]) -> None:
    name = f"completes-{RUN}"
    arn = sagemaker.create_hyper_parameter_tuning_job(
        HyperParameterTuningJobName=name, Tags=[{"Key": "run", "Value": RUN}], **request
    )["HyperParameterTuningJobArn"]
    assert arn.endswith(f":hyper-parameter-tuning-job/{name}"), arn
    job = ended(name)
    assert job["HyperParameterTuningJobStatus"] == "Completed", job
    assert job["TrainingJobStatusCounters"]["Completed"] == job["ObjectiveStatusCounters"]["Succeeded"] == 3
    assert sagemaker.list_tags(ResourceArn=arn)["Tags"] == [{"Key": "run", "Value": RUN}]
    trials = sagemaker.list_training_jobs_for_hyper_parameter_tuning_job(
        HyperParameterTuningJobName=name, SortBy="FinalObjectiveMetricValue", SortOrder="Descending"
    )["TrainingJobSummaries"]
    values = [each["FinalHyperParameterTuningJobObjectiveMetric"]["Value"] for each in trials]
    assert len(values) == 3
    assert values == sorted(values, reverse=True)
    best = job["BestTrainingJob"]
    assert best["TrainingJobName"] == trials[0]["TrainingJobName"]
    child = sagemaker.describe_training_job(TrainingJobName=best["TrainingJobName"])
    assert child["TuningJobArn"] == arn
    assert child["HyperParameters"]["rate"] == best["TunedHyperParameters"]["rate"]
    assert child["HyperParameters"]["_tuning_objective_metric"] == "score"


def starts_warm(request: dict[str, Any]) -> None:
    name, parent = f"warm-{RUN}", f"completes-{RUN}"
    parents = [{"HyperParameterTuningJobName": parent}]
    sagemaker.create_hyper_parameter_tuning_job(
        HyperParameterTuningJobName=name,
        WarmStartConfig={"ParentHyperParameterTuningJobs": parents, "WarmStartType": "IdenticalDataAndAlgorithm"},
        **request,
    )
    job = ended(name)
    assert job["OverallBestTrainingJob"]["TrainingJobName"].startswith((name, parent)), job


def is_refused(request: dict[str, Any]) -> None:
    for change, words in (
        ({"HyperParameterTuningJobName": f"completes-{RUN}"}, "completes-"),
        ({"HyperParameterTuningJobName": "a" * 33}, "32"),
        ({"WarmStartConfig": warm("nobody")}, "nobody"),
    ):
        given = {"HyperParameterTuningJobName": f"refused-{RUN}", **request, **change}
        told = refusal(sagemaker.create_hyper_parameter_tuning_job, **given)
        assert words in told["Message"], told


def warm(parent: str) -> dict[str, Any]:
    parents = [{"HyperParameterTuningJobName": parent}]
    return {"ParentHyperParameterTuningJobs": parents, "WarmStartType": "TransferLearning"}


def stops(request: dict[str, Any]) -> None:
    name = f"stops-{RUN}"
    definition = request["TrainingJobDefinition"]
    static = {**definition["StaticHyperParameters"], "pause": "600"}
    slow = {**request, "TrainingJobDefinition": {**definition, "StaticHyperParameters": static}}
    sagemaker.create_hyper_parameter_tuning_job(HyperParameterTuningJobName=name, **slow)
    sagemaker.stop_hyper_parameter_tuning_job(HyperParameterTuningJobName=name)
    job = ended(name)
    assert job["HyperParameterTuningJobStatus"] == "Stopped", job
    assert job["TrainingJobStatusCounters"]["InProgress"] == 0, job


def finds_and_deletes() -> None:
    pages = sagemaker.get_paginator("list_hyper_parameter_tuning_jobs").paginate(
        NameContains=RUN, SortBy="Name", PaginationConfig={"PageSize": 2}
    )
    names = [each["HyperParameterTuningJobName"] for page in pages for each in page["HyperParameterTuningJobSummaries"]]
    assert names == [f"completes-{RUN}", f"stops-{RUN}", f"warm-{RUN}"], names
    found = sagemaker.search(
        Resource="HyperParameterTuningJob",
        SearchExpression={"Filters": [{"Name": "Tags.run", "Operator": "Equals", "Value": RUN}]},
    )["Results"]
    assert [each["HyperParameterTuningJob"]["HyperParameterTuningJobName"] for each in found] == [f"completes-{RUN}"]
    sagemaker.delete_hyper_parameter_tuning_job(HyperParameterTuningJobName=f"stops-{RUN}")
    told = refusal(sagemaker.describe_hyper_parameter_tuning_job, HyperParameterTuningJobName=f"stops-{RUN}")
    assert told["Code"] == "ResourceNotFound", told


def refusal(call: Callable[..., Any], **asked: Any) -> Any:
    """Return the error of a refused call."""
    try:
        call(**asked)
    except ClientError as error:
        return error.response["Error"]
    raise AssertionError(f"{asked} should have been refused")


def ended(name: str) -> Any:
    for _ in range(600):
        job = sagemaker.describe_hyper_parameter_tuning_job(HyperParameterTuningJobName=name)
        if job["HyperParameterTuningJobStatus"] not in ("InProgress", "Stopping"):
            return job
        time.sleep(0.2)
    raise AssertionError(f"{name} did not end")


def packed(name: str, text: str) -> bytes:
    body, archived = text.encode(), io.BytesIO()
    with tarfile.open(fileobj=archived, mode="w:gz") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = len(body)
        archive.addfile(entry, io.BytesIO(body))
    return archived.getvalue()


if __name__ == "__main__":
    main()

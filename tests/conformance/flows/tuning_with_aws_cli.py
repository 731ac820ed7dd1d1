"""Tuning commands that people type: aws sagemaker create-hyper-parameter-tuning-job, describe, list, stop, delete."""

import io
import json
import subprocess
import sys
import tarfile
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

# Not through its shebang line, which breaks if the path to Python contains a space.
AWS = (sys.executable, Path(sys.executable).with_name("aws"))
IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-cpu-py312"
RUN = uuid.uuid4().hex[:8]
TRAIN = "import os\nprint('score=', 1 - abs(float(os.environ['SM_HP_RATE']) - 0.3), sep='')\n"


def main() -> None:
    account = parsed("sts", "get-caller-identity")
    role = f"arn:aws:iam::{account['Account']}:role/{account['Arn'].split('/')[1]}"
    bucket, name = f"cli-tuning-{RUN}", f"typed-{RUN}"
    with tempfile.TemporaryDirectory() as folder:
        aws("s3", "mb", f"s3://{bucket}")
        code = Path(folder) / "sourcedir.tar.gz"
        code.write_bytes(packed("train.py", TRAIN))
        aws("s3", "cp", code, f"s3://{bucket}/code/sourcedir.tar.gz")
    create(name, bucket, role, trials=3)
    job = ended(name)
    assert job["HyperParameterTuningJobStatus"] == "Completed", job
    told(name, job)
    ends(f"long-{RUN}", bucket, role)


def create(name: str, bucket: str, role: str, *, trials: int) -> None:
    ranges = {"ContinuousParameterRanges": [{"Name": "rate", "MinValue": "0", "MaxValue": "1"}]}
    config = {
        "Strategy": "Random",
        "HyperParameterTuningJobObjective": {"Type": "Maximize", "MetricName": "score"},
        "ResourceLimits": {"MaxNumberOfTrainingJobs": trials, "MaxParallelTrainingJobs": 2},
        "ParameterRanges": ranges,
        "RandomSeed": 1,
    }
    definition = {
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
    }
    aws(
        *("sagemaker", "create-hyper-parameter-tuning-job", "--hyper-parameter-tuning-job-name", name),
        *("--hyper-parameter-tuning-job-config", json.dumps(config)),
        *("--training-job-definition", json.dumps(definition)),
        *("--tags", f"Key=run,Value={RUN}"),
    )


def told(name: str, job: Any) -> None:
    trials = parsed(
        *("sagemaker", "list-training-jobs-for-hyper-parameter-tuning-job", "--hyper-parameter-tuning-job-name", name),
        *("--sort-by", "FinalObjectiveMetricValue", "--sort-order", "Descending"),
    )["TrainingJobSummaries"]
    assert [each["TrainingJobStatus"] for each in trials] == ["Completed"] * 3
    assert trials[0]["TrainingJobName"] == job["BestTrainingJob"]["TrainingJobName"]
    listed = parsed("sagemaker", "list-hyper-parameter-tuning-jobs", "--name-contains", RUN)
    assert [each["HyperParameterTuningJobName"] for each in listed["HyperParameterTuningJobSummaries"]] == [name]
    tags = parsed("sagemaker", "list-tags", "--resource-arn", job["HyperParameterTuningJobArn"])["Tags"]
    assert tags == [{"Key": "run", "Value": RUN}]


def ends(name: str, bucket: str, role: str) -> None:
    """A long tuning job is stopped and deleted."""
    create(name, bucket, role, trials=500)
    aws("sagemaker", "stop-hyper-parameter-tuning-job", "--hyper-parameter-tuning-job-name", name)
    assert ended(name)["HyperParameterTuningJobStatus"] == "Stopped"
    aws("sagemaker", "delete-hyper-parameter-tuning-job", "--hyper-parameter-tuning-job-name", name)
    listed = parsed("sagemaker", "list-hyper-parameter-tuning-jobs", "--name-contains", name)
    assert listed["HyperParameterTuningJobSummaries"] == []


def ended(name: str) -> Any:
    for _ in range(120):
        job = parsed("sagemaker", "describe-hyper-parameter-tuning-job", "--hyper-parameter-tuning-job-name", name)
        if job["HyperParameterTuningJobStatus"] not in ("InProgress", "Stopping"):
            return job
        time.sleep(0.5)
    raise AssertionError(f"{name} did not end")


def packed(name: str, text: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = len(text.encode())
        archive.addfile(entry, io.BytesIO(text.encode()))
    return buffer.getvalue()


def parsed(*arguments: str | Path) -> Any:
    return json.loads(aws(*arguments))


def aws(*arguments: str | Path) -> str:
    run = subprocess.run([*AWS, *arguments], capture_output=True, text=True, check=False)
    assert run.returncode == 0, f"aws {arguments}: {run.stderr}{run.stdout}"
    return run.stdout


main()

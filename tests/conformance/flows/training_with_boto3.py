"""Training with only boto3: every call in a job's life, and what CloudWatch shows."""

import io
import tarfile
import time
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
from botocore.exceptions import ClientError, WaiterError

IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-cpu-py312"
RUN = uuid.uuid4().hex[:8]
TRAIN = """
import os, sys, time
print("argued", *sys.argv[1:])
for step in range(3):
    print(f"loss={4.0 - step}", flush=True)
if "fail" in sys.argv:
    sys.exit(7)
if "wait" in sys.argv:
    time.sleep(600)
with open(os.path.join(os.environ["SM_MODEL_DIR"], "weights.txt"), "w") as file:
    file.write("0.5")
"""

sagemaker, s3 = boto3.client("sagemaker"), boto3.client("s3")


def main() -> None:
    account = boto3.client("sts").get_caller_identity()
    role = f"arn:aws:iam::{account['Account']}:role/{account['Arn'].split('/')[1]}"
    bucket = f"boto3-{RUN}"
    s3.create_bucket(Bucket=bucket)
    s3.put_object(Bucket=bucket, Key="code/sourcedir.tar.gz", Body=packed("train.py", TRAIN))
    s3.put_object(Bucket=bucket, Key="data/a.csv", Body=b"1,2")
    request = asked(bucket, role)
    completes(request, bucket)
    fails(request)
    stops(request)
    runs_a_command(request, bucket)
    is_refused(request)
    finds_jobs()
    # Newer than the oldest tested boto3.
    if hasattr(sagemaker, "delete_training_job"):
        deletes()


def asked(bucket: str, role: str) -> dict[str, Any]:
    source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{bucket}/data/", "S3DataDistributionType": "FullyReplicated"}
    return {
        "AlgorithmSpecification": {
            "TrainingImage": IMAGE,
            "TrainingInputMode": "File",
            "MetricDefinitions": [{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
        },
        "HyperParameters": {
            "sagemaker_program": "train.py",
            "sagemaker_submit_directory": f"s3://{bucket}/code/sourcedir.tar.gz",
            "rate": "0.1",
        },
        "InputDataConfig": [{"ChannelName": "train", "DataSource": {"S3DataSource": source}}],
        "OutputDataConfig": {"S3OutputPath": f"s3://{bucket}/out"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 10},
        "StoppingCondition": {"MaxRuntimeInSeconds": 300},
        "RoleArn": role,
    }


def completes(request: dict[str, Any], bucket: str) -> None:
    name = f"completes-{RUN}"
    tags = [{"Key": "run", "Value": RUN}, {"Key": "team", "Value": "blue"}]
    arn = sagemaker.create_training_job(TrainingJobName=name, Tags=tags, **request)["TrainingJobArn"]
    assert arn.endswith(f":training-job/{name}")
    wait_for(name)
    job = sagemaker.describe_training_job(TrainingJobName=name)
    assert (job["TrainingJobStatus"], job["SecondaryStatus"]) == ("Completed", "Completed")
    assert {member: job[member] for member in request if member != "ResourceConfig"} == {
        member: value if member != "OutputDataConfig" else {"KmsKeyId": "", **value}
        for member, value in request.items()
        if member != "ResourceConfig"
    }, "a job is described as it was requested"
    passed = [transition["Status"] for transition in job["SecondaryStatusTransitions"]]
    assert passed == ["Pending", "Starting", "Downloading", "Training", "Uploading", "Completed"], passed
    assert job["CreationTime"] <= job["TrainingStartTime"] <= job["TrainingEndTime"] <= job["LastModifiedTime"]
    assert job["ModelArtifacts"]["S3ModelArtifacts"] == f"s3://{bucket}/out/{name}/output/model.tar.gz"
    body = s3.get_object(Bucket=bucket, Key=f"out/{name}/output/model.tar.gz")["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(body)) as archive:
        assert [entry.removeprefix("./") for entry in archive.getnames() if entry != "."] == ["weights.txt"]
    assert [(metric["MetricName"], metric["Value"]) for metric in job["FinalMetricDataList"]] == [("loss", 2.0)]
    logged(name)
    measured(name, job["TrainingStartTime"])
    tagged(arn)


def logged(name: str) -> None:
    logs = boto3.client("logs")
    place = {"logGroupName": "/aws/sagemaker/TrainingJobs"}
    (stream,) = logs.describe_log_streams(**place, logStreamNamePrefix=f"{name}/")["logStreams"]
    assert stream["logStreamName"].startswith(f"{name}/algo-1-")
    events = logs.get_log_events(**place, logStreamName=stream["logStreamName"], startFromHead=True)["events"]
    lines = [event["message"] for event in events]
    assert [line for line in lines if line.startswith("loss")] == ["loss=4.0", "loss=3.0", "loss=2.0"]
    assert "argued --rate 0.1" in lines
    found = logs.filter_log_events(**place, logStreamNamePrefix=f"{name}/", filterPattern='"loss=3.0"')["events"]
    assert [event["message"] for event in found] == ["loss=3.0"]


def measured(name: str, started: datetime) -> None:
    cloudwatch = boto3.client("cloudwatch")
    dimensions = [{"Name": "TrainingJobName", "Value": name}]
    metric = {"Namespace": "/aws/sagemaker/TrainingJobs", "MetricName": "loss", "Dimensions": dimensions}
    window = {"StartTime": started - timedelta(minutes=2), "EndTime": datetime.now(UTC) + timedelta(minutes=2)}
    points = cloudwatch.get_metric_statistics(
        **metric, Period=60, Statistics=["Minimum", "Maximum", "SampleCount"], **window
    )["Datapoints"]
    assert sum(point["SampleCount"] for point in points) == 3
    assert (min(point["Minimum"] for point in points), max(point["Maximum"] for point in points)) == (2.0, 4.0)
    query = {"Id": "loss", "MetricStat": {"Metric": metric, "Period": 60, "Stat": "Minimum"}}
    (found,) = cloudwatch.get_metric_data(MetricDataQueries=[query], **window)["MetricDataResults"]
    assert min(found["Values"]) == 2.0
    assert metric in [
        {key: each[key] for key in metric} for each in cloudwatch.list_metrics(Dimensions=dimensions)["Metrics"]
    ]


def tagged(arn: str) -> None:
    sagemaker.add_tags(ResourceArn=arn, Tags=[{"Key": "team", "Value": "red"}, {"Key": "more", "Value": ""}])
    sagemaker.delete_tags(ResourceArn=arn, TagKeys=["more"])
    tags = [tag for page in sagemaker.get_paginator("list_tags").paginate(ResourceArn=arn) for tag in page["Tags"]]
    assert {tag["Key"]: tag["Value"] for tag in tags} == {"run": RUN, "team": "red"}


def fails(request: dict[str, Any]) -> None:
    name = f"fails-{RUN}"
    sagemaker.create_training_job(TrainingJobName=name, **with_hyperparameter(request, "mode", "fail"))
    wait_for(name)
    job = sagemaker.describe_training_job(TrainingJobName=name)
    assert (job["TrainingJobStatus"], job["SecondaryStatus"]) == ("Failed", "Failed")
    assert job["FailureReason"].startswith("AlgorithmError"), job["FailureReason"]
    assert "7" in job["FailureReason"], "the reason contains the exit code"


def stops(request: dict[str, Any]) -> None:
    name = f"stops-{RUN}"
    sagemaker.create_training_job(TrainingJobName=name, **with_hyperparameter(request, "mode", "wait"))
    deadline = time.monotonic() + 60
    while sagemaker.describe_training_job(TrainingJobName=name)["SecondaryStatus"] != "Training":
        assert time.monotonic() < deadline
        time.sleep(0.1)
    sagemaker.stop_training_job(TrainingJobName=name)
    wait_for(name)
    assert sagemaker.describe_training_job(TrainingJobName=name)["TrainingJobStatus"] == "Stopped"
    assert code(sagemaker.stop_training_job, TrainingJobName=name) == "ValidationException"


def runs_a_command(request: dict[str, Any], bucket: str) -> None:
    """No script: a command line, with results in the output besides the model."""
    name = f"command-{RUN}"
    algorithm = request["AlgorithmSpecification"]
    command = "cat /opt/ml/input/data/train/a.csv > /opt/ml/output/data/copy.csv; echo kept > /opt/ml/model/model.txt"
    entry = {"ContainerEntrypoint": ["/bin/sh", "-c"], "ContainerArguments": [command]}
    sagemaker.create_training_job(
        TrainingJobName=name, **{**request, "HyperParameters": {}, "AlgorithmSpecification": algorithm | entry}
    )
    wait_for(name)
    job = sagemaker.describe_training_job(TrainingJobName=name)
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    body = s3.get_object(Bucket=bucket, Key=f"out/{name}/output/output.tar.gz")["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(body)) as archive:
        assert "copy.csv" in [entry.removeprefix("./") for entry in archive.getnames()]


def is_refused(request: dict[str, Any]) -> None:
    assert code(sagemaker.create_training_job, TrainingJobName=f"completes-{RUN}", **request) == "ResourceInUse"
    assert code(sagemaker.describe_training_job, TrainingJobName="nobody") == "ValidationException"
    elsewhere = {**request, "OutputDataConfig": {"S3OutputPath": "s3://no-such-bucket-anywhere/out"}}
    assert code(sagemaker.create_training_job, TrainingJobName=f"nowhere-{RUN}", **elsewhere) == "ValidationException"
    unknown = {**request, "ResourceConfig": request["ResourceConfig"] | {"InstanceType": "ml.x9.huge"}}
    assert code(sagemaker.create_training_job, TrainingJobName=f"unknown-{RUN}", **unknown) == "ValidationException"


def finds_jobs() -> None:
    listed = sagemaker.get_paginator("list_training_jobs").paginate(
        NameContains=RUN, SortBy="Name", SortOrder="Ascending", PaginationConfig={"PageSize": 2}
    )
    names = [job["TrainingJobName"] for page in listed for job in page["TrainingJobSummaries"]]
    assert names == [f"{word}-{RUN}" for word in ("command", "completes", "fails", "stops")]
    failed = sagemaker.list_training_jobs(NameContains=RUN, StatusEquals="Failed")["TrainingJobSummaries"]
    assert [job["TrainingJobName"] for job in failed] == [f"fails-{RUN}"]
    expression = {
        "Filters": [
            {"Name": "Tags.run", "Operator": "Equals", "Value": RUN},
            {"Name": "TrainingJobStatus", "Operator": "Equals", "Value": "Completed"},
            {"Name": "Metrics.loss", "Operator": "LessThan", "Value": "3"},
        ]
    }
    pages = sagemaker.get_paginator("search").paginate(Resource="TrainingJob", SearchExpression=expression)
    found = [each["TrainingJob"]["TrainingJobName"] for page in pages for each in page["Results"]]
    assert found == [f"completes-{RUN}"]


def deletes() -> None:
    name = f"fails-{RUN}"
    sagemaker.delete_training_job(TrainingJobName=name)
    assert code(sagemaker.describe_training_job, TrainingJobName=name) == "ValidationException"


def wait_for(name: str) -> None:
    waiter = sagemaker.get_waiter("training_job_completed_or_stopped")
    try:
        waiter.wait(TrainingJobName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 90})
    except WaiterError as error:
        # A failure is also an end.
        if 'matched expected path: "Failed"' not in str(error):
            raise


def with_hyperparameter(request: dict[str, Any], name: str, value: str) -> dict[str, Any]:
    return {**request, "HyperParameters": request["HyperParameters"] | {name: value}}


def packed(name: str, text: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = len(text.encode())
        archive.addfile(entry, io.BytesIO(text.encode()))
    return buffer.getvalue()


def code(call: Any, **members: Any) -> str:
    try:
        call(**members)
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return "no error"


main()

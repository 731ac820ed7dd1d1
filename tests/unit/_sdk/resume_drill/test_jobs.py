from typing import Any

import pytest

from tests.unit.recording import RecordingApi
from trainyard._sdk.resume_drill.jobs import TAG, DrillJob, drill_name, drill_request, find_drill_jobs, remove_drill_job

DRILL_JOB = DrillJob("mine", "mnist-drill-abc-whole")
JOB: dict[str, Any] = {
    "TrainingJobName": "mnist",
    "TrainingJobArn": "arn:mnist",
    "TrainingJobStatus": "Completed",
    "RoleArn": "arn:role",
    "AlgorithmSpecification": {"TrainingImage": "pytorch", "TrainingInputMode": "File"},
    "HyperParameters": {"epochs": "3", "sagemaker_job_name": '"mnist"'},
    "InputDataConfig": [{"ChannelName": "train"}],
    "OutputDataConfig": {"S3OutputPath": "s3://data/out", "KmsKeyId": ""},
    "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 2, "KeepAlivePeriodInSeconds": 60},
    "CheckpointConfig": {"S3Uri": "s3://data/checkpoints", "LocalPath": "/state"},
    "TensorBoardOutputConfig": {"S3OutputPath": "s3://data/board", "LocalPath": "/board"},
    "StoppingCondition": {"MaxRuntimeInSeconds": 100, "MaxPendingTimeInSeconds": 7200},
    "RetryStrategy": {"MaximumRetryAttempts": 3},
    "EnableManagedSpotTraining": True,
    "EnableNetworkIsolation": True,
}


def test_a_drill_keeps_what_its_script_sees() -> None:
    asked = drill_request(JOB, DRILL_JOB, engine="ray", is_spot=False)
    for member in ("RoleArn", "AlgorithmSpecification", "InputDataConfig", "EnableNetworkIsolation"):
        assert asked[member] == JOB[member]
    assert asked["HyperParameters"] == {"epochs": "3", "sagemaker_job_name": '"mnist-drill-abc-whole"'}
    assert asked["ResourceConfig"] == {"InstanceType": "ml.m5.large", "InstanceCount": 2}
    assert asked["Tags"] == [{"Key": TAG, "Value": "mnist"}, {"Key": "trainyard:engine", "Value": "ray"}]
    assert not {"RetryStrategy", "TrainingJobArn", "TrainingJobStatus"} & asked.keys()


def test_a_drill_writes_nowhere_that_its_job_does() -> None:
    asked = drill_request(JOB, DRILL_JOB, engine="ray", is_spot=False)
    own = "s3://mine/trainyard-drills/mnist-drill-abc-whole/"
    assert asked["OutputDataConfig"] == {"S3OutputPath": f"{own}output"}
    assert asked["CheckpointConfig"] == {"S3Uri": f"{own}checkpoints", "LocalPath": "/state"}
    assert asked["TensorBoardOutputConfig"] == {"S3OutputPath": f"{own}tensorboard", "LocalPath": "/board"}
    assert "s3://data" not in str({name: value for name, value in asked.items() if name != "InputDataConfig"})


@pytest.mark.parametrize(("is_spot", "run_s"), [(False, 100), (True, 200)])
def test_only_the_one_that_is_interrupted_is_on_spot_and_may_run_twice(is_spot: bool, run_s: int) -> None:
    asked = drill_request(JOB, DRILL_JOB, engine="ray", is_spot=is_spot)
    limits = asked["StoppingCondition"]
    assert (asked["EnableManagedSpotTraining"], limits["MaxRuntimeInSeconds"]) == (is_spot, run_s)
    assert limits.get("MaxWaitTimeInSeconds", run_s) >= run_s
    assert ("MaxWaitTimeInSeconds" in limits) == is_spot


def test_names_are_never_too_long() -> None:
    assert drill_name("mnist", "abc", "whole") == "mnist-drill-abc-whole"
    assert drill_name("x" * 42 + "-" + "y" * 20, "abcdef", "interrupted") == "x" * 38 + "-drill-abcdef-interrupted"
    assert len(drill_name("x" * 63, "abcdef", "interrupted")) == 63
    assert "--" not in drill_name("x" * 37 + "-" + "y" * 25, "abcdef", "interrupted")


def job(name: str, *, status: str = "Completed", path: str = "") -> dict[str, Any]:
    where = path or f"s3://mine/trainyard-drills/{name}/output"
    shape = {"TrainingJobName": name, "TrainingJobStatus": status, "OutputDataConfig": {"S3OutputPath": where}}
    return {"TrainingJob": shape}


def test_only_jobs_of_drills_that_have_ended_are_found() -> None:
    pages: dict[str | None, dict[str, Any]] = {
        None: {"Results": [job("a"), job("b", status="InProgress"), job("c", path="s3://data/out")], "NextToken": "2"},
        "2": {"Results": [job("d", status="Failed")]},
    }
    api = RecordingApi(Search=lambda asked: pages[asked.get("NextToken")])
    assert list(find_drill_jobs(api, "mnist")) == [DrillJob("mine", "a"), DrillJob("mine", "d")]
    (condition,) = api.asked[0][1]["SearchExpression"]["Filters"]
    assert condition == {"Name": "Tags.trainyard:drill", "Operator": "Equals", "Value": "mnist"}


def test_a_job_goes_with_all_that_it_stored() -> None:
    keys = ["trainyard-drills/a/checkpoints/x", "trainyard-drills/a/output/a/output/model.tar.gz"]
    api = RecordingApi(ListObjectsV2={"Contents": [{"Key": key} for key in keys]})
    remove_drill_job(api, DrillJob("mine", "a"))
    assert api.only("ListObjectsV2") == {"Bucket": "mine", "Prefix": "trainyard-drills/a/", "EncodingType": "url"}
    assert [asked["Key"] for name, asked in api.asked if name == "DeleteObject"] == keys
    assert api.only("DeleteTrainingJob") == {"TrainingJobName": "a"}

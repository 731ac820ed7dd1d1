from datetime import UTC, datetime

import pytest

from tests.unit.recording import RecordingApi
from trainyard._sdk.training.replay import recorded_steps, replay_request
from trainyard.foundation.errors import InvalidRequest

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
DESCRIBED = {
    "TrainingJobArn": "arn:aws:sagemaker:us-east-1:123456789012:training-job/mnist",
    "TrainingJobName": "mnist",
    "AlgorithmSpecification": {"TrainingImage": "i", "TrainingInputMode": "Pipe"},
    "RoleArn": "arn",
    "HyperParameters": {"sagemaker_program": "train.py"},
    "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 2},
    "InputDataConfig": [{"ChannelName": "train"}],
    "OutputDataConfig": {"S3OutputPath": "s3://b/out", "KmsKeyId": ""},
    "StoppingCondition": {"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 90},
    "EnableManagedSpotTraining": True,
    "CheckpointConfig": {"S3Uri": "s3://b/ck"},
    "DebugHookConfig": {"S3OutputPath": "s3://b/debug/"},
    "DebugRuleConfigurations": [{"RuleConfigurationName": "Overfit"}],
    "Environment": {"A": "1"},
}


def test_the_steps_that_can_be_run_again_are_those_with_a_record() -> None:
    below = "debug/mnist/debug-output/records"
    keys = [f"{below}/worker_{rank}/000000000412/record.json" for rank in (0, 1)]
    keys += [f"{below}/worker_0/000000000007/record.json", f"{below}/worker_0/000000000009/batches.pt"]
    api = RecordingApi(ListObjectsV2={"Contents": [{"Key": key} for key in keys]})
    assert recorded_steps(api, DESCRIBED) == [7, 412]


def test_a_replay_is_the_same_job_without_what_would_change_or_keep_anything() -> None:
    request = replay_request(DESCRIBED, 412, engine="ray", now=NOON)
    assert request["TrainingJobName"] == "mnist-replay-2026-07-01-12-00-00-000"
    assert request["Environment"] == {"A": "1", "TRAINYARD_REPLAY": "412"}
    train, records = request["InputDataConfig"]
    assert (train, records["ChannelName"], records["InputMode"]) == (
        {"ChannelName": "train"},
        "trainyard-replay",
        "File",
    )
    assert records["DataSource"]["S3DataSource"]["S3Uri"] == "s3://b/debug/mnist/debug-output/records/"
    assert request["StoppingCondition"] == {"MaxRuntimeInSeconds": 60}
    assert request["OutputDataConfig"] == {"S3OutputPath": "s3://b/out"}
    assert not {"CheckpointConfig", "EnableManagedSpotTraining", "DebugRuleConfigurations"} & request.keys()
    assert request["DebugHookConfig"] == DESCRIBED["DebugHookConfig"]


def test_a_job_without_a_hook_has_nothing_to_run_again() -> None:
    with pytest.raises(InvalidRequest, match="without a DebugHookConfig"):
        replay_request({"TrainingJobName": "mnist"}, 1, engine="ray", now=NOON)

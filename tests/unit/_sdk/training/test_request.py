from typing import Any

import pytest

from trainyard._sdk.training.options import TrainingOptions
from trainyard._sdk.training.request import ResolvedJob, require_consistent, training_request
from trainyard.foundation.errors import InvalidRequest
from trainyard.inputs import TrainingInput
from trainyard.instance_group import InstanceGroup

RESOLVED = ResolvedJob("job", "image:1", "arn:aws:iam::1:role/R", "s3://bucket/", {"a": "1"})


def request_of(inputs: Any = None, resolved: ResolvedJob = RESOLVED, **options: Any) -> dict[str, Any]:
    return training_request(TrainingOptions(instance_type="ml.m5.large", **options), resolved, inputs)


def test_a_plain_request_has_nothing_that_was_not_asked_for() -> None:
    assert request_of() == {
        "TrainingJobName": "job",
        "AlgorithmSpecification": {"TrainingImage": "image:1", "TrainingInputMode": "File"},
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/"},
        "ResourceConfig": {"InstanceCount": 1, "InstanceType": "ml.m5.large", "VolumeSizeInGB": 30},
        "StoppingCondition": {"MaxRuntimeInSeconds": 86400},
        "RoleArn": "arn:aws:iam::1:role/R",
        "HyperParameters": {"a": "1"},
    }


@pytest.mark.parametrize(
    ("options", "member", "value"),
    [
        ({"environment": {"A": "b"}}, "Environment", {"A": "b"}),
        ({"tags": {"a": "b"}}, "Tags", [{"Key": "a", "Value": "b"}]),
        ({"tags": [{"Key": "a", "Value": "b"}]}, "Tags", [{"Key": "a", "Value": "b"}]),
        ({"engine": "ray"}, "Tags", [{"Key": "trainyard:engine", "Value": "ray"}]),
        (
            {"engine": "ray", "tags": {"a": "b", "trainyard:engine": "local"}},
            "Tags",
            [{"Key": "a", "Value": "b"}, {"Key": "trainyard:engine", "Value": "ray"}],
        ),
        (
            {"subnets": ["s"], "security_group_ids": ["g"]},
            "VpcConfig",
            {"Subnets": ["s"], "SecurityGroupIds": ["g"]},
        ),
        ({"checkpoint_s3_uri": "s3://b/c"}, "CheckpointConfig", {"S3Uri": "s3://b/c"}),
        (
            {"checkpoint_s3_uri": "s3://b/c", "checkpoint_local_path": "/state"},
            "CheckpointConfig",
            {"S3Uri": "s3://b/c", "LocalPath": "/state"},
        ),
        ({"enable_network_isolation": True}, "EnableNetworkIsolation", True),
        ({"encrypt_inter_container_traffic": True}, "EnableInterContainerTrafficEncryption", True),
        ({"use_spot_instances": True}, "EnableManagedSpotTraining", True),
        ({"disable_profiler": True}, "ProfilerConfig", {"DisableProfiler": True}),
        ({"max_retry_attempts": 2}, "RetryStrategy", {"MaximumRetryAttempts": 2}),
        (
            {"max_run": 1800, "max_wait": 3600},
            "StoppingCondition",
            {"MaxRuntimeInSeconds": 1800, "MaxWaitTimeInSeconds": 3600},
        ),
        (
            {"keep_alive_period_in_seconds": 60, "volume_kms_key": "k", "volume_size": 5, "instance_count": 2},
            "ResourceConfig",
            {
                "InstanceCount": 2,
                "InstanceType": "ml.m5.large",
                "VolumeSizeInGB": 5,
                "VolumeKmsKeyId": "k",
                "KeepAlivePeriodInSeconds": 60,
            },
        ),
        (
            {"output_kms_key": "k", "disable_output_compression": True},
            "OutputDataConfig",
            {"S3OutputPath": "s3://bucket/", "KmsKeyId": "k", "CompressionType": "NONE"},
        ),
        (
            {
                "metric_definitions": [{"Name": "loss", "Regex": "l=(.*)"}],
                "container_entry_point": ["python", "x.py"],
                "container_arguments": ["--a"],
                "input_mode": "FastFile",
                "enable_sagemaker_metrics": True,
            },
            "AlgorithmSpecification",
            {
                "TrainingImage": "image:1",
                "TrainingInputMode": "FastFile",
                "MetricDefinitions": [{"Name": "loss", "Regex": "l=(.*)"}],
                "ContainerEntrypoint": ["python", "x.py"],
                "ContainerArguments": ["--a"],
                "EnableSageMakerMetricsTimeSeries": True,
            },
        ),
    ],
)
def test_each_option_has_its_member(options: dict[str, Any], member: str, value: Any) -> None:
    assert request_of(**options)[member] == value


def test_the_mode_of_the_only_input_is_that_of_the_job() -> None:
    request = request_of(TrainingInput("s3://b/d", input_mode="Pipe"))
    assert request["AlgorithmSpecification"]["TrainingInputMode"] == "Pipe"


def test_a_model_to_begin_with_is_a_channel_more() -> None:
    first, second = request_of({"train": "s3://b/d"}, model_uri="s3://b/m.tar.gz")["InputDataConfig"]
    assert first["ChannelName"] == "train"
    assert (second["ChannelName"], second["ContentType"], second["InputMode"]) == (
        "model",
        "application/x-sagemaker-model",
        "File",
    )


def test_code_that_cannot_be_fetched_comes_through_a_channel() -> None:
    resolved = ResolvedJob("job", "image:1", "arn", "s3://bucket/", {}, code_uri="s3://b/sourcedir.tar.gz")
    (channel,) = request_of(resolved=resolved, input_mode="Pipe")["InputDataConfig"]
    assert (channel["ChannelName"], channel["InputMode"]) == ("code", "File")
    assert channel["DataSource"]["S3DataSource"]["S3Uri"] == "s3://b/sourcedir.tar.gz"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"instance_type": "ml.m5.large", "instance_groups": [InstanceGroup("g", "ml.m5.large", 1)]},
            "instance_groups have their own types and counts",
        ),
        ({"input_mode": "Stream"}, 'input_mode is "Stream"; it can be File, FastFile or Pipe'),
        ({"use_spot_instances": True}, "use_spot_instances needs max_wait"),
        ({"max_wait": 60}, "max_wait is only for spot jobs"),
        (
            {"use_spot_instances": True, "max_run": 600, "max_wait": 60},
            "max_wait is 60 s and max_run 600 s; max_wait includes max_run",
        ),
        ({"checkpoint_s3_uri": "/state"}, 'checkpoint_s3_uri is "/state"; it must be a location on S3'),
        ({"checkpoint_local_path": "/state"}, "without a checkpoint_s3_uri nothing in it is saved"),
        (
            {"checkpoint_s3_uri": "s3://b/c", "checkpoint_local_path": "state"},
            'checkpoint_local_path is "state"; it must be absolute',
        ),
        ({"model_uri": "model.tar.gz"}, 'model_uri is "model.tar.gz"; it must be a location on S3'),
        ({"model_uri": "s3://b/m.tar.gz"}, 'The channel "model" is both that of model_uri and one of the inputs'),
    ],
)
def test_conflicting_options_are_refused_by_name(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        require_consistent(TrainingOptions(**options), {"model": "s3://b/other"})


def test_groups_of_instances_stand_in_place_of_a_type_and_a_count() -> None:
    groups = [InstanceGroup("feeders", "ml.c5.xlarge", 2), InstanceGroup("trainers", "ml.p3.2xlarge", 1)]
    options = TrainingOptions(instance_groups=groups)
    require_consistent(options, None)

    assert training_request(options, RESOLVED, None)["ResourceConfig"] == {
        "InstanceGroups": [
            {"InstanceGroupName": "feeders", "InstanceType": "ml.c5.xlarge", "InstanceCount": 2},
            {"InstanceGroupName": "trainers", "InstanceType": "ml.p3.2xlarge", "InstanceCount": 1},
        ],
        "VolumeSizeInGB": 30,
    }


def test_the_options_of_a_spot_job_that_resumes_from_a_model_and_checkpoints_combine() -> None:
    options = TrainingOptions(
        use_spot_instances=True,
        max_run=600,
        max_wait=600,
        checkpoint_s3_uri="s3://b/c",
        checkpoint_local_path="/state",
        model_uri="s3://b/model.tar.gz",
        input_mode="FastFile",
    )
    require_consistent(options, {"train": "s3://b/t"})

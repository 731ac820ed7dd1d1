"""The files that the platform leaves on an instance, as recorded on SageMaker in 2020."""

from typing import Any

from tests.unit.instance.agent.samples import RECORDED, changed
from trainyard.instance.agent.program.configuration import config_files
from trainyard.instance.agent.program.platform_files import channel_manifests, checkpoint_manifest
from trainyard.link.contract import ChannelSpec, MetricSpec, SyncSpec

STATE = {"S3Uri": "s3://bucket/task/state", "LocalPath": "/state"}
REQUEST: dict[str, Any] = {
    "TrainingJobName": "mnist-7",
    "AlgorithmSpecification": {"TrainingImage": "task:latest", "TrainingInputMode": "File"},
    "InputDataConfig": [
        {
            "ChannelName": "data",
            "DataSource": {
                "S3DataSource": {
                    "S3DataType": "S3Prefix",
                    "S3Uri": "s3://bucket/task/input",
                    "S3DataDistributionType": "ShardedByS3Key",
                }
            },
        }
    ],
    "OutputDataConfig": {"S3OutputPath": "s3://bucket/task"},
    "EnableManagedSpotTraining": True,
    "CheckpointConfig": STATE,
    "Tags": [{"Key": "project", "Value": "p"}],
}


def test_the_platform_s_view_of_the_channels_is_as_recorded() -> None:
    spec = changed(request=REQUEST, hosts=("algo-1", "algo-2"))
    assert config_files(spec)["init-config.json"] == {
        "inputMode": "FILE",
        "channels": {
            "data": {
                "s3DataSource": {
                    "s3DataType": "S3_PREFIX",
                    "s3Uri": "s3://bucket/task/input",
                    "s3DataDistributionType": "SHARDED_BY_S3_KEY",
                    "attributeNames": None,
                },
                "fileSystemDataSource": None,
                "compressionType": "NONE",
                "recordWrapper": "NONE",
                "shuffleConfig": None,
                "inputMode": "FILE",
                "sharded": True,
            }
        },
        "checkpointChannel": {
            "name": "checkpoints",
            "channel": {
                "s3DataSource": {
                    "s3DataType": "S3_PREFIX",
                    "s3Uri": "s3://bucket/task/state",
                    "s3DataDistributionType": None,
                    "attributeNames": None,
                },
                "fileSystemDataSource": None,
                "compressionType": None,
                "recordWrapper": None,
                "shuffleConfig": None,
                "inputMode": "FILE",
                "sharded": False,
            },
            "outputPath": "/opt/ml/checkpoints",
            "allowEmpty": True,
        },
        "hostConfig": {"clusterSize": 2, "hostNumber": 1},
        "enableAdditionalPlatformLoggingForCustomer": False,
        "jobRunInfo": {"jobRunNumber": 1},
    }


def test_the_request_is_there_with_the_words_of_the_platform() -> None:
    spec = changed(request=REQUEST)
    told = config_files(spec)["trainingjobconfig.json"]
    [channel] = told["InputDataConfig"]
    assert channel == {
        "ChannelName": "data",
        "DataSource": {
            "S3DataSource": {
                "S3DataType": "S3_PREFIX",
                "S3Uri": "s3://bucket/task/input",
                "S3DataDistributionType": "SHARDED_BY_S3_KEY",
            }
        },
        "CompressionType": "NONE",
        "RecordWrapperType": "NONE",
    }
    assert told["OutputDataConfig"] == {"KmsKeyId": "", "S3OutputPath": "s3://bucket/task"}
    assert told["AlgorithmSpecification"]["MetricDefinitions"] == []
    assert told["Tags"] == told["BaseTags"] == REQUEST["Tags"]
    assert (told["TrainingJobArn"], told["EnableNetworkIsolation"]) == (spec.job_arn, False)
    assert (told["CheckpointConfig"], told["EnableManagedSpotTraining"]) == (STATE, True)


def test_a_job_without_channels_metrics_and_checkpoints_has_the_files_too() -> None:
    bare = {name: REQUEST[name] for name in ("AlgorithmSpecification", "OutputDataConfig")}
    files = config_files(changed(request=bare))
    assert (files["init-config.json"]["channels"], files["init-config.json"]["checkpointChannel"]) == ({}, None)
    assert files["metric-definition-regex.json"] == files["upstreamoutputdataconfig.json"] == []
    with_metric = changed(request=bare, metrics=[MetricSpec("loss", "loss=(.*)")])
    assert config_files(with_metric)["metric-definition-regex.json"] == [{"name": "loss", "regex": "loss=(.*)"}]


def test_a_spec_of_an_earlier_release_has_none_of_the_files() -> None:
    assert "init-config.json" not in config_files(RECORDED["every kind of value"])


def test_a_manifest_lists_the_objects_of_a_file_channel() -> None:
    channels = [
        ChannelSpec("data", "File", "bucket", "task/input", ["task/input/test", "task/input/test2"]),
        ChannelSpec("data-manifest", "File", "bucket", "other", ["other/1"]),
        ChannelSpec("pipe", "Pipe", "bucket", "task/input", ["task/input/test"]),
        ChannelSpec("shared", "File", "", "", folder="/mnt", directory="sets"),
    ]
    assert dict(channel_manifests(changed(channels=channels))) == {
        "data-manifest-manifest": b"other\ns3://bucket/other/1\n"
    }
    assert dict(channel_manifests(changed(channels=channels[:1]))) == {
        "data-manifest": b"task/input\ns3://bucket/task/input/test\ns3://bucket/task/input/test2\n"
    }


def test_the_checkpoints_have_a_manifest_as_a_channel_of_the_platform_has() -> None:
    saved = changed(checkpoint=SyncSpec("s3://bucket/task/state", "/state"))
    # As recorded, before anything was saved.
    assert checkpoint_manifest(saved, []) == {"checkpoints-manifest": b"task/state\n"}
    resumed = checkpoint_manifest(saved, ["task/state/1.pt"])
    assert resumed == {"checkpoints-manifest": b"task/state\ns3://bucket/task/state/1.pt\n"}
    assert checkpoint_manifest(changed(), []) == {}


def test_a_channel_named_checkpoints_keeps_its_own_manifest() -> None:
    for name in ("checkpoints", "checkpoints-manifest"):
        channels = [ChannelSpec(name, "File", "bucket", "data", ["data/1"])]
        spec = changed(channels=channels, checkpoint=SyncSpec("s3://bucket/task/state", "/state"))
        assert checkpoint_manifest(spec, []) == {}

import json
from typing import Any

import pytest

from tests.unit.recording import RecordingApi
from trainyard._sdk.training.job_data import DataPrefix, DataUse, data_prefixes, measure_data, remove_data
from trainyard.wire.client import CallFailed

DATA = DataPrefix("output", "bucket", "mnist-1/output/")


def description(**more: Any) -> dict[str, Any]:
    return {"TrainingJobName": "mnist-1", "OutputDataConfig": {"S3OutputPath": "s3://bucket/out/"}, **more}


def test_the_prefixes_of_a_job_carry_its_name_and_end_in_a_slash() -> None:
    found = data_prefixes(
        description(
            DebugHookConfig={"S3OutputPath": "s3://bucket"},
            TensorBoardOutputConfig={"S3OutputPath": "s3://other/tb"},
            HyperParameters={
                "sagemaker_submit_directory": json.dumps("s3://bucket/mnist-1/source/0a1b/sourcedir.tar.gz")
            },
            CheckpointConfig={"S3Uri": "s3://bucket/runs/mnist-1/"},
        )
    )

    assert {(each.kind, each.uri) for each in found} == {
        ("output", "s3://bucket/out/mnist-1/output/"),
        ("profiles", "s3://bucket/out/mnist-1/profiler-output/"),
        ("tensors", "s3://bucket/mnist-1/debug-output/"),
        ("reports of rules", "s3://bucket/mnist-1/rule-output/"),
        ("TensorBoard", "s3://other/tb/mnist-1/tensorboard-output/"),
        ("code", "s3://bucket/mnist-1/source/"),
        ("checkpoints", "s3://bucket/runs/mnist-1/"),
    }
    assert not any(each.is_shared for each in found)


def test_profiles_and_reports_lie_with_the_output_unless_the_job_says_otherwise() -> None:
    rules = [{"RuleConfigurationName": "a"}, {"RuleConfigurationName": "b", "S3OutputPath": "s3://other"}]
    found = data_prefixes(description(ProfilerRuleConfigurations=rules))
    assert [(each.kind, each.uri) for each in found[1:]] == [
        ("profiles", "s3://bucket/out/mnist-1/profiler-output/"),
        ("reports of rules", "s3://bucket/out/mnist-1/rule-output/"),
        ("reports of rules", "s3://other/mnist-1/rule-output/"),
    ]
    (_, profiles) = data_prefixes(description(ProfilerConfig={"S3OutputPath": "s3://other/p"}))
    assert profiles.uri == "s3://other/p/mnist-1/profiler-output/"


@pytest.mark.parametrize("uri", ["s3://bucket/runs", "s3://bucket/mnist-10", "s3://bucket/x-mnist-1/c"])
def test_checkpoints_elsewhere_may_be_shared(uri: str) -> None:
    (*_, checkpoints) = data_prefixes(description(CheckpointConfig={"S3Uri": uri}))
    assert checkpoints.is_shared


def test_a_whole_bucket_is_never_among_them() -> None:
    for uri in ("s3://bucket", "s3://bucket/", "s3://bucket//"):
        assert [each.kind for each in data_prefixes(description(CheckpointConfig={"S3Uri": uri}))] == [
            "output",
            "profiles",
        ]


@pytest.mark.parametrize(
    "code", ['"s3://bucket/shared/sourcedir.tar.gz"', '"/opt/ml/input/data/code/sourcedir.tar.gz"', "7", "not json"]
)
def test_code_that_others_may_use_is_not_among_them(code: str) -> None:
    found = data_prefixes(description(HyperParameters={"sagemaker_submit_directory": code}))
    assert [each.kind for each in found] == ["output", "profiles"]


def listing(count: int) -> dict[str, Any]:
    return {"Contents": [{"Key": f"k{n}", "Size": 2, "ETag": "e", "LastModified": None} for n in range(count)]}


def test_data_is_measured_and_removed_in_batches() -> None:
    api = RecordingApi(ListObjectsV2=listing(1500))

    assert measure_data(api, DATA) == DataUse(1500, 3000)
    remove_data(api, DATA)

    removed = [asked["Delete"]["Objects"] for operation, asked in api.asked if operation == "DeleteObjects"]
    assert [len(batch) for batch in removed] == [1000, 500]
    assert all(asked["Prefix"] == DATA.prefix for operation, asked in api.asked if operation == "ListObjectsV2")


def test_an_object_that_cannot_be_removed_is_an_error() -> None:
    failed = {"Errors": [{"Key": "k0", "Code": "AccessDenied", "Message": "no"}]}
    with pytest.raises(CallFailed, match="bucket/k0: no"):
        remove_data(RecordingApi(ListObjectsV2=listing(1), DeleteObjects=failed), DATA)


def test_a_bucket_that_is_gone_has_no_data() -> None:
    def gone(_: dict[str, Any]) -> dict[str, Any]:
        raise CallFailed("NoSuchBucket", "gone", status=404)

    assert measure_data(RecordingApi(ListObjectsV2=gone), DATA) == DataUse(0, 0)

import ast
import shlex
from datetime import UTC, datetime
from typing import Any

import pytest

from trainyard.cli.main import run
from trainyard.cli.terminal.failure import ExitCode
from trainyard.server.dashboard.pages.definition.request import next_name
from trainyard.server.dashboard.pages.definition.snippets import boto3_call, command_line, sdk_program, snippets_of

NOW = datetime(2026, 7, 1, 12, 30, 15, 250_000, UTC)
REQUEST: dict[str, Any] = {
    "TrainingJobName": "digits-1",
    "HyperParameters": {
        "sagemaker_program": '"train.py"',
        "sagemaker_submit_directory": '"s3://bucket/code/sourcedir.tar.gz"',
        "sagemaker_torch_distributed_enabled": "true",
        "lr": "0.1",
        "layers": "[1, 2]",
        "note": '"it\'s \\"quoted\\" \u202e"',
    },
    "AlgorithmSpecification": {
        "TrainingImage": "pytorch-training:2.6-cpu-py312",
        "TrainingInputMode": "File",
        "MetricDefinitions": [{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
    },
    "RoleArn": "arn:aws:iam::111122223333:role/R",
    "InputDataConfig": [
        {
            "ChannelName": "train",
            "InputMode": "FastFile",
            "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://bucket/train $HOME"}},
        }
    ],
    "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
    "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 30},
    "StoppingCondition": {"MaxRuntimeInSeconds": 90, "MaxWaitTimeInSeconds": 600},
    "EnableManagedSpotTraining": True,
    "Tags": [{"Key": "team", "Value": "a b"}],
}


def keywords(program: str, function: str) -> dict[str, Any]:
    calls = [node for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Call)]
    call = next(each for each in calls if ast.unparse(each.func) == function)
    return {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}


def test_the_call_of_boto3_has_the_whole_request() -> None:
    assert keywords(boto3_call(REQUEST), "sagemaker.create_training_job") == REQUEST


def test_the_program_of_the_sdk_has_the_options() -> None:
    program = sdk_program(REQUEST)
    given = keywords(program, "PyTorch")
    assert given["hyperparameters"] == {"lr": 0.1, "layers": [1, 2], "note": 'it\'s "quoted" \u202e'}
    assert given["distribution"] == {"torch_distributed": {"enabled": True}}
    assert (given["use_spot_instances"], given["max_wait"], given["instance_count"]) == (True, 600, 2)
    assert keywords(program, "estimator.fit") == {"job_name": "digits-1"}
    assert 'TrainingInput("s3://bucket/train $HOME", input_mode="FastFile")' in program


def test_an_image_without_a_script_needs_an_estimator() -> None:
    algorithm = {"TrainingImage": "image:1", "ContainerEntrypoint": ["run"], "TrainingInputMode": "File"}
    request = REQUEST | {"HyperParameters": {"depth": "3"}, "AlgorithmSpecification": algorithm}
    given = keywords(sdk_program(request), "Estimator")
    assert (given["container_entry_point"], given["hyperparameters"]) == (["run"], {"depth": "3"})
    assert [each.id for each in snippets_of(request)] == ["sdk", "boto3", "json"]


def test_the_command_line_is_one_that_the_command_understands(capfd: pytest.CaptureFixture[str]) -> None:
    text = command_line(REQUEST)
    assert text.startswith("mkdir -p code && aws s3 cp s3://bucket/code/sourcedir.tar.gz - | tar -xz -C code\n")
    words = shlex.split(text.partition("\n")[2].replace("\\\n", ""))
    assert words[:3] == ["trainyard", "run", "train.py"]
    assert words[words.index("--iis") :][:4] == ["--iis", "train", "s3://bucket/train $HOME", "FastFile"]
    assert words[-6:] == ["--lr", "0.1", "--layers", "[1, 2]", "--note", 'it\'s "quoted" \u202e']
    # The code is not there, which is checked after all options were understood.
    assert run(words[1:], {}) == ExitCode.USAGE
    assert "code" in capfd.readouterr().err


def test_members_that_are_left_out_are_named() -> None:
    request = REQUEST | {"DebugHookConfig": {"S3OutputPath": "s3://bucket/out"}}
    for text in (command_line(request), sdk_program(request)):
        assert text.rstrip().endswith("# Without DebugHookConfig, which the request for boto3 has.")


@pytest.mark.parametrize(
    ("name", "following"),
    [
        ("digits", "digits-copy"),
        ("resnet-50", "resnet-50-copy"),
        ("digits-copy", "digits-copy-2"),
        ("digits-copy-9", "digits-copy-10"),
        ("digits-2026-01-02-03-04-05-678", "digits-2026-07-01-12-30-15-250"),
        ("a" * 63, "a" * 58 + "-copy"),
    ],
)
def test_a_copy_gets_a_name_of_its_own(name: str, following: str) -> None:
    assert next_name(name, NOW) == following

"""The checkpoint and TensorBoard folders of a job, in its sandbox and in S3."""

from typing import Any

import pytest

from trainyard.foundation.errors import InvalidRequest
from trainyard.server.services.sagemaker.training.local_paths import (
    SyncedFolder,
    checkpoints_of,
    tensorboard_of,
    tensors_of,
)


def shape(**members: Any) -> dict[str, Any]:
    return {"TrainingJobName": "mnist-7", **members}


def checkpoints(path: str) -> SyncedFolder:
    return checkpoints_of(shape(CheckpointConfig={"S3Uri": "s3://data/ck", "LocalPath": path}))


def test_a_job_without_synced_folders_has_none() -> None:
    assert checkpoints_of(shape()) == tensorboard_of(shape()) == SyncedFolder()


def test_the_folders_have_the_places_that_programs_expect() -> None:
    assert checkpoints_of(shape(CheckpointConfig={"S3Uri": "s3://data/ck"})) == SyncedFolder(
        "s3://data/ck", "/opt/ml/checkpoints"
    )
    assert tensorboard_of(shape(TensorBoardOutputConfig={"S3OutputPath": "s3://data/tb/"})) == SyncedFolder(
        "s3://data/tb/mnist-7/tensorboard-output", "/opt/ml/output/tensorboard"
    )


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("/state", "/state"),
        ("/state/", "/state"),
        ("//data//state", "/data/state"),
        ("/opt/ml/checkpoints/run-1", "/opt/ml/checkpoints/run-1"),
        ("/opt/ml/model", "/opt/ml/model"),
        ("/tmp/checkpoints", "/tmp/checkpoints"),
        ("/mnt/ck", "/mnt/ck"),
        ("/checkpoints", "/checkpoints"),
        ("/opt/ml/codes", "/opt/ml/codes"),
    ],
)
def test_a_folder_where_programs_have_such_will_do(given: str, path: str) -> None:
    assert checkpoints(given).path == path


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/usr", "/usr/local/ck", "/etc/ck", "/tmp", "/opt", "/opt/ml", "/proc/1", "/.host/etc", "/home/me/ck"),
        *(
            "/opt/ml/code/ck",
            "/opt/ml/input",
            "/opt/ml/.trainyard",
            "/opt/ml/.trainyard/rules",
            "/opt/mlx",
            "/statement",
        ),
    ],
)
def test_any_other_folder_is_refused_with_those_that_are_allowed(path: str) -> None:
    allowed = r"below /opt/ml or /tmp, such as /opt/ml/checkpoints, or one of /checkpoints, /data, /mnt, /state"
    with pytest.raises(InvalidRequest, match=rf'CheckpointConfig\.LocalPath is "{path}"; .*{allowed}'):
        checkpoints(path)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("state", "must be an absolute path"),
        ("/state/../etc", r'cannot contain "\.\."'),
        ("/opt/ml/../../.host", r'cannot contain "\.\."'),
        ("/state/a\0b", "only printable characters"),
        ("/state/a\nb", "only printable characters"),
        ("/state/\ud800", "only printable characters"),
        (f"/state/{'n' * 256}", "each name in it at most 255"),
        ("/state/" + "n/" * 600, "at most 1024 bytes"),
    ],
)
def test_an_invalid_folder_name_is_refused(path: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=rf"CheckpointConfig\.LocalPath is .*{why}"):
        checkpoints(path)


@pytest.mark.parametrize("member", ["TensorBoardOutputConfig", "DebugHookConfig"])
def test_the_folders_of_tensors_and_of_tensorboard_are_checked_in_the_same_way(member: str) -> None:
    asked = shape(**{member: {"S3OutputPath": "s3://data/out", "LocalPath": "/.host/root"}})
    with pytest.raises(InvalidRequest, match=rf"{member}\.LocalPath is \"/\.host/root\"; it must be a folder below"):
        (tensorboard_of if member.startswith("Tensor") else tensors_of)(asked)

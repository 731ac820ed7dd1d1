"""Where a job's checkpoints and TensorBoard files are, in its sandbox and in S3."""

from typing import Any

import pytest

from trainyard.foundation.errors import InvalidRequest
from trainyard.server.services.sagemaker.synced import SyncedFolder, checkpoints_of, tensorboard_of


def shape(**members: Any) -> dict[str, Any]:
    return {"TrainingJobName": "mnist-7", **members}


def checkpoints(path: str) -> SyncedFolder:
    return checkpoints_of(shape(CheckpointConfig={"S3Uri": "s3://data/ck", "LocalPath": path}))


def test_a_job_without_them_has_none() -> None:
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
        ("/home/me/ck", "/home/me/ck"),
        ("/library", "/library"),
    ],
)
def test_any_folder_of_its_own_will_do(given: str, path: str) -> None:
    assert checkpoints(given).path == path


@pytest.mark.parametrize(
    "path",
    ["/", "/usr", "/usr/local/ck", "/etc/ck", "/tmp", "/opt", "/opt/ml", "/opt/ml/code/ck", "/opt/ml/input", "/proc/1"],
)
def test_a_folder_that_would_hide_what_the_program_needs_is_refused(path: str) -> None:
    with pytest.raises(
        InvalidRequest, match=rf'CheckpointConfig.LocalPath is "{path}", .* such as /opt/ml/checkpoints'
    ):
        checkpoints(path)


@pytest.mark.parametrize("path", ["state", "/a/../etc", "/a\0b", f"/{'n' * 256}"])
def test_what_is_no_absolute_path_is_refused(path: str) -> None:
    with pytest.raises(InvalidRequest, match=r"CheckpointConfig\.LocalPath"):
        checkpoints(path)

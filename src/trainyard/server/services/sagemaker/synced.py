"""The folders of a training job that are kept in S3 while it runs: checkpoints, TensorBoard's files, and tensors."""

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass

from trainyard.foundation.errors import InvalidRequest
from trainyard.server.services.contract import Shape
from trainyard.server.services.sagemaker.paths import require_path

CHECKPOINTS = "/opt/ml/checkpoints"
TENSORBOARD = "/opt/ml/output/tensorboard"
TENSORS = "/opt/ml/output/tensors"

# Where a program may have such a folder. Only names that no system uses for itself stand outside of these two.
_BELOW = ("/opt/ml", "/tmp")
_OUTSIDE = ("/checkpoints", "/data", "/mnt", "/state")
_TAKEN = ("/opt/ml/.trainyard", "/opt/ml/code", "/opt/ml/input")  # which have a purpose of their own


@dataclass(frozen=True, slots=True)
class SyncedFolder:
    """A path as the program sees it, and the S3 location where its files are kept; both empty when there is none."""

    uri: str = ""
    path: str = ""


def checkpoints_of(shape: Shape) -> SyncedFolder:
    """InvalidRequest when the path is none where a program may have such a folder."""
    if "CheckpointConfig" not in shape:
        return SyncedFolder()
    config = shape["CheckpointConfig"]
    path = _path(config.get("LocalPath") or CHECKPOINTS, "CheckpointConfig.LocalPath")
    return SyncedFolder(config["S3Uri"], path)


def tensorboard_of(shape: Shape) -> SyncedFolder:
    """Its files are where clients look for them: under the job's name in the location that the request names."""
    if "TensorBoardOutputConfig" not in shape:
        return SyncedFolder()
    config = shape["TensorBoardOutputConfig"]
    path = _path(config.get("LocalPath") or TENSORBOARD, "TensorBoardOutputConfig.LocalPath")
    return SyncedFolder(f"{config['S3OutputPath'].rstrip('/')}/{shape['TrainingJobName']}/tensorboard-output", path)


def tensors_of(shape: Shape) -> SyncedFolder:
    """Where the hook leaves tensors, and where clients look for them."""
    config = shape["DebugHookConfig"]
    path = _path(config.get("LocalPath") or TENSORS, "DebugHookConfig.LocalPath")
    return SyncedFolder(f"{config['S3OutputPath'].rstrip('/')}/{shape['TrainingJobName']}/debug-output", path)


def _path(given: str, member: str) -> str:
    require_path(given, member)
    if not given.startswith("/"):
        raise InvalidRequest(f'{member} is "{given}"; it must be an absolute path, such as {CHECKPOINTS}.')
    path = posixpath.normpath("/" + given.lstrip("/"))
    is_allowed = any(path.startswith(f"{folder}/") for folder in _BELOW) or _lies_in(path, _OUTSIDE)
    if not is_allowed or _lies_in(path, _TAKEN):
        raise InvalidRequest(
            f'{member} is "{path}"; it must be a folder below {" or ".join(_BELOW)}, such as {CHECKPOINTS}, or one of '
            f"{', '.join(_OUTSIDE)} or below it. {', '.join(_TAKEN)} have a purpose of their own."
        )
    return path


def _lies_in(path: str, folders: Sequence[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)

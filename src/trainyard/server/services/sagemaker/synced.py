"""The folders of a training job that are kept in S3 while it runs: checkpoints, TensorBoard's files, and tensors."""

import posixpath
from dataclasses import dataclass

from trainyard.foundation.errors import InvalidRequest
from trainyard.server.services.contract import Shape

CHECKPOINTS = "/opt/ml/checkpoints"
TENSORBOARD = "/opt/ml/output/tensorboard"
TENSORS = "/opt/ml/output/tensors"

# What a program needs of its surroundings, with all that lies in it, and what it cannot do without as it is.
_TAKEN = (
    *("bin", "sbin", "usr", "lib", "lib32", "lib64", "libx32", "nix", "gnu"),
    *("boot", "dev", "etc", "proc", "run", "sys", "var/run"),
)
_TAKEN_OF_ML = ("code", "input")
_TAKEN_ITSELF = ("/", "/opt", "/opt/ml", "/tmp", "/var", "/var/tmp", "/home", "/root")
_NAME_BYTES = 255


@dataclass(frozen=True, slots=True)
class SyncedFolder:
    """A path as the program sees it, and the S3 location where its files are kept; both empty when there is none."""

    uri: str = ""
    path: str = ""


def checkpoints_of(shape: Shape) -> SyncedFolder:
    """InvalidRequest when the path would hide what the program needs."""
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
    parts = given.split("/")
    if not given.startswith("/") or ".." in parts or "\0" in given:
        raise InvalidRequest(f'{member} is "{given}"; it must be an absolute path without "..", such as {CHECKPOINTS}.')
    if any(len(part.encode()) > _NAME_BYTES for part in parts):
        raise InvalidRequest(f"{member} has a name of more than {_NAME_BYTES} bytes, which no folder can have.")
    path = posixpath.normpath("/" + given.lstrip("/"))
    taken = (*(f"/{name}" for name in _TAKEN), *(f"/opt/ml/{name}" for name in _TAKEN_OF_ML))
    if path in _TAKEN_ITSELF or any(path == name or path.startswith(f"{name}/") for name in taken):
        raise InvalidRequest(
            f'{member} is "{path}", where the program finds what it needs itself; use a folder of its own, such as '
            f"{CHECKPOINTS} or /state."
        )
    return path

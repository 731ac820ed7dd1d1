"""Paths on an instance, and the folders that are synced to S3 while a job runs: checkpoints, tensors, profiles."""

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass

from trainyard.formats.profiles.parameters import DEFAULT_PATH
from trainyard.foundation.errors import InvalidRequest
from trainyard.server.services.contract import Shape

CHECKPOINTS = "/opt/ml/checkpoints"
TENSORBOARD = "/opt/ml/output/tensorboard"
TENSORS = "/opt/ml/output/tensors"
PROFILES = DEFAULT_PATH

# Where a synced folder can be. Outside of the first two, only names that no system uses are allowed.
_PARENTS = ("/opt/ml", "/tmp")
_OTHER_ROOTS = ("/checkpoints", "/data", "/mnt", "/state")
_RESERVED = ("/opt/ml/.trainyard", "/opt/ml/code", "/opt/ml/input")

# The limit of file systems for one name.
_NAME_BYTES = 255
_PATH_BYTES = 1024
# How much of a path an error message quotes.
_QUOTED_CHARACTERS = 100


@dataclass(frozen=True, slots=True)
class SyncedFolder:
    """A path as the program sees it, and the S3 location of its files; both empty if there is none."""

    uri: str = ""
    path: str = ""


def checkpoints_of(shape: Shape) -> SyncedFolder:
    """Return the checkpoint folder; InvalidRequest if its path is not allowed."""
    if "CheckpointConfig" not in shape:
        return SyncedFolder()
    config = shape["CheckpointConfig"]
    path = _path(config.get("LocalPath") or CHECKPOINTS, "CheckpointConfig.LocalPath")
    return SyncedFolder(config["S3Uri"], path)


def tensorboard_of(shape: Shape) -> SyncedFolder:
    """Return the TensorBoard folder. Its files go where clients look for them: under the job's name."""
    if "TensorBoardOutputConfig" not in shape:
        return SyncedFolder()
    config = shape["TensorBoardOutputConfig"]
    path = _path(config.get("LocalPath") or TENSORBOARD, "TensorBoardOutputConfig.LocalPath")
    return SyncedFolder(f"{config['S3OutputPath'].rstrip('/')}/{shape['TrainingJobName']}/tensorboard-output", path)


def tensors_of(shape: Shape) -> SyncedFolder:
    """Return the folder where the hook writes tensors, and the location where clients look for them."""
    config = shape["DebugHookConfig"]
    path = _path(config.get("LocalPath") or TENSORS, "DebugHookConfig.LocalPath")
    return SyncedFolder(f"{config['S3OutputPath'].rstrip('/')}/{shape['TrainingJobName']}/debug-output", path)


def profiles_of(shape: Shape) -> SyncedFolder:
    """Return the folder where the program writes profiles, and the location where clients look for them."""
    config = shape.get("ProfilerConfig", {})
    given = config.get("ProfilingParameters", {}).get("LocalPath") or PROFILES
    path = _path(given, "ProfilerConfig.ProfilingParameters.LocalPath")
    output = config.get("S3OutputPath") or shape["OutputDataConfig"]["S3OutputPath"]
    return SyncedFolder(f"{output.rstrip('/')}/{shape['TrainingJobName']}/profiler-output", path)


def require_path(given: str, member: str) -> None:
    """Raise InvalidRequest if a path is too long, unprintable, or contains .."""
    if not given.isprintable():
        raise InvalidRequest(f"{member} is {given[:_QUOTED_CHARACTERS]!r}; a path can have only printable characters.")
    if ".." in given.split("/"):
        raise InvalidRequest(f'{member} is "{given[:_QUOTED_CHARACTERS]}"; a path cannot contain "..".')
    longest = max(len(name.encode()) for name in given.split("/"))
    if longest > _NAME_BYTES or len(given.encode()) > _PATH_BYTES:
        raise InvalidRequest(
            f'{member} is "{given[:_QUOTED_CHARACTERS]}…"; a path can have at most {_PATH_BYTES} bytes, and each name '
            f"in it at most {_NAME_BYTES}."
        )


def _path(given: str, member: str) -> str:
    require_path(given, member)
    if not given.startswith("/"):
        raise InvalidRequest(f'{member} is "{given}"; it must be an absolute path, such as {CHECKPOINTS}.')
    path = posixpath.normpath("/" + given.lstrip("/"))
    is_allowed = any(path.startswith(f"{folder}/") for folder in _PARENTS) or _lies_in(path, _OTHER_ROOTS)
    if not is_allowed or _lies_in(path, _RESERVED):
        raise InvalidRequest(
            f'{member} is "{path}"; it must be a folder below {" or ".join(_PARENTS)}, such as {CHECKPOINTS}, or one '
            f"of {', '.join(_OTHER_ROOTS)} or below it. {', '.join(_RESERVED)} are reserved."
        )
    return path


def _lies_in(path: str, folders: Sequence[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)

"""What a training job runs: a script that the SDK uploaded, a command line, or the entry point of its image."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from trainyard.foundation.errors import InvalidRequest
from trainyard.server.services.sagemaker.training.local_paths import require_path

PROGRAM = "sagemaker_program"
DIRECTORY = "sagemaker_submit_directory"

_CHANNELS = "/opt/ml/input/data/"


@dataclass(frozen=True, slots=True)
class TrainingProgram:
    """Either a command, or an entry point in code at an S3 location or, as some SDKs send it, in a channel.

    Neither if the image itself says what to run, with `arguments` if there are any.
    """

    entry_point: str = ""
    submit_directory: str = ""
    command: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()


def program_of(
    algorithm: Mapping[str, Any], hyperparameters: Mapping[str, str], *, runs_image: bool = False
) -> TrainingProgram:
    """Return what a job runs; InvalidRequest if the request names no program and its image is not run."""
    entry_point = algorithm.get("ContainerEntrypoint", ())
    arguments = algorithm.get("ContainerArguments", ())
    if entry_point:
        return TrainingProgram(command=(*entry_point, *arguments))
    if arguments and not runs_image:
        raise InvalidRequest("ContainerArguments need a ContainerEntrypoint, because the image is not run.")
    script, directory = _text(hyperparameters.get(PROGRAM, "")), _text(hyperparameters.get(DIRECTORY, ""))
    if runs_image and (arguments or not script):
        return TrainingProgram(arguments=tuple(arguments))
    if not script:
        raise InvalidRequest(
            f'The image "{algorithm.get("TrainingImage", "")}" is not run, so the job must say what to run: an entry '
            f"point in {PROGRAM} with its code in {DIRECTORY}, as framework estimators send it, or a "
            "ContainerEntrypoint."
        )
    path = PurePosixPath(script)
    if path.is_absolute() or ".." in path.parts:
        raise InvalidRequest(f'{PROGRAM} is "{script}"; it must be a file in the code, such as train.py.')
    require_path(script, PROGRAM)
    if not directory.startswith(("s3://", _CHANNELS)):
        raise InvalidRequest(
            f'{DIRECTORY} is "{directory}"; it must be the S3 location of a tar.gz with the code, or its path in a '
            f"channel, such as {_CHANNELS}code/sourcedir.tar.gz."
        )
    if directory.startswith(_CHANNELS):
        require_path(directory, DIRECTORY)
    return TrainingProgram(script, directory)


def channel_of_code(directory: str) -> str:
    """Return the name of the channel that has the code, or ""."""
    return directory.removeprefix(_CHANNELS).partition("/")[0] if directory.startswith(_CHANNELS) else ""


def _text(value: str) -> str:
    """Return the text of a hyperparameter. The SDK sends JSON; others send plain text."""
    try:
        decoded = json.loads(value)
    except ValueError:
        return value
    return decoded if isinstance(decoded, str) else value

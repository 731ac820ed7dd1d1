"""The output folders of a hook."""

from pathlib import Path

from trainyard.formats.tensors.trials.trial import find_recording
from trainyard.foundation.sources import FolderSource

from ..exceptions import SMDebugNotImplementedError, SMDebugRuntimeError
from ..trials.trial import END_FILE
from .sagemaker_utils import is_sagemaker_job
from .utils import is_s3


def verify_and_get_out_dir(out_dir: str | None) -> str:
    """Return the folder with ~ expanded. A folder with a finished training is refused, because runs are not merged.

    In a job the folder belongs to the job: a new attempt continues an interrupted one there.
    """
    if out_dir is None:
        raise RuntimeError("A hook needs a folder to save tensors to: set out_dir.")
    if is_s3(out_dir)[0]:
        raise SMDebugNotImplementedError(
            f"A hook saves tensors to a folder, and {out_dir} is not one. In a training job the folder is uploaded to "
            "the S3OutputPath of the hook's configuration as it grows. Elsewhere, use a folder and copy it yourself."
        )
    folder = Path(out_dir).expanduser()
    if not is_sagemaker_job() and has_ended(folder):
        raise SMDebugRuntimeError(
            f"{folder} already holds a finished training. Set out_dir to a folder that no other hook has used."
        )
    return str(folder)


def has_ended(folder: Path) -> bool:
    """Whether the folder holds a finished training, in our layout or smdebug's."""
    if (folder / END_FILE).exists():
        return True
    recording = find_recording(FolderSource(folder)) if folder.is_dir() else None
    if recording is None:
        return False
    recording.refresh()
    return recording.has_ended


def get_tensorboard_dir(export_tensorboard: bool, tensorboard_dir: str | None, out_dir: str) -> str | None:
    """Return the folder for TensorBoard summaries, or None if there are none."""
    if tensorboard_dir:
        return str(Path(tensorboard_dir).expanduser())
    return str(Path(out_dir) / "tensorboard") if export_tensorboard else None

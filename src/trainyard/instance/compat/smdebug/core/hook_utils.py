"""Where a hook writes."""

from pathlib import Path

from trainyard.formats.tensors.trial import find_recording
from trainyard.foundation.sources import FolderSource

from ..exceptions import SMDebugNotImplementedError, SMDebugRuntimeError
from ..trials.trial import END_FILE
from .sagemaker_utils import is_sagemaker_job
from .utils import is_s3


def verify_and_get_out_dir(out_dir: str | None) -> str:
    """The folder, without its ~. One in which a training has ended is refused, as runs are not merged.

    In a job the folder is the job's own: an attempt that was interrupted is carried on there.
    """
    if out_dir is None:
        raise RuntimeError("A hook needs to know where to save tensors: give out_dir.")
    if is_s3(out_dir)[0]:
        raise SMDebugNotImplementedError(
            f"A hook saves tensors in a folder, and {out_dir} is none. In a training job the folder is brought to the "
            "S3OutputPath of the hook's configuration while it grows; elsewhere give a folder and copy it."
        )
    folder = Path(out_dir).expanduser()
    if not is_sagemaker_job() and has_ended(folder):
        raise SMDebugRuntimeError(
            f"A training has ended in {folder} already. Give a hook a folder of its own as out_dir."
        )
    return str(folder)


def has_ended(folder: Path) -> bool:
    """Whether a training has left the mark of its end there, in whichever layout."""
    if (folder / END_FILE).exists():
        return True
    recording = find_recording(FolderSource(folder)) if folder.is_dir() else None
    if recording is None:
        return False
    recording.refresh()
    return recording.has_ended


def get_tensorboard_dir(export_tensorboard: bool, tensorboard_dir: str | None, out_dir: str) -> str | None:
    """Where summaries for TensorBoard go; None is nowhere."""
    if tensorboard_dir:
        return str(Path(tensorboard_dir).expanduser())
    return str(Path(out_dir) / "tensorboard") if export_tensorboard else None

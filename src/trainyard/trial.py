"""The tensors of a training, read by anyone at any time: `create_trial(path)`.

`path` is a folder or an `s3://` location. That of a job is what `latest_job_debugger_artifacts_path()` gives.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from trainyard.formats.tensors import trial as _trial
from trainyard.formats.tensors.comparison import Comparison, Divergence, compare
from trainyard.formats.tensors.contract import CollectionInfo, Column, Kind, Mode, Step, TensorInfo, TensorTable
from trainyard.formats.tensors.errors import (
    InvalidWorker,
    MissingCollectionFiles,
    NoMoreData,
    ShapeUnavailableForStep,
    StepNotYetAvailable,
    StepUnavailable,
    TensorUnavailable,
    TensorUnavailableForStep,
)
from trainyard.formats.tensors.tabulation import Table
from trainyard.formats.tensors.tensor import Tensor
from trainyard.formats.tensors.trial import Series, StepState, Trial
from trainyard.foundation.sources import ByteSource

if TYPE_CHECKING:  # which the copy that jobs have is without
    from trainyard.connection import Api

__all__ = [
    "CollectionInfo",
    "Column",
    "Comparison",
    "Divergence",
    "InvalidWorker",
    "Kind",
    "MissingCollectionFiles",
    "Mode",
    "NoMoreData",
    "Series",
    "ShapeUnavailableForStep",
    "Step",
    "StepNotYetAvailable",
    "StepState",
    "StepUnavailable",
    "Table",
    "Tensor",
    "TensorInfo",
    "TensorTable",
    "TensorUnavailable",
    "TensorUnavailableForStep",
    "Trial",
    "compare",
    "create_trial",
]


def create_trial(
    path: str | Path | ByteSource,
    name: str | None = None,
    range_steps: tuple[int | None, int | None] | None = None,
    *,
    timeout_s: float = 0.0,
    pause: Callable[[float], None] = time.sleep,
    api: "Api | None" = None,
) -> Trial:
    """Open the trial at a place, waiting so long for its first worker to appear.

    An `s3://` location is read through `api`, or as the user that `Session()` is. `range_steps` leaves out steps before
    the first number and from the second on. MissingCollectionFiles where there is none.
    """
    if isinstance(path, str) and path.startswith("s3://"):
        from trainyard.s3_source import S3Source, source_of_session

        path = S3Source(path, api) if api else source_of_session(path)
    return _trial.create_trial(path, name, range_steps, timeout_s=timeout_s, pause=pause)

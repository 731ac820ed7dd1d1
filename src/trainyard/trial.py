"""Read the captured tensors of a training, while it runs or after it: `create_trial(path)`.

`path` is a folder or an `s3://` location. `latest_job_debugger_artifacts_path()` returns that of a job.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from trainyard.foundation.extras import extra_of
from trainyard.foundation.sources import ByteSource

try:
    from trainyard.formats.tensors.contract import CollectionInfo, Kind, Mode, Statistic, Step, TensorInfo, TensorTable
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
    from trainyard.formats.tensors.trials import trial as _trial
    from trainyard.formats.tensors.trials.comparison import Comparison, Divergence, compare
    from trainyard.formats.tensors.trials.statistics_table import StatisticsTable
    from trainyard.formats.tensors.trials.tensor import Tensor
    from trainyard.formats.tensors.trials.trial import Series, StepState, Trial
except ModuleNotFoundError as error:
    # Without numpy, say how to install it.
    raise (extra_of(error) or error) from error

if TYPE_CHECKING:
    # The copy of the package inside a job does not have this module.
    from trainyard._sdk.connection import Api

__all__ = [
    "CollectionInfo",
    "Comparison",
    "Divergence",
    "InvalidWorker",
    "Kind",
    "MissingCollectionFiles",
    "Mode",
    "NoMoreData",
    "Series",
    "ShapeUnavailableForStep",
    "Statistic",
    "StatisticsTable",
    "Step",
    "StepNotYetAvailable",
    "StepState",
    "StepUnavailable",
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
    """Open the trial at a location.

    Args:
        path: A folder, an `s3://` location, or another source of bytes.
        name: Name of the trial. Default: derived from the path.
        range_steps: The first step to read and the step before which to end; None for no bound.
        timeout_s: How long to wait for the first worker, in seconds.
        pause: Function that sleeps for some seconds; for tests.
        api: The API client that reads an `s3://` location. Default: that of a new `Session()`.

    Raises:
        MissingCollectionFiles: There is no trial at the location.
    """
    if isinstance(path, str) and path.startswith("s3://"):
        from trainyard._sdk.storage.s3_source import S3Source, source_of_session

        path = S3Source(path, api) if api else source_of_session(path)
    return _trial.create_trial(path, name, range_steps, timeout_s=timeout_s, pause=pause)

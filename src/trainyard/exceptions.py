"""Every error that the SDK raises for a caller to catch.

    TrainyardError
    ├── UnexpectedStatusException    the job has failed
    │   └── CapacityError            because there were no instances for it
    ├── CallFailed                   the yard has rejected a call
    ├── NotFound                     the resource does not exist, or the caller may not see it
    ├── AlreadyExists                the name is in use
    ├── InvalidRequest               the arguments are wrong; no retry can succeed
    ├── Conflict                     the resource is in a state that does not allow the call
    ├── LimitExceeded                a quota or a size limit is reached
    ├── NotPermitted                 the caller may not do this
    ├── Unavailable                  the yard does not answer now; a retry may succeed
    └── Corrupt                      stored data is damaged

Reading tensors with `trainyard.trial` raises these:

    NotFound
    ├── TensorUnavailable            no worker has a tensor of that name
    ├── TensorUnavailableForStep     the tensor has no such value in that step
    ├── ShapeUnavailableForStep      the shape of the tensor in that step is unknown
    ├── StepUnavailable              the step was skipped or never saved
    ├── NoMoreData                   the training has ended before that step
    └── MissingCollectionFiles       the training has ended and left no tensors
    Unavailable
    └── StepNotYetAvailable          the step may still come
    InvalidRequest
    └── InvalidWorker                no worker has that name

A wrong keyword argument raises Python's own TypeError.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainyard.foundation.errors import (
    AlreadyExists,
    Conflict,
    Corrupt,
    InvalidRequest,
    LimitExceeded,
    NotFound,
    NotPermitted,
    TrainyardError,
    Unavailable,
)
from trainyard.wire.client import CallFailed

if TYPE_CHECKING:
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

__all__ = [
    "AlreadyExists",
    "CallFailed",
    "CapacityError",
    "Conflict",
    "Corrupt",
    "InvalidRequest",
    "InvalidWorker",
    "LimitExceeded",
    "MissingCollectionFiles",
    "NoMoreData",
    "NotFound",
    "NotPermitted",
    "ShapeUnavailableForStep",
    "StepNotYetAvailable",
    "StepUnavailable",
    "TensorUnavailable",
    "TensorUnavailableForStep",
    "TrainyardError",
    "Unavailable",
    "UnexpectedStatusException",
]


def __getattr__(name: str) -> object:
    """Import the errors of tensors at the first use, because their module needs NumPy."""
    if name in __all__:
        from trainyard.formats.tensors import errors

        return getattr(errors, name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


class UnexpectedStatusException(TrainyardError):
    """A job has ended with another status than the caller waited for. The message names the job and the reason.

    Args:
        message: The message.
        allowed_statuses: The statuses that the caller waited for.
        actual_status: The status of the job.
    """

    def __init__(self, message: str, allowed_statuses: Sequence[str], actual_status: str) -> None:
        super().__init__(message)
        self.allowed_statuses, self.actual_status = tuple(allowed_statuses), actual_status


class CapacityError(UnexpectedStatusException):
    """A job has failed because there were no instances for it."""

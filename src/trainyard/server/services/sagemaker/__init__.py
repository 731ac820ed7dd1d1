"""SageMaker: training jobs, tuning jobs, their search and their tags."""

from trainyard.foundation.errors import Conflict, InvalidRequest, LimitExceeded, NotFound, Unavailable
from trainyard.server.services.contract import Operations
from trainyard.server.services.sagemaker import creation, listing, search, tags, training, tuning, updating
from trainyard.wire.fault import FaultRow, FaultTable

__all__ = ["FAULTS", "OPERATIONS"]

OPERATIONS: Operations = {
    **creation.OPERATIONS,
    **training.OPERATIONS,
    **updating.OPERATIONS,
    **listing.OPERATIONS,
    **tuning.OPERATIONS,
    **search.OPERATIONS,
    **tags.OPERATIONS,
}

FAULTS = FaultTable(
    {
        # The model knows no code for a job that is not there, and waiters of the SDK wait for this one.
        NotFound: FaultRow("ValidationException", words="Requested resource not found."),
        InvalidRequest: FaultRow("ValidationException"),
        Conflict: FaultRow("ValidationException"),
        LimitExceeded: FaultRow("ResourceLimitExceeded"),
        Unavailable: FaultRow("ServiceUnavailable", 503),
    },
    kinds={"tuning-job": FaultRow("ResourceNotFound")},
)

"""SageMaker: one folder per kind of job, and what all kinds share: search and tags."""

from trainyard.foundation.errors import Conflict, InvalidRequest, LimitExceeded, NotFound, Unavailable
from trainyard.server.services.contract import Operations
from trainyard.server.services.sagemaker import (
    experiments,
    lineage,
    processing,
    registry,
    search,
    tags,
    training,
    tuning,
    unserved_kinds,
)
from trainyard.wire.fault import FaultRow, FaultTable

__all__ = ["FAULTS", "OPERATIONS"]

OPERATIONS: Operations = {
    **training.OPERATIONS,
    **tuning.OPERATIONS,
    **processing.OPERATIONS,
    **experiments.OPERATIONS,
    **lineage.OPERATIONS,
    **registry.OPERATIONS,
    **search.OPERATIONS,
    **tags.OPERATIONS,
    **unserved_kinds.OPERATIONS,
}

FAULTS = FaultTable(
    {
        # The model has no code for a missing job, and the SDK's waiters expect this one.
        NotFound: FaultRow("ValidationException", words="Requested resource not found."),
        InvalidRequest: FaultRow("ValidationException"),
        Conflict: FaultRow("ValidationException"),
        LimitExceeded: FaultRow("ResourceLimitExceeded"),
        Unavailable: FaultRow("ServiceUnavailable", 503),
    },
    not_found={
        "tuning-job": FaultRow("ResourceNotFound"),
        "processing-job": FaultRow("ValidationException", words="Could not find requested job with name: {name}"),
    },
)

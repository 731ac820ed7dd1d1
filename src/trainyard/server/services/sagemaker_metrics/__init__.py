"""SageMaker Metrics: the values of the metrics of trial components, one by one."""

from trainyard.foundation.errors import InvalidRequest, Unavailable
from trainyard.server.services.contract import Operations
from trainyard.server.services.sagemaker_metrics import ingestion, queries
from trainyard.wire.fault import FaultRow, FaultTable

__all__ = ["FAULTS", "OPERATIONS"]

OPERATIONS: Operations = {**ingestion.OPERATIONS, **queries.OPERATIONS}

FAULTS = FaultTable(
    {
        InvalidRequest: FaultRow("ValidationException"),
        Unavailable: FaultRow("ServiceUnavailable", 503),
    }
)

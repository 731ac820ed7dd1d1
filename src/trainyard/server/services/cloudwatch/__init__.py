"""CloudWatch: custom metrics and their statistics. Alarms, dashboards and metric math are not served."""

from trainyard.foundation.errors import Conflict, InvalidRequest, NotFound, Unavailable
from trainyard.server.services.cloudwatch import ingestion, listing, queries, statistics
from trainyard.server.services.contract import Operations
from trainyard.wire.fault import FaultRow, FaultTable

__all__ = ["FAULTS", "OPERATIONS"]

OPERATIONS: Operations = {
    **ingestion.OPERATIONS,
    **statistics.OPERATIONS,
    **queries.OPERATIONS,
    **listing.OPERATIONS,
}

FAULTS = FaultTable(
    {
        NotFound: FaultRow("ResourceNotFound", 404),
        InvalidRequest: FaultRow("InvalidParameterValue"),
        Conflict: FaultRow("InvalidParameterValue"),
        Unavailable: FaultRow("ServiceUnavailable", 503),
    }
)

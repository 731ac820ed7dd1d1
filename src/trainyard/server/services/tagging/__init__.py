"""The Resource Groups Tagging API: the tags of all resources, by ARN."""

from trainyard.foundation.errors import Conflict, InvalidRequest, LimitExceeded, NotFound, Unavailable
from trainyard.server.services.contract import Operations
from trainyard.server.services.tagging import changes, search
from trainyard.wire.fault import FaultRow, FaultTable

__all__ = ["FAULTS", "OPERATIONS"]

OPERATIONS: Operations = {**search.OPERATIONS, **changes.OPERATIONS}

FAULTS = FaultTable(
    {
        NotFound: FaultRow("InvalidParameterException"),
        InvalidRequest: FaultRow("InvalidParameterException"),
        LimitExceeded: FaultRow("InvalidParameterException"),
        Conflict: FaultRow("InvalidParameterException"),
        Unavailable: FaultRow("InternalServiceException", 500),
    }
)

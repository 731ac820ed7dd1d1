"""ECR: repositories as records, and the images that their names resolve to here. Nothing is pushed or pulled."""

from trainyard.foundation.errors import Conflict, InvalidRequest, LimitExceeded, Unavailable
from trainyard.server.services.contract import Operations
from trainyard.server.services.ecr import images, repositories
from trainyard.wire.fault import FaultRow, FaultTable

__all__ = ["FAULTS", "OPERATIONS"]

OPERATIONS: Operations = {
    **repositories.OPERATIONS,
    **images.OPERATIONS,
}

FAULTS = FaultTable(
    {
        InvalidRequest: FaultRow("InvalidParameterException"),
        Conflict: FaultRow("InvalidParameterException"),
        LimitExceeded: FaultRow("LimitExceededException"),
        Unavailable: FaultRow("ServerException", 500),
    }
)

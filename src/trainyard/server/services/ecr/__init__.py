"""ECR: repositories as records, and in them the images that their names stand for here. Nothing is pushed or pulled."""

from trainyard.foundation.errors import Conflict, InvalidRequest, LimitExceeded, Unavailable
from trainyard.server.services.contract import Operations
from trainyard.server.services.ecr import images, layers, repositories, tags, tokens
from trainyard.wire.fault import FaultRow, FaultTable

__all__ = ["FAULTS", "OPERATIONS"]

OPERATIONS: Operations = {
    **tokens.OPERATIONS,
    **repositories.OPERATIONS,
    **images.OPERATIONS,
    **layers.OPERATIONS,
    **tags.OPERATIONS,
}

FAULTS = FaultTable(
    {
        InvalidRequest: FaultRow("InvalidParameterException"),
        Conflict: FaultRow("InvalidParameterException"),
        LimitExceeded: FaultRow("LimitExceededException"),
        Unavailable: FaultRow("ServerException", 500),
    }
)

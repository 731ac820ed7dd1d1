"""The yard's own API, beyond the services of AWS. Its model is wire/services/trainyard."""

from trainyard.foundation.errors import Conflict, InvalidRequest, NotFound, NotPermitted, Unavailable
from trainyard.server.services.contract import Operations
from trainyard.server.services.trainyard import adoption, engines, jobs, prices, quotas, yard
from trainyard.wire.fault import FaultRow, FaultTable

__all__ = ["FAULTS", "OPERATIONS"]

OPERATIONS: Operations = {
    **adoption.OPERATIONS,
    **engines.OPERATIONS,
    **jobs.OPERATIONS,
    **prices.OPERATIONS,
    **quotas.OPERATIONS,
    **yard.OPERATIONS,
}

FAULTS = FaultTable(
    {
        NotFound: FaultRow("ResourceNotFound", 404),
        InvalidRequest: FaultRow("ValidationException"),
        Conflict: FaultRow("ConflictException", 409),
        NotPermitted: FaultRow("AccessDeniedException", 403),
        Unavailable: FaultRow("ServiceUnavailable", 503),
    }
)

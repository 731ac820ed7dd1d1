"""CloudWatch Logs: groups and streams in the records, events in log segments."""

from trainyard.foundation.errors import AlreadyExists, Conflict, InvalidRequest, LimitExceeded, NotFound, Unavailable
from trainyard.server.services.contract import Operations
from trainyard.server.services.logs import events, groups, search, streams, tags
from trainyard.wire.fault import FaultRow, FaultTable

__all__ = ["FAULTS", "OPERATIONS"]

OPERATIONS: Operations = {
    **groups.OPERATIONS,
    **streams.OPERATIONS,
    **events.OPERATIONS,
    **search.OPERATIONS,
    **tags.OPERATIONS,
}

FAULTS = FaultTable(
    {
        NotFound: FaultRow("ResourceNotFoundException"),
        AlreadyExists: FaultRow("ResourceAlreadyExistsException"),
        InvalidRequest: FaultRow("InvalidParameterException"),
        LimitExceeded: FaultRow("LimitExceededException"),
        Conflict: FaultRow("OperationAbortedException"),
        Unavailable: FaultRow("ServiceUnavailableException", 503),
    },
    not_found={
        "log group": FaultRow("ResourceNotFoundException", words="The specified log group does not exist."),
        "log stream": FaultRow("ResourceNotFoundException", words="The specified log stream does not exist."),
    },
    already_exists={
        "log group": FaultRow("ResourceAlreadyExistsException", words="The specified log group already exists"),
        "log stream": FaultRow("ResourceAlreadyExistsException", words="The specified log stream already exists"),
    },
)

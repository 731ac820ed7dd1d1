"""IAM: users as the yard has them; roles and policies as facts that are remembered and enforced nowhere.

Names are matched in the case they were made with, where AWS also refuses names that differ in case only.
"""

from trainyard.foundation.errors import (
    AlreadyExists,
    Conflict,
    InvalidRequest,
    LimitExceeded,
    NotFound,
    NotPermitted,
    Unavailable,
)
from trainyard.server.services.contract import Operations
from trainyard.server.services.iam import policies, role_policies, roles, users
from trainyard.wire.fault import FaultRow, FaultTable

OPERATIONS: Operations = {
    **roles.OPERATIONS,
    **role_policies.OPERATIONS,
    **policies.OPERATIONS,
    **users.OPERATIONS,
}

FAULTS = FaultTable(
    {
        NotFound: FaultRow("NoSuchEntity", 404),
        AlreadyExists: FaultRow("EntityAlreadyExists", 409),
        InvalidRequest: FaultRow("InvalidInput"),
        Conflict: FaultRow("DeleteConflict", 409),
        LimitExceeded: FaultRow("LimitExceeded", 409),
        NotPermitted: FaultRow("AccessDenied", 403),
        Unavailable: FaultRow("ServiceFailure", 503),
    }
)

"""The yard's own API, beyond the services of AWS. Its model is wire/services/trainyard."""

from trainyard.foundation.errors import Conflict, InvalidRequest, NotFound, NotPermitted, Unavailable
from trainyard.server.services.contract import Operations
from trainyard.server.services.trainyard import (
    adoption,
    advice_trials,
    engines,
    faults,
    job_list,
    job_records,
    jobs,
    logs,
    metrics,
    prices,
    profiles,
    quotas,
    rules,
    sign_in_links,
    storage,
    tensors,
    traces,
    trials,
    yard,
)
from trainyard.wire.fault import FaultRow, FaultTable

__all__ = ["FAULTS", "OPERATIONS"]

OPERATIONS: Operations = {
    **adoption.OPERATIONS,
    **advice_trials.OPERATIONS,
    **engines.OPERATIONS,
    **faults.OPERATIONS,
    **job_list.OPERATIONS,
    **job_records.OPERATIONS,
    **jobs.OPERATIONS,
    **logs.OPERATIONS,
    **metrics.OPERATIONS,
    **prices.OPERATIONS,
    **profiles.OPERATIONS,
    **quotas.OPERATIONS,
    **rules.OPERATIONS,
    **sign_in_links.OPERATIONS,
    **storage.OPERATIONS,
    **tensors.OPERATIONS,
    **trials.OPERATIONS,
    **traces.OPERATIONS,
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

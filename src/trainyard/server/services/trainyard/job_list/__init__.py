"""ListJobs: jobs of all kinds in one list, filtered, sorted and grouped as a person asks."""

from trainyard.server.services.contract import Operations
from trainyard.server.services.trainyard.job_list import listing, names

__all__ = ["OPERATIONS"]

OPERATIONS: Operations = {**listing.OPERATIONS, **names.OPERATIONS}

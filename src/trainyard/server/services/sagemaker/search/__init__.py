"""Search: filter and sort jobs, experiments and components by any property, and suggestions for properties."""

from trainyard.server.services.contract import Operations
from trainyard.server.services.sagemaker.search import operation, suggestions

__all__ = ["OPERATIONS"]

OPERATIONS: Operations = {**operation.OPERATIONS, **suggestions.OPERATIONS}

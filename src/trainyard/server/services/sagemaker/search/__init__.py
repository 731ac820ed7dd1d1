"""Search: filter and sort jobs of every kind by any of their properties, and suggestions for their names."""

from trainyard.server.services.contract import Operations
from trainyard.server.services.sagemaker.search import operation, suggestions

__all__ = ["OPERATIONS"]

OPERATIONS: Operations = {**operation.OPERATIONS, **suggestions.OPERATIONS}

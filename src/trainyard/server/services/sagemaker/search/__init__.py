"""Search: filter and sort jobs of every kind by any of their properties."""

from trainyard.server.services.sagemaker.search.operation import OPERATIONS

__all__ = ["OPERATIONS"]

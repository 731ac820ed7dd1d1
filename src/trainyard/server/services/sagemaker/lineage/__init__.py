"""Lineage: artifacts, contexts and actions, the associations between them, and queries that follow those."""

from trainyard.server.services.contract import Operations
from trainyard.server.services.sagemaker.lineage import associations, entities, query

__all__ = ["OPERATIONS"]

OPERATIONS: Operations = {**entities.OPERATIONS, **associations.OPERATIONS, **query.OPERATIONS}

"""Processing jobs: create, describe, list, stop and delete them."""

from trainyard.server.services.contract import Operations
from trainyard.server.services.sagemaker.processing import creation, lifecycle, listing

__all__ = ["OPERATIONS"]

OPERATIONS: Operations = {**creation.OPERATIONS, **lifecycle.OPERATIONS, **listing.OPERATIONS}

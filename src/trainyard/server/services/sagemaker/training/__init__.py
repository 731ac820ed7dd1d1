"""Training jobs: create, describe, list, update, stop and delete them."""

from trainyard.server.services.contract import Operations
from trainyard.server.services.sagemaker.training import creation, lifecycle, listing, update

__all__ = ["OPERATIONS"]

OPERATIONS: Operations = {
    **creation.OPERATIONS,
    **lifecycle.OPERATIONS,
    **update.OPERATIONS,
    **listing.OPERATIONS,
}

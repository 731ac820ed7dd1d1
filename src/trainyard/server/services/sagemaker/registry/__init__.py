"""The model registry: groups of model packages, and packages with their approval."""

from trainyard.server.services.contract import Operations
from trainyard.server.services.sagemaker.registry import creation, groups, packages, update

__all__ = ["OPERATIONS"]

OPERATIONS: Operations = {
    **groups.OPERATIONS,
    **creation.OPERATIONS,
    **packages.OPERATIONS,
    **update.OPERATIONS,
}

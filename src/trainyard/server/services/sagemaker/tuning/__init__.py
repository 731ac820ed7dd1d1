"""Hyperparameter tuning jobs: create, describe, list, stop and delete them, and start and list their trials."""

from trainyard.server.services.contract import Operations
from trainyard.server.services.sagemaker.tuning import creation, lifecycle, listing

__all__ = ["OPERATIONS"]

OPERATIONS: Operations = {**creation.OPERATIONS, **lifecycle.OPERATIONS, **listing.OPERATIONS}

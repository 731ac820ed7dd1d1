"""Hyperparameter tuning jobs: created, described, listed, stopped and deleted, and their trials begun and listed."""

from trainyard.server.services.contract import Operations
from trainyard.server.services.sagemaker.tuning import creation, listing, moving

__all__ = ["OPERATIONS"]

OPERATIONS: Operations = {**creation.OPERATIONS, **moving.OPERATIONS, **listing.OPERATIONS}

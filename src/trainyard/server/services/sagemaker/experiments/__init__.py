"""Experiments, trials and trial components."""

from trainyard.server.services.contract import Operations
from trainyard.server.services.sagemaker.experiments import associations, components, experiments, trials

__all__ = ["OPERATIONS"]

OPERATIONS: Operations = {
    **experiments.OPERATIONS,
    **trials.OPERATIONS,
    **components.OPERATIONS,
    **associations.OPERATIONS,
}

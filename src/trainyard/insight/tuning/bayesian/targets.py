"""Losses as a Gaussian process likes them."""

import numpy as np

from trainyard.insight.tuning.bayesian.kernels import Array


def standardised(losses: Array) -> Array:
    """Of mean zero and deviation one; as they are where all are the same."""
    largest = float(np.max(np.abs(losses), initial=0.0))
    shrunk = losses / largest if largest > 0.0 else losses  # squares of enormous numbers are beyond any number
    deviation = float(np.std(shrunk))
    return (shrunk - np.mean(shrunk)) / (deviation if deviation > 0.0 else 1.0)

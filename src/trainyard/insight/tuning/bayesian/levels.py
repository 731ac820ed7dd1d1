"""The level and the size by which the losses of a study agree with those of its relatives best."""

from typing import NamedTuple

import numpy as np

from trainyard.insight.tuning.bayesian.evidence import Evidence
from trainyard.insight.tuning.bayesian.kernels import Array
from trainyard.insight.tuning.bayesian.targets import standardised

_FACTORS = np.linspace(-3.0, 3.0, 121)  # logarithms of how many times as large a target may be as it is believed to be
_DEVIATION = 1.0  # of that logarithm


class Beside(NamedTuple):
    """The study's own targets beside those of its relatives."""

    targets: Array
    unlikeliness: float  # the negative logarithm of how likely they are, without what depends on the covariance alone


def beside(evidence: Evidence, targets: Array, *, root: Array) -> Beside:
    """The own losses at the likeliest level and of the likeliest size, from a root of the inverse of the covariance.

    `targets` are those of the relatives, and zero for the study. For each size the likeliest level has a formula.
    """
    own = evidence.own
    losses = standardised(evidence.losses[own])
    sizes = _believed_size(evidence) + _FACTORS
    level = root @ own.astype(np.float64)
    apart = (root @ targets)[:, None] + (root[:, own] @ losses)[:, None] * np.exp(sizes)
    levels = -(level @ apart) / (level @ level)
    rest = apart + level[:, None] * levels
    unlikely = 0.5 * np.sum(rest * rest, axis=0) - len(losses) * sizes + 0.5 * (_FACTORS / _DEVIATION) ** 2
    best = int(np.argmin(unlikely))
    return Beside(losses * np.exp(sizes[best]) + levels[best], float(unlikely[best]))


def _believed_size(evidence: Evidence) -> float:
    """The logarithm of how much the own losses vary in units of how much those of the relatives do."""
    largest = float(np.max(np.abs(evidence.losses)))
    losses = evidence.losses / largest if largest > 0.0 else evidence.losses
    spreads = [float(np.std(losses[evidence.sources == source])) for source in np.unique(evidence.sources)]
    own, theirs = spreads[0], float(np.mean(spreads[1:]))
    return float(np.log(own / theirs)) if own > 0.0 and theirs > 0.0 else 0.0

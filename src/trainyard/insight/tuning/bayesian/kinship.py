"""The losses of a study and of its relatives on one scale, so that one process can learn from all of them.

A study's own first trials lie where its relatives were best. Standardised by themselves they would be average, and
contradict the relatives. So they are given the level and the size by which they agree with the relatives best: those
that are likeliest for a process that was fitted to the relatives alone and expects of the study much of the same.
"""

import numpy as np

from trainyard.insight.tuning.bayesian import fitting
from trainyard.insight.tuning.bayesian.evidence import Evidence
from trainyard.insight.tuning.bayesian.gp import LEAST_NOISE, GaussianProcess, inverse_root
from trainyard.insight.tuning.bayesian.kernels import Array, Geometry, likeness
from trainyard.insight.tuning.bayesian.targets import standardised

_STRANGENESS = 0.5  # of two studies, of which the correlation is the negative exponential
_FACTORS = np.linspace(-3.0, 3.0, 121)  # logarithms of how many times as large a target may be as it is believed to be
_DEVIATION = 1.0  # of that logarithm
_ENOUGH = 5  # trials of a study
_MARGIN = 1.0  # by which the logarithms of two likelihoods must differ, so that it is not by chance
_FITTED = 100  # rows of relatives, evenly taken, which bounds the time that it takes


def targets_of(evidence: Evidence, geometry: Geometry, *, beliefs: fitting.Beliefs) -> Array:
    """What a process is told of each row: the losses of each parent standardised, and the study's own beside them."""
    if np.all(evidence.own):
        return standardised(evidence.losses)
    targets = np.zeros(len(evidence.losses))
    for source in np.unique(evidence.sources[~evidence.own]):
        targets[evidence.sources == source] = standardised(evidence.losses[evidence.sources == source])
    if np.any(evidence.own):
        targets[evidence.own] = _beside(evidence, targets, root=_root(evidence, targets, geometry, beliefs=beliefs))
    return targets


def is_misled(process: GaussianProcess, *, beliefs: fitting.Beliefs) -> bool:
    """Whether a process, whose last axis is the source, would foretell the study's own trials better without relatives.

    Each trial is foretold from the others. It takes a few trials before that says anything.
    """
    own = process.points[:, -1] == 0.0
    targets = process.targets[own]
    if len(targets) < _ENOUGH or np.ptp(targets) == 0.0:
        return False
    spread = float(np.std(targets))
    geometry = Geometry(process.geometry.categories[:-1])
    rows, standard = process.points[own, :-1], (targets - np.mean(targets)) / spread
    alone = fitting.fitted(geometry, beliefs, points=rows, targets=standard, doubts=process.doubts[own])
    by_itself = _plausibility(standard, *alone.leave_one_out()) - len(targets) * np.log(spread)
    with_relatives = process.leave_one_out()
    return bool(by_itself > _plausibility(targets, with_relatives.mean[own], with_relatives.variance[own]) + _MARGIN)


def _plausibility(targets: Array, means: Array, variances: Array) -> float:
    """The logarithm of how likely the targets are, without a constant."""
    return float(-0.5 * np.sum(np.log(variances) + (targets - means) ** 2 / variances))


def _beside(evidence: Evidence, targets: Array, *, root: Array) -> Array:
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
    return np.asarray(losses * np.exp(sizes[best]) + levels[best])


def _believed_size(evidence: Evidence) -> float:
    """The logarithm of how much the own losses vary in units of how much those of the relatives do."""
    largest = float(np.max(np.abs(evidence.losses)))
    losses = evidence.losses / largest if largest > 0.0 else evidence.losses
    spreads = [float(np.std(losses[evidence.sources == source])) for source in np.unique(evidence.sources)]
    own, theirs = spreads[0], float(np.mean(spreads[1:]))
    return float(np.log(own / theirs)) if own > 0.0 and theirs > 0.0 else 0.0


def _root(evidence: Evidence, targets: Array, geometry: Geometry, *, beliefs: fitting.Beliefs) -> Array:
    """A root of the inverse of the covariance of all rows, as it is fitted to those of the relatives."""
    theirs = np.flatnonzero(~evidence.own)
    theirs = theirs[np.linspace(0, len(theirs) - 1, min(len(theirs), _FITTED)).round().astype(np.intp)]
    fitted = fitting.fitted(
        geometry, beliefs, points=evidence.rows[theirs], targets=targets[theirs], doubts=evidence.doubts[theirs]
    )
    found = fitted.hyperparameters
    embedded = geometry.embed(geometry.columns(evidence.rows), found.bends)
    strange = _STRANGENESS * (evidence.sources[:, None] != evidence.sources[None, :])
    covariance = likeness(embedded, embedded, geometry=geometry).correlations * np.exp(found.scale - strange)
    return inverse_root(covariance + 1.0, np.exp(found.noise) + LEAST_NOISE + evidence.doubts)

"""A study and its relatives on one scale and in one place, so that one process can learn from all of them.

A study's own first trials lie where its relatives were best. Standardised by themselves they would be average, and
contradict the relatives. So they are given the level and the size by which they agree with the relatives best: those
that are likeliest for a process that was fitted to the relatives alone and expects of the study much of the same. As
its best places may lie elsewhere, the trials of the relatives are moved first (see `leaning`).
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from trainyard.insight.tuning.bayesian import fitting
from trainyard.insight.tuning.bayesian.evidence import Evidence
from trainyard.insight.tuning.bayesian.gp import LEAST_NOISE, GaussianProcess, Hyperparameters, inverse_root
from trainyard.insight.tuning.bayesian.kernels import Array, Geometry, likeness
from trainyard.insight.tuning.bayesian.leaning import evenly, straightened
from trainyard.insight.tuning.bayesian.levels import beside
from trainyard.insight.tuning.bayesian.targets import standardised

_STRANGENESS = 0.5  # of two studies, of which the correlation is the negative exponential
_ENOUGH = 5  # trials of a study
_MARGIN = 1.0  # by which the logarithms of two likelihoods must differ, so that it is not by chance
_FITTED = 100  # rows of relatives, evenly taken, which bounds the time that it takes


class Reconciled(NamedTuple):
    """The evidence with the relatives' rows in the study's place, and what a process is told of each row.

    That is the losses of each parent standardised, and the study's own beside them. `otherwise` has the rows as they
    may lie as well.
    """

    evidence: Evidence
    targets: Array
    otherwise: tuple[Array, ...] = ()


def reconciled(
    evidence: Evidence, geometry: Geometry, *, beliefs: fitting.Beliefs, generator: np.random.Generator
) -> Reconciled:
    if np.all(evidence.own):
        return Reconciled(evidence, standardised(evidence.losses))
    targets = np.zeros(len(evidence.losses))
    for source in np.unique(evidence.sources[~evidence.own]):
        targets[evidence.sources == source] = standardised(evidence.losses[evidence.sources == source])
    if not np.any(evidence.own):
        return Reconciled(evidence, targets)
    found = _of_relatives(evidence, targets, geometry, beliefs=beliefs)
    places = straightened(evidence, targets, geometry, hyperparameters=found, most=_FITTED, generator=generator)
    evidence = replace(evidence, rows=places.rows)
    targets[evidence.own] = beside(evidence, targets, root=_root(evidence, geometry, found)).targets
    return Reconciled(evidence, targets, places.otherwise)


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


def _of_relatives(
    evidence: Evidence, targets: Array, geometry: Geometry, *, beliefs: fitting.Beliefs
) -> Hyperparameters:
    few = evenly(np.flatnonzero(~evidence.own), _FITTED)
    fitted = fitting.fitted(
        geometry, beliefs, points=evidence.rows[few], targets=targets[few], doubts=evidence.doubts[few]
    )
    return fitted.hyperparameters


def _root(evidence: Evidence, geometry: Geometry, found: Hyperparameters) -> Array:
    """A root of the inverse of the covariance of all rows, as it is fitted to those of the relatives."""
    embedded = geometry.embed(geometry.columns(evidence.rows), found.bends)
    strange = _STRANGENESS * (evidence.sources[:, None] != evidence.sources[None, :])
    covariance = likeness(embedded, embedded, geometry=geometry).correlations * np.exp(found.scale - strange)
    return inverse_root(covariance + 1.0, np.exp(found.noise) + LEAST_NOISE + evidence.doubts)

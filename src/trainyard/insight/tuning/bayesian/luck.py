"""Trials that came out far worse than all around them promises: by bad luck, as when a training collapses.

A process that takes such a trial for what its place is worth either believes in a restless function or in a lot of
noise, and finds nothing any more. One that was unlucky is believed to be somewhat bad, and not for sure.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from trainyard.insight.tuning.bayesian import fitting
from trainyard.insight.tuning.bayesian.gp import GaussianProcess
from trainyard.insight.tuning.bayesian.kernels import Array, likeness
from trainyard.insight.tuning.bayesian.targets import standardised

_FAR = 4.0  # deviations of how far trials are from what the others promise
_SURE = 3.0  # deviations of what the other trials promise
_DEVIATIONS = 1.4826  # of a normal number in its median distance from the middle
_FEWEST = 8  # trials, before any can be told from the others
_MOST = 1 / 3  # of the trials, since bad luck is the exception
_AROUND = 3  # trials
_ROUNDS = 3  # the unlucky hide one another
_HOPE = 1.0  # by which the logarithm of the likelihood grows for each excuse, so that it is worth to look further
_PRICE = 4.5  # the same, so that the excuses are believed
_ANYTHING = 4.0  # the variance of an unlucky trial while it is tried whether it was
_DOUBT = 1.0  # the variance of an excused trial


class Fit(Protocol):
    def __call__(self, points: Array, targets: Array, doubts: Array) -> GaussianProcess: ...


def excused(process: GaussianProcess, fit: Fit, *, beliefs: fitting.Beliefs) -> GaussianProcess:
    """The process without the bad luck of single trials, or as it is where there is no reason to believe in any.

    A cliff looks like bad luck too. So all is only believed where it makes what was measured a lot more likely.
    """
    if len(process.targets) < _FEWEST:
        return process
    found = unlucky = process.targets > _usual(process)
    calmer, gain = process, 0.0
    for _ in range(_ROUNDS):
        unlucky, count = found, np.count_nonzero(found)
        if not 0 < count <= _MOST * len(found):
            return process
        calmer = fit(process.points, process.targets, process.doubts + _ANYTHING * unlucky)
        gain = (fitting.unlikeliness(process, beliefs) - fitting.unlikeliness(calmer, beliefs)) / count
        found = process.targets > np.maximum(_usual(calmer), _likely(calmer))
        found &= ~_is_surrounded(calmer, found)
        if gain < _HOPE or np.array_equal(found, unlucky):
            break
    if gain < _PRICE:
        return process
    lowered = np.where(unlucky, np.minimum(process.targets, _usual(calmer)), process.targets)
    return fit(process.points, standardised(lowered), process.doubts + _DOUBT * unlucky)


def _usual(process: GaussianProcess) -> Array:
    """The worst that each trial could have come to and be as far from what the others promise as those often are."""
    promised = process.leave_one_out().mean
    surprises = process.targets - promised
    middle = float(np.median(surprises))
    return promised + middle + _FAR * _DEVIATIONS * float(np.median(np.abs(surprises - middle)))


def _likely(process: GaussianProcess) -> Array:
    """The worst that the others let expect of each trial, were there no doubt about it."""
    promised = process.leave_one_out()
    return np.asarray(promised.mean + _SURE * np.sqrt(np.maximum(promised.variance - process.doubts, 0.0)))


def _is_surrounded(process: GaussianProcess, unlucky: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether the next trials around each of them are all unlucky, so that it is the place and not bad luck."""
    likenesses = likeness(process.embedded, process.embedded, geometry=process.geometry).correlations
    np.fill_diagonal(likenesses, -np.inf)
    next_ones = np.argpartition(-likenesses, _AROUND, axis=1)[:, :_AROUND]
    return np.asarray(unlucky[next_ones].all(axis=1))

"""Outliers: trials far worse than their neighbours predict, as when a training collapses by chance.

A process that takes an outlier at face value explains it by a short lengthscale or a large noise variance, and no
longer predicts anything. So the target of an outlier is lowered, and its noise variance raised.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from trainyard.insight.tuning.bayesian.gaussian_process import GaussianProcess, standardise
from trainyard.insight.tuning.bayesian.kernel import Array, evaluate_kernel
from trainyard.insight.tuning.bayesian.likelihood import negative_log_likelihood
from trainyard.insight.tuning.bayesian.prior import Prior

# An outlier's leave-one-out residual exceeds the median by this many robust standard deviations,
_OUTLIER_SIGMAS = 4.0
# and its target exceeds the leave-one-out prediction by this many standard deviations of it.
_PREDICTION_SIGMAS = 3.0
# Scales the median absolute deviation to the standard deviation of a normal distribution.
_MAD_TO_SIGMA = 1.4826
# With fewer trials, no outlier can be told from the others.
_MIN_TRIALS = 8
# If more trials than this look like outliers, they are none.
_MAX_OUTLIER_SHARE = 1 / 3
_NEIGHBOURS = 3
# Outliers hide one another, so the detection is repeated.
_MAX_ITERATIONS = 3
# The gain in log likelihood per outlier that is worth another iteration, and that which accepts the outliers.
_MIN_GAIN_TO_CONTINUE_NATS = 1.0
_MIN_GAIN_TO_ACCEPT_NATS = 4.5
# The extra noise variance of a trial while it is tested as an outlier, and once it is accepted as one.
_CANDIDATE_NOISE_VARIANCE = 4.0
_OUTLIER_NOISE_VARIANCE = 1.0


class FitProcess(Protocol):
    def __call__(self, points: Array, targets: Array, extra_noise: Array) -> GaussianProcess: ...


def fit_without_outliers(process: GaussianProcess, fit: FitProcess, *, prior: Prior) -> GaussianProcess:
    """Return the process refitted without outliers, or unchanged if there are none.

    A cliff of the objective looks like outliers too. So outliers are only accepted if they make the measurements far
    more likely.
    """
    if len(process.targets) < _MIN_TRIALS:
        return process
    found = outliers = process.targets > _outlier_threshold(process)
    refitted, gain = process, 0.0
    for _ in range(_MAX_ITERATIONS):
        outliers, count = found, np.count_nonzero(found)
        if not 0 < count <= _MAX_OUTLIER_SHARE * len(found):
            return process
        refitted = fit(process.points, process.targets, process.extra_noise + _CANDIDATE_NOISE_VARIANCE * outliers)
        gain = (negative_log_likelihood(process, prior) - negative_log_likelihood(refitted, prior)) / count
        found = process.targets > np.maximum(_outlier_threshold(refitted), _upper_bound(refitted))
        found &= ~_has_outlier_neighbours(refitted, found)
        if gain < _MIN_GAIN_TO_CONTINUE_NATS or np.array_equal(found, outliers):
            break
    if gain < _MIN_GAIN_TO_ACCEPT_NATS:
        return process
    clipped = np.where(outliers, np.minimum(process.targets, _outlier_threshold(refitted)), process.targets)
    return fit(process.points, standardise(clipped), process.extra_noise + _OUTLIER_NOISE_VARIANCE * outliers)


def _outlier_threshold(process: GaussianProcess) -> Array:
    """Return the highest target of each trial that is not an outlier, by the robust spread of the residuals."""
    predicted = process.leave_one_out().mean
    residuals = process.targets - predicted
    median_residual = float(np.median(residuals))
    return (
        predicted
        + median_residual
        + _OUTLIER_SIGMAS * _MAD_TO_SIGMA * float(np.median(np.abs(residuals - median_residual)))
    )


def _upper_bound(process: GaussianProcess) -> Array:
    """Return the highest target that the others predict for each trial, without its extra noise."""
    predicted = process.leave_one_out()
    return np.asarray(
        predicted.mean + _PREDICTION_SIGMAS * np.sqrt(np.maximum(predicted.variance - process.extra_noise, 0.0))
    )


def _has_outlier_neighbours(process: GaussianProcess, outliers: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether all neighbours of a trial are outliers too, so that the region is bad and not the trial."""
    correlations = evaluate_kernel(process.embedded, process.embedded, geometry=process.geometry).correlations
    np.fill_diagonal(correlations, -np.inf)
    neighbours = np.argpartition(-correlations, _NEIGHBOURS, axis=1)[:, :_NEIGHBOURS]
    return np.asarray(outliers[neighbours].all(axis=1))

"""Acquisition functions: the logarithm of the expected improvement on the best trial.

The expected improvement underflows far from every good point. Its logarithm does not, so a gradient search still finds
the way uphill from there.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from scipy import special

from trainyard.insight.tuning.bayesian.gaussian_process import GaussianProcess
from trainyard.insight.tuning.bayesian.kernel import Array

_HALF_LOG_2_PI = 0.5 * float(np.log(2.0 * np.pi))
# Beyond this many standard deviations the series is exact, and the direct formula loses digits.
_SERIES_FROM_SIGMAS = 50.0
# The variance of the border between trials that succeed and trials that fail.
_FEASIBILITY_NOISE_VARIANCE = 0.1


class AcquisitionValues(NamedTuple):
    values: Array
    # By the numeric coordinates; zero for the others.
    gradients: Array


class Acquisition(Protocol):
    """Scores points: higher is better."""

    def values(self, points: Array) -> Array: ...

    def values_and_gradients(self, points: Array) -> AcquisitionValues: ...


class ExpectedImprovement:
    """The logarithm of the expected improvement, averaged over the fantasies of a process.

    `incumbents` has the lowest value of each fantasy. `exploration` scales the standard deviation of the posterior: the
    lower it is, the closer the search stays to points that are known to be good.
    """

    def __init__(self, process: GaussianProcess, incumbents: Array, *, exploration: float = 1.0) -> None:
        self._process = process
        self._incumbents = incumbents
        self._exploration = exploration

    def values(self, points: Array) -> Array:
        mean, variance = self._process.posterior(points)
        deviation = self._exploration * np.sqrt(variance)[:, None]
        return _log_mean_exp(log_improvement((self._incumbents - _by_fantasy(mean)) / deviation) + np.log(deviation))

    def values_and_gradients(self, points: Array) -> AcquisitionValues:
        differentiable = self._process.differentiable_posterior(points)
        deviation = self._exploration * np.sqrt(differentiable.posterior.variance)[:, None]
        z = (self._incumbents - _by_fantasy(differentiable.posterior.mean)) / deviation
        logs = log_improvement(z) + np.log(deviation)
        values = _log_mean_exp(logs)
        # Each fantasy contributes its share of the mean improvement to both derivatives.
        log_share = -values[:, None] - np.log(logs.shape[1])
        by_mean = -np.exp(special.log_ndtr(z) + log_share)
        by_deviation = np.exp(-0.5 * z * z - _HALF_LOG_2_PI + log_share)
        by_variance = by_deviation.sum(axis=1) * self._exploration**2 / (2.0 * deviation[:, 0])
        return AcquisitionValues(values, differentiable.gradient(by_mean, by_variance))


class FeasibilityWeighted:
    """An acquisition times the probability that a trial does not fail.

    `process` is fitted to 1 at the points of trials that succeeded and -1 at those of trials that failed.
    """

    def __init__(self, acquisition: Acquisition, process: GaussianProcess) -> None:
        self._acquisition = acquisition
        self._process = process

    def values(self, points: Array) -> Array:
        mean, variance = self._process.posterior(points)
        log_probability: Array = special.log_ndtr(mean / np.sqrt(variance + _FEASIBILITY_NOISE_VARIANCE))
        return self._acquisition.values(points) + log_probability

    def values_and_gradients(self, points: Array) -> AcquisitionValues:
        inner = self._acquisition.values_and_gradients(points)
        differentiable = self._process.differentiable_posterior(points)
        deviation = np.sqrt(differentiable.posterior.variance + _FEASIBILITY_NOISE_VARIANCE)
        z = differentiable.posterior.mean / deviation
        log_probability = special.log_ndtr(z)
        by_z = np.exp(-0.5 * z * z - _HALF_LOG_2_PI - log_probability)
        feasibility_gradient = differentiable.gradient((by_z / deviation)[:, None], -0.5 * by_z * z / deviation**2)
        return AcquisitionValues(inner.values + log_probability, inner.gradients + feasibility_gradient)


class AveragedAcquisition:
    """The mean of the acquisitions of several processes, each of which may be the right one."""

    def __init__(self, acquisitions: Sequence[Acquisition]) -> None:
        self._acquisitions = acquisitions

    def values(self, points: Array) -> Array:
        return _log_mean_exp(np.column_stack([each.values(points) for each in self._acquisitions]))

    def values_and_gradients(self, points: Array) -> AcquisitionValues:
        scores = [each.values_and_gradients(points) for each in self._acquisitions]
        logs = np.column_stack([each.values for each in scores])
        values = _log_mean_exp(logs)
        shares = np.exp(logs - values[:, None]) / len(scores)
        return AcquisitionValues(values, np.einsum("pa,apc->pc", shares, np.array([each.gradients for each in scores])))


class TargetTaskAcquisition:
    """An acquisition for the target task, whose processes have the task of a point as their last axis."""

    def __init__(self, acquisition: Acquisition) -> None:
        self._acquisition = acquisition

    def values(self, points: Array) -> Array:
        return self._acquisition.values(np.column_stack([points, np.zeros(len(points))]))

    def values_and_gradients(self, points: Array) -> AcquisitionValues:
        inner = self._acquisition.values_and_gradients(np.column_stack([points, np.zeros(len(points))]))
        return AcquisitionValues(inner.values, inner.gradients[:, :-1])


def log_improvement(z: Array) -> Array:
    """Return the logarithm of pdf(z) + z * cdf(z), the expected improvement in standard deviations."""
    near = np.maximum(z, -1.0)
    direct = np.log(np.exp(-0.5 * near * near - _HALF_LOG_2_PI) + near * special.ndtr(near))
    below = np.clip(z, -_SERIES_FROM_SIGMAS, -1.0)
    tail = 1.0 + below * np.sqrt(0.5 * np.pi) * special.erfcx(-below / np.sqrt(2.0))
    far = np.minimum(z, -_SERIES_FROM_SIGMAS)
    squared = 1.0 / (far * far)
    series = squared * (1.0 - squared * (3.0 - squared * (15.0 - 105.0 * squared)))
    log_tail = np.log(np.where(z < -_SERIES_FROM_SIGMAS, series, tail))
    return np.where(z > -1.0, direct, -0.5 * z * z - _HALF_LOG_2_PI + log_tail)


def _by_fantasy(mean: Array) -> Array:
    return mean if mean.ndim == 2 else mean[:, None]


def _log_mean_exp(logs: Array) -> Array:
    largest = logs.max(axis=1)
    mean: Array = np.log(np.exp(logs - largest[:, None]).mean(axis=1)) + largest
    return mean

"""What a trial is worth before it is made: the logarithm of how much better than the best it is expected to be.

The logarithm, because far from everything good the expectation is smaller than any number a computer has, and a search
for the best place must see there too which way is up.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from scipy import special

from trainyard.insight.tuning.bayesian.gp import GaussianProcess
from trainyard.insight.tuning.bayesian.kernels import Array

_HALF_LOG_2_PI = 0.5 * float(np.log(2.0 * np.pi))
_FAR = 50.0  # standard deviations; from here on the series is exact, and the direct formula loses digits
_SOFTNESS = 0.1  # the variance of the border between trials that go well and trials that fail


class Worth(NamedTuple):
    values: Array
    gradients: Array  # by the numeric coordinates; zero by the others


class Acquisition(Protocol):
    """Says what points are worth: the more the better."""

    def values(self, points: Array) -> Array: ...

    def values_and_gradients(self, points: Array) -> Worth: ...


class ExpectedImprovement:
    """The logarithm of the expected improvement, averaged over the worlds of a process.

    `bests` has the least that is known in each world. `curiosity` is the share of its deviation that a process is taken
    to be unsure by: the less there is, the closer the search stays to what is known to be good.
    """

    def __init__(self, process: GaussianProcess, bests: Array, *, curiosity: float = 1.0) -> None:
        self._process = process
        self._bests = bests
        self._curiosity = curiosity

    def values(self, points: Array) -> Array:
        mean, variance = self._process.posterior(points)
        deviation = self._curiosity * np.sqrt(variance)[:, None]
        return _mean_of_logs(log_improvement((self._bests - _by_world(mean)) / deviation) + np.log(deviation))

    def values_and_gradients(self, points: Array) -> Worth:
        pull = self._process.posterior_with_pull(points)
        deviation = self._curiosity * np.sqrt(pull.posterior.variance)[:, None]
        z = (self._bests - _by_world(pull.posterior.mean)) / deviation
        logs = log_improvement(z) + np.log(deviation)
        values = _mean_of_logs(logs)
        # In each world, both derivatives are shares of the improvement, which has a share in the mean of all.
        to_mean = -values[:, None] - np.log(logs.shape[1])
        by_mean = -np.exp(special.log_ndtr(z) + to_mean)
        by_deviation = np.exp(-0.5 * z * z - _HALF_LOG_2_PI + to_mean)
        by_variance = by_deviation.sum(axis=1) * self._curiosity**2 / (2.0 * deviation[:, 0])
        return Worth(values, pull.gradient(by_mean, by_variance))


class Feasible:
    """An acquisition of which only the share counts that a trial will not fail.

    `process` has seen 1 at the points of trials that went well and -1 at those of trials that failed.
    """

    def __init__(self, acquisition: Acquisition, process: GaussianProcess) -> None:
        self._acquisition = acquisition
        self._process = process

    def values(self, points: Array) -> Array:
        mean, variance = self._process.posterior(points)
        chance: Array = special.log_ndtr(mean / np.sqrt(variance + _SOFTNESS))
        return self._acquisition.values(points) + chance

    def values_and_gradients(self, points: Array) -> Worth:
        worth = self._acquisition.values_and_gradients(points)
        pull = self._process.posterior_with_pull(points)
        deviation = np.sqrt(pull.posterior.variance + _SOFTNESS)
        z = pull.posterior.mean / deviation
        chance = special.log_ndtr(z)
        by_z = np.exp(-0.5 * z * z - _HALF_LOG_2_PI - chance)
        along = pull.gradient((by_z / deviation)[:, None], -0.5 * by_z * z / deviation**2)
        return Worth(worth.values + chance, worth.gradients + along)


class Averaged:
    """The mean of what several processes expect, of which any may be the right one."""

    def __init__(self, acquisitions: Sequence[Acquisition]) -> None:
        self._acquisitions = acquisitions

    def values(self, points: Array) -> Array:
        return _mean_of_logs(np.column_stack([each.values(points) for each in self._acquisitions]))

    def values_and_gradients(self, points: Array) -> Worth:
        worths = [each.values_and_gradients(points) for each in self._acquisitions]
        logs = np.column_stack([each.values for each in worths])
        values = _mean_of_logs(logs)
        shares = np.exp(logs - values[:, None]) / len(worths)
        return Worth(values, np.einsum("pa,apc->pc", shares, np.array([each.gradients for each in worths])))


class AmongRelatives:
    """An acquisition whose processes have the source of a point as their last axis, where this study comes first."""

    def __init__(self, acquisition: Acquisition) -> None:
        self._acquisition = acquisition

    def values(self, points: Array) -> Array:
        return self._acquisition.values(np.column_stack([points, np.zeros(len(points))]))

    def values_and_gradients(self, points: Array) -> Worth:
        worth = self._acquisition.values_and_gradients(np.column_stack([points, np.zeros(len(points))]))
        return Worth(worth.values, worth.gradients[:, :-1])


def log_improvement(z: Array) -> Array:
    """The logarithm of the expected excess of a standard normal number over -z: of density(z) + z * probability(z)."""
    near = np.maximum(z, -1.0)
    by_sum = np.log(np.exp(-0.5 * near * near - _HALF_LOG_2_PI) + near * special.ndtr(near))
    below = np.clip(z, -_FAR, -1.0)
    rest = 1.0 + below * np.sqrt(0.5 * np.pi) * special.erfcx(-below / np.sqrt(2.0))
    far = np.minimum(z, -_FAR)
    squared = 1.0 / (far * far)
    series = squared * (1.0 - squared * (3.0 - squared * (15.0 - 105.0 * squared)))
    log_rest = np.log(np.where(z < -_FAR, series, rest))
    return np.where(z > -1.0, by_sum, -0.5 * z * z - _HALF_LOG_2_PI + log_rest)


def _by_world(mean: Array) -> Array:
    return mean if mean.ndim == 2 else mean[:, None]


def _mean_of_logs(logs: Array) -> Array:
    most = logs.max(axis=1)
    mean: Array = np.log(np.exp(logs - most[:, None]).mean(axis=1)) + most
    return mean

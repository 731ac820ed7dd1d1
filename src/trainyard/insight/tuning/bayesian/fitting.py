"""Which process of the family fits what was measured best."""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from trainyard.insight.tuning.bayesian.gp import LEAST_NOISE, GaussianProcess, Hyperparameters, inverse_root
from trainyard.insight.tuning.bayesian.kernels import Array, Geometry, likeness, pull

_LOG_2_PI = float(np.log(2.0 * np.pi))
_MUCH_NOISE = -1.5


@dataclass(frozen=True, slots=True)
class Beliefs:
    """What is believed of the hyperparameters beforehand: each logarithm is normal, with a mean and a deviation.

    A length scale is of the size of the space's diagonal, which grows with the root of the number of axes: without
    that, a space of many axes would look as if nothing said anything about anything. Where there is a `strangeness`,
    the last axis is the study that a point is of, and that is the weight of it.
    """

    length: float = -0.9
    categorical_length: float = -0.35
    length_deviation: float = 0.9
    scale: float = 0.0
    scale_deviation: float = 1.0
    noise: float = -10.0
    noise_deviation: float = 3.0
    bend_deviation: float = 0.4
    strangeness: float | None = None

    def of(self, geometry: Geometry) -> "Normal":
        axes, numeric = geometry.dimension, len(geometry.numeric)
        lengths = np.full(axes, self.categorical_length)
        lengths[geometry.numeric] = self.length
        weights = -2.0 * (lengths + 0.5 * np.log(max(1, axes)))
        if self.strangeness is not None:
            weights[-1] = self.strangeness
        means = np.concatenate([weights, [self.scale, self.noise], np.zeros(2 * numeric)])
        deviations = np.concatenate(
            [
                np.full(axes, 2.0 * self.length_deviation),
                [self.scale_deviation, self.noise_deviation],
                np.full(2 * numeric, self.bend_deviation),
            ]
        )
        lower, upper = means - 4.0 * deviations, means + 4.0 * deviations
        return Normal(means, deviations, lower, upper)


@dataclass(frozen=True, slots=True)
class Normal:
    means: Array
    deviations: Array
    lower: Array
    upper: Array


class Likelihood:
    """How unlikely hyperparameters are, given what was measured and what is believed: the negative logarithm."""

    def __init__(
        self, geometry: Geometry, beliefs: Beliefs, *, points: Array, targets: Array, doubts: Array | float = 0.0
    ) -> None:
        self.geometry = geometry
        self.believed = beliefs.of(geometry)
        self._columns = geometry.columns(points)
        self._targets = targets
        self._doubts = doubts * np.ones(len(points))

    def value_and_gradient(self, vector: Array) -> tuple[float, Array]:
        hyperparameters = Hyperparameters.of(vector, self.geometry)
        bends, scale, noise = hyperparameters.bends, np.exp(hyperparameters.scale), np.exp(hyperparameters.noise)
        embedded = self.geometry.embed(self._columns, bends)
        correlations, slopes = likeness(embedded, embedded, geometry=self.geometry)
        root = inverse_root(scale * correlations + 1.0, noise + LEAST_NOISE + self._doubts)
        solved = root.T @ (root @ self._targets)
        value = 0.5 * float(self._targets @ solved) - float(np.sum(np.log(np.diag(root))))
        by_covariance = 0.5 * scale * (root.T @ root - np.outer(solved, solved))
        along = self._along(by_covariance * slopes, -by_covariance * correlations, embedded)
        by_bends = self.geometry.to_bends(along, self._columns, embedded=embedded, bends=bends)
        by_scale = float(np.sum(by_covariance * correlations))
        by_noise = float(np.trace(by_covariance)) * noise / scale
        gradient = Hyperparameters(by_bends, by_scale, by_noise).vector(self.geometry)
        away = (vector - self.believed.means) / self.believed.deviations
        constant = 0.5 * len(self._targets) * _LOG_2_PI
        return value + constant + 0.5 * float(away @ away), gradient + away / self.believed.deviations

    def _along(self, by_number: Array, by_category: Array, embedded: Array) -> Array:
        """The gradient by the embedded points, which each distance depends on twice."""
        along = np.empty_like(embedded)
        for at, force in (
            (self.geometry.numeric_columns, by_number),
            (self.geometry.categorical_columns, by_category),
        ):
            along[:, at] = 2.0 * pull(force, embedded[:, at], embedded[:, at])
        return along


def likeliest(likelihood: Likelihood, *, most_steps: int = 60) -> Array:
    """The hyperparameters that are least unlikely.

    What looks like a restless function may be a calm one with noise, and no search comes from the one to the other: so
    one starts from what is believed, and another from a lot of noise.
    """
    believed = likelihood.believed
    bounds = list(zip(believed.lower, believed.upper, strict=True))
    noisy = believed.means.copy()
    noisy[likelihood.geometry.dimension + 1] = _MUCH_NOISE
    best, least = believed.means, np.inf
    for start in (believed.means, noisy):
        found = minimize(
            likelihood.value_and_gradient,
            start,
            jac=True,
            bounds=bounds,
            method="L-BFGS-B",
            options={"maxiter": most_steps, "ftol": 1e-7, "gtol": 1e-4},
        )
        if found.fun < least:
            best, least = found.x, float(found.fun)
    return np.asarray(best)


def fitted(
    geometry: Geometry, beliefs: Beliefs, *, points: Array, targets: Array, doubts: Array | float = 0.0
) -> GaussianProcess:
    """The likeliest process, which has seen the targets at the points."""
    likelihood = Likelihood(geometry, beliefs, points=points, targets=targets, doubts=doubts)
    hyperparameters = Hyperparameters.of(likeliest(likelihood), geometry)
    return GaussianProcess(geometry, hyperparameters, points=points, targets=targets, doubts=doubts)


def unlikeliness(process: GaussianProcess, beliefs: Beliefs) -> float:
    """How unlikely the process is, given what it has seen and what is believed: the negative logarithm."""
    likelihood = Likelihood(
        process.geometry, beliefs, points=process.points, targets=process.targets, doubts=process.doubts
    )
    return likelihood.value_and_gradient(process.hyperparameters.vector(process.geometry))[0]

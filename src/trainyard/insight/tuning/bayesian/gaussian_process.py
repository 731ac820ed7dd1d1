"""A Gaussian process: the posterior mean and variance of a function, given its values at some points."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from trainyard.insight.tuning.bayesian.kernel import Array, AxisParameters, Geometry, distance_gradient, evaluate_kernel


def standardise(losses: Array) -> Array:
    """Shift and scale losses to mean zero and standard deviation one; equal losses all become zero."""
    largest = float(np.max(np.abs(losses), initial=0.0))
    # The squares of very large losses would overflow.
    scaled = losses / largest if largest > 0.0 else losses
    deviation = float(np.std(scaled))
    return (scaled - np.mean(scaled)) / (deviation if deviation > 0.0 else 1.0)


# Added to the noise variance, to keep the covariance positive definite despite rounding.
MIN_NOISE_VARIANCE = 1e-9
_MIN_VARIANCE = 1e-14


class Posterior(NamedTuple):
    mean: Array
    # Of the function itself, without the noise of a measurement.
    variance: Array


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """The hyperparameters of a process, all as logarithms; `to_vector` packs them for an optimiser."""

    axis_parameters: AxisParameters
    log_signal_variance: float
    log_noise_variance: float

    def to_vector(self, geometry: Geometry) -> Array:
        at = geometry.numeric
        return np.concatenate(
            [
                self.axis_parameters.log_weights,
                [self.log_signal_variance, self.log_noise_variance],
                self.axis_parameters.log_warp_a[at],
                self.axis_parameters.log_warp_b[at],
            ]
        )

    @staticmethod
    def from_vector(vector: Array, geometry: Geometry) -> "Hyperparameters":
        axes, count = geometry.dimension, len(geometry.numeric)
        first, second = np.zeros(axes), np.zeros(axes)
        first[geometry.numeric] = vector[axes + 2 : axes + 2 + count]
        second[geometry.numeric] = vector[axes + 2 + count :]
        return Hyperparameters(
            AxisParameters(vector[:axes], first, second), float(vector[axes]), float(vector[axes + 1])
        )


class GaussianProcess:
    """A process with given hyperparameters, conditioned on `targets` at `points`.

    The prior mean is an unknown constant of unit variance, so targets must be standardised. `targets` may have several
    columns, one per fantasy: the posterior means then have as many, the variances are the same in all. `extra_noise`
    are variances of single measurements on top of the noise variance.
    """

    def __init__(
        self,
        geometry: Geometry,
        hyperparameters: Hyperparameters,
        *,
        points: Array,
        targets: Array,
        extra_noise: Array | float = 0.0,
    ) -> None:
        self.geometry = geometry
        self.hyperparameters = hyperparameters
        self.points = points
        self.targets = targets
        self.extra_noise = extra_noise * np.ones(len(points))
        self._noise_variances = np.exp(hyperparameters.log_noise_variance) + MIN_NOISE_VARIANCE + self.extra_noise
        self._embedded = geometry.embed(geometry.columns(points), hyperparameters.axis_parameters)
        self._inverse_cholesky = inverse_cholesky(
            self._prior_covariance(self._embedded, self._embedded), self._noise_variances
        )
        self._coefficients = self._inverse_cholesky.T @ (self._inverse_cholesky @ targets)

    def posterior(self, points: Array) -> Posterior:
        """Return the mean, with one column per fantasy if there are several, and the variance at each point."""
        cross_covariance = self._prior_covariance(self._embed(points), self._embedded)
        explained = self._inverse_cholesky @ cross_covariance.T
        return Posterior(
            cross_covariance @ self._coefficients, self._variance(np.einsum("ij,ij->j", explained, explained))
        )

    def sample(self, points: Array, generator: np.random.Generator, *, size: int) -> Array:
        """Draw functions of the first fantasy at the points: an array of shape (points, size)."""
        embedded = self._embed(points)
        cross_covariance = self._prior_covariance(embedded, self._embedded)
        explained = self._inverse_cholesky @ cross_covariance.T
        covariance = self._prior_covariance(embedded, embedded) - explained.T @ explained
        mean = cross_covariance @ self._coefficients.reshape(len(self.points), -1)[:, :1]
        values, vectors = np.linalg.eigh(covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        return np.asarray(mean + root @ generator.standard_normal((len(points), size)))

    def leave_one_out(self) -> Posterior:
        """Predict each measurement, noise included, from all others."""
        precisions = np.sum(self._inverse_cholesky * self._inverse_cholesky, axis=0)
        divisors = precisions if self.targets.ndim == 1 else precisions[:, None]
        return Posterior(self.targets - self._coefficients / divisors, 1.0 / precisions)

    def smoothed_targets(self) -> Array:
        """Return the posterior mean at the known points."""
        noise_variances = self._noise_variances if self.targets.ndim == 1 else self._noise_variances[:, None]
        return np.asarray(self.targets - noise_variances * self._coefficients)

    def differentiable_posterior(self, points: Array) -> "DifferentiablePosterior":
        """Return the posterior with what its gradient needs."""
        columns = self.geometry.columns(points)
        embedded = self.geometry.embed(columns, self.hyperparameters.axis_parameters)
        correlations, slopes = evaluate_kernel(embedded, self._embedded, geometry=self.geometry)
        scale = np.exp(self.hyperparameters.log_signal_variance)
        cross_covariance = 1.0 + scale * correlations
        explained = self._inverse_cholesky @ cross_covariance.T
        posterior = Posterior(
            cross_covariance @ self._coefficients, self._variance(np.einsum("ij,ij->j", explained, explained))
        )
        return DifferentiablePosterior(
            self, posterior, columns, embedded, scale * slopes, (self._inverse_cholesky.T @ explained).T
        )

    @property
    def coefficients(self) -> Array:
        return self._coefficients

    @property
    def embedded(self) -> Array:
        return self._embedded

    def _embed(self, points: Array) -> Array:
        return self.geometry.embed(self.geometry.columns(points), self.hyperparameters.axis_parameters)

    def _prior_covariance(self, left: Array, right: Array) -> Array:
        covariance = evaluate_kernel(left, right, geometry=self.geometry).correlations
        covariance *= np.exp(self.hyperparameters.log_signal_variance)
        covariance += 1.0
        return covariance

    def _variance(self, explained: Array) -> Array:
        variance: Array = np.maximum(1.0 + np.exp(self.hyperparameters.log_signal_variance) - explained, _MIN_VARIANCE)
        return variance


class DifferentiablePosterior(NamedTuple):
    """A posterior at some points, with its derivatives by their coordinates."""

    process: GaussianProcess
    posterior: Posterior
    columns: Array
    embedded: Array
    # The derivative of the covariance with each known point by the squared distance.
    slopes: Array
    # The covariance with each known point, times the inverse covariance of the known points.
    solved: Array

    def gradient(self, by_mean: Array, by_variance: Array) -> Array:
        """Return the gradient by each point's coordinates of a function of mean and variance, from its derivatives.

        `by_mean` has one column per fantasy.
        """
        by_covariance = by_mean @ self.process.coefficients.reshape(len(self.process.points), -1).T
        force = (by_covariance - 2.0 * by_variance[:, None] * self.solved) * self.slopes
        by_embedded = distance_gradient(force, self.embedded, self.process.embedded)
        axis_parameters = self.process.hyperparameters.axis_parameters
        return self.process.geometry.gradient_by_axis(by_embedded, self.columns, axis_parameters=axis_parameters)


def inverse_cholesky(covariance: Array, noise_variances: Array) -> Array:
    """Return the inverse Cholesky factor of the covariance plus the noise variances on its diagonal.

    If rounding has left the matrix not positive definite, a small jitter is added to the diagonal.
    """
    jitter = 0.0
    while True:
        noisy = covariance.copy()
        noisy[np.diag_indices_from(noisy)] += noise_variances + jitter
        root, failed = lapack.dpotrf(noisy, lower=1, clean=1)
        if not failed:
            return np.ascontiguousarray(lapack.dtrtri(root, lower=1)[0])
        jitter = max(10.0 * jitter, 1e-10 * float(np.max(np.diag(covariance))))

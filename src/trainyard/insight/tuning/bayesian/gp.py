"""A Gaussian process: what a function is likely to be everywhere, from what it was at some points."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from trainyard.insight.tuning.bayesian.kernels import Array, Bends, Geometry, likeness, pull

LEAST_NOISE = 1e-9  # the variance of a measurement that has none, which rounding needs
_LEAST_VARIANCE = 1e-14


class Posterior(NamedTuple):
    mean: Array
    variance: Array  # of the function itself, without the noise of a measurement


@dataclass(frozen=True, slots=True)
class Hyperparameters:
    """What makes one process of the family: all logarithms; `vector` holds them as one array for optimisers."""

    bends: Bends
    scale: float  # the variance of the function
    noise: float  # the variance of a measurement

    def vector(self, geometry: Geometry) -> Array:
        at = geometry.numeric
        return np.concatenate(
            [self.bends.weights, [self.scale, self.noise], self.bends.first[at], self.bends.second[at]]
        )

    @staticmethod
    def of(vector: Array, geometry: Geometry) -> "Hyperparameters":
        axes, count = geometry.dimension, len(geometry.numeric)
        first, second = np.zeros(axes), np.zeros(axes)
        first[geometry.numeric] = vector[axes + 2 : axes + 2 + count]
        second[geometry.numeric] = vector[axes + 2 + count :]
        return Hyperparameters(Bends(vector[:axes], first, second), float(vector[axes]), float(vector[axes + 1]))


class GaussianProcess:
    """The process with given hyperparameters after it has seen `targets` at `points`.

    Its mean before it has seen anything is a constant that is not known either (of unit variance, so that targets are
    to be standardised). `targets` may have several columns, each a world of its own: the means then have as many, the
    variances are the same in all. `doubts` are variances that single measurements have on top of the noise.
    """

    def __init__(
        self,
        geometry: Geometry,
        hyperparameters: Hyperparameters,
        *,
        points: Array,
        targets: Array,
        doubts: Array | float = 0.0,
    ) -> None:
        self.geometry = geometry
        self.hyperparameters = hyperparameters
        self.points = points
        self.targets = targets
        self.doubts = doubts * np.ones(len(points))
        self._noises = np.exp(hyperparameters.noise) + LEAST_NOISE + self.doubts
        self._embedded = geometry.embed(geometry.columns(points), hyperparameters.bends)
        self._inverse_root = inverse_root(self._prior(self._embedded, self._embedded), self._noises)
        self._coefficients = self._inverse_root.T @ (self._inverse_root @ targets)

    def posterior(self, points: Array) -> Posterior:
        """The mean, with one column per world where there are several, and the variance at each of the points."""
        with_known = self._prior(self._embed(points), self._embedded)
        explained = self._inverse_root @ with_known.T
        return Posterior(with_known @ self._coefficients, self._variance(np.einsum("ij,ij->j", explained, explained)))

    def sample(self, points: Array, generator: np.random.Generator, *, size: int) -> Array:
        """Functions drawn from the first world at the points: an array of shape (points, size)."""
        embedded = self._embed(points)
        with_known = self._prior(embedded, self._embedded)
        explained = self._inverse_root @ with_known.T
        covariance = self._prior(embedded, embedded) - explained.T @ explained
        mean = with_known @ self._coefficients.reshape(len(self.points), -1)[:, :1]
        values, vectors = np.linalg.eigh(covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        return np.asarray(mean + root @ generator.standard_normal((len(points), size)))

    def leave_one_out(self) -> Posterior:
        """What it would say of each measurement, noise included, had it not seen this one."""
        precisions = np.sum(self._inverse_root * self._inverse_root, axis=0)
        by_world = precisions if self.targets.ndim == 1 else precisions[:, None]
        return Posterior(self.targets - self._coefficients / by_world, 1.0 / precisions)

    def denoised(self) -> Array:
        """The mean at the points that it has seen."""
        noises = self._noises if self.targets.ndim == 1 else self._noises[:, None]
        return np.asarray(self.targets - noises * self._coefficients)

    def posterior_with_pull(self, points: Array) -> "Pull":
        """The posterior together with what is needed to follow it uphill or downhill."""
        columns = self.geometry.columns(points)
        embedded = self.geometry.embed(columns, self.hyperparameters.bends)
        correlations, slopes = likeness(embedded, self._embedded, geometry=self.geometry)
        scale = np.exp(self.hyperparameters.scale)
        with_known = 1.0 + scale * correlations
        explained = self._inverse_root @ with_known.T
        posterior = Posterior(
            with_known @ self._coefficients, self._variance(np.einsum("ij,ij->j", explained, explained))
        )
        return Pull(self, posterior, columns, embedded, scale * slopes, (self._inverse_root.T @ explained).T)

    @property
    def coefficients(self) -> Array:
        return self._coefficients

    @property
    def embedded(self) -> Array:
        return self._embedded

    def _embed(self, points: Array) -> Array:
        return self.geometry.embed(self.geometry.columns(points), self.hyperparameters.bends)

    def _prior(self, left: Array, right: Array) -> Array:
        covariance = likeness(left, right, geometry=self.geometry).correlations
        covariance *= np.exp(self.hyperparameters.scale)
        covariance += 1.0
        return covariance

    def _variance(self, explained: Array) -> Array:
        left: Array = np.maximum(1.0 + np.exp(self.hyperparameters.scale) - explained, _LEAST_VARIANCE)
        return left


class Pull(NamedTuple):
    """A posterior at some points, and how it changes when they move."""

    process: GaussianProcess
    posterior: Posterior
    columns: Array
    embedded: Array
    slopes: Array  # of the covariance with each known point, by the squared distance
    solved: Array  # the covariance with each known point, divided by that among the known ones

    def gradient(self, by_mean: Array, by_variance: Array) -> Array:
        """The gradient, by each point's coordinates, of a function of the means and variances, from its derivatives.

        `by_mean` has one column per world.
        """
        toward = by_mean @ self.process.coefficients.reshape(len(self.process.points), -1).T
        force = (toward - 2.0 * by_variance[:, None] * self.solved) * self.slopes
        along = pull(force, self.embedded, self.process.embedded)
        bends = self.process.hyperparameters.bends
        return self.process.geometry.to_axes(along, self.columns, bends=bends)


def inverse_root(covariance: Array, noises: Array) -> Array:
    """The inverse of the Cholesky factor of the covariance with the noises on its diagonal.

    Where rounding has left the matrix not quite positive, the least that mends it is added to the diagonal.
    """
    jitter = 0.0
    while True:
        noisy = covariance.copy()
        noisy[np.diag_indices_from(noisy)] += noises + jitter
        root, failed = lapack.dpotrf(noisy, lower=1, clean=1)
        if not failed:
            return np.ascontiguousarray(lapack.dtrtri(root, lower=1)[0])
        jitter = max(10.0 * jitter, 1e-10 * float(np.max(np.diag(covariance))))

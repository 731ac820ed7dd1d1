"""Fits the hyperparameters of a Gaussian process by their negative log likelihood, which includes the prior."""

import numpy as np
from scipy.optimize import minimize

from trainyard.insight.tuning.bayesian.gaussian_process import (
    MIN_NOISE_VARIANCE,
    GaussianProcess,
    Hyperparameters,
    inverse_cholesky,
)
from trainyard.insight.tuning.bayesian.kernel import Array, Geometry, distance_gradient, evaluate_kernel
from trainyard.insight.tuning.bayesian.prior import Prior

_LOG_2_PI = float(np.log(2.0 * np.pi))
# The second start of the optimiser.
_HIGH_LOG_NOISE_VARIANCE = -1.5


class NegativeLogLikelihood:
    """The negative logarithm of the posterior of the hyperparameters: marginal likelihood times prior."""

    def __init__(
        self, geometry: Geometry, prior: Prior, *, points: Array, targets: Array, extra_noise: Array | float = 0.0
    ) -> None:
        self.geometry = geometry
        self.distribution = prior.distribution(geometry)
        self._columns = geometry.columns(points)
        self._targets = targets
        self._extra_noise = extra_noise * np.ones(len(points))

    def value_and_gradient(self, vector: Array) -> tuple[float, Array]:
        hyperparameters = Hyperparameters.from_vector(vector, self.geometry)
        axis_parameters, signal_variance, noise_variance = (
            hyperparameters.axis_parameters,
            np.exp(hyperparameters.log_signal_variance),
            np.exp(hyperparameters.log_noise_variance),
        )
        embedded = self.geometry.embed(self._columns, axis_parameters)
        correlations, slopes = evaluate_kernel(embedded, embedded, geometry=self.geometry)
        root = inverse_cholesky(
            signal_variance * correlations + 1.0, noise_variance + MIN_NOISE_VARIANCE + self._extra_noise
        )
        solved = root.T @ (root @ self._targets)
        value = 0.5 * float(self._targets @ solved) - float(np.sum(np.log(np.diag(root))))
        by_covariance = 0.5 * signal_variance * (root.T @ root - np.outer(solved, solved))
        by_embedded = self._embedding_gradient(by_covariance * slopes, -by_covariance * correlations, embedded)
        by_axis_parameters = self.geometry.gradient_by_parameters(
            by_embedded, self._columns, embedded=embedded, axis_parameters=axis_parameters
        )
        by_log_signal = float(np.sum(by_covariance * correlations))
        by_log_noise = float(np.trace(by_covariance)) * noise_variance / signal_variance
        gradient = Hyperparameters(by_axis_parameters, by_log_signal, by_log_noise).to_vector(self.geometry)
        z = (vector - self.distribution.means) / self.distribution.deviations
        constant = 0.5 * len(self._targets) * _LOG_2_PI
        return value + constant + 0.5 * float(z @ z), gradient + z / self.distribution.deviations

    def _embedding_gradient(self, by_number: Array, by_category: Array, embedded: Array) -> Array:
        """Return the gradient by the embedded points; each distance depends on two of them."""
        by_embedded = np.empty_like(embedded)
        for at, force in (
            (self.geometry.numeric_columns, by_number),
            (self.geometry.categorical_columns, by_category),
        ):
            by_embedded[:, at] = 2.0 * distance_gradient(force, embedded[:, at], embedded[:, at])
        return by_embedded


def maximise_likelihood(likelihood: NegativeLogLikelihood, *, max_steps: int = 60) -> Array:
    """Return the hyperparameters with the highest likelihood.

    A short lengthscale and a high noise variance can explain the same trials, and a gradient search does not get from
    one optimum to the other. So one search starts from the prior, and another from a high noise variance.
    """
    distribution = likelihood.distribution
    bounds = list(zip(distribution.lower, distribution.upper, strict=True))
    noisy = distribution.means.copy()
    noisy[likelihood.geometry.dimension + 1] = _HIGH_LOG_NOISE_VARIANCE
    best, least = distribution.means, np.inf
    for start in (distribution.means, noisy):
        found = minimize(
            likelihood.value_and_gradient,
            start,
            jac=True,
            bounds=bounds,
            method="L-BFGS-B",
            options={"maxiter": max_steps, "ftol": 1e-7, "gtol": 1e-4},
        )
        if found.fun < least:
            best, least = found.x, float(found.fun)
    return np.asarray(best)


def fit_process(
    geometry: Geometry, prior: Prior, *, points: Array, targets: Array, extra_noise: Array | float = 0.0
) -> GaussianProcess:
    """Fit the hyperparameters to the targets at the points and return the process."""
    likelihood = NegativeLogLikelihood(geometry, prior, points=points, targets=targets, extra_noise=extra_noise)
    hyperparameters = Hyperparameters.from_vector(maximise_likelihood(likelihood), geometry)
    return GaussianProcess(geometry, hyperparameters, points=points, targets=targets, extra_noise=extra_noise)


def negative_log_likelihood(process: GaussianProcess, prior: Prior) -> float:
    """Return the negative log likelihood of a process, which includes the prior."""
    likelihood = NegativeLogLikelihood(
        process.geometry, prior, points=process.points, targets=process.targets, extra_noise=process.extra_noise
    )
    return likelihood.value_and_gradient(process.hyperparameters.to_vector(process.geometry))[0]

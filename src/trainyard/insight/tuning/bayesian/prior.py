"""The prior over the hyperparameters of a Gaussian process: lengthscales, variances and warping."""

from dataclasses import dataclass

import numpy as np

from trainyard.insight.tuning.bayesian.kernel import Array, Geometry


@dataclass(frozen=True, slots=True)
class Prior:
    """A normal distribution for the logarithm of each hyperparameter, by its mean and standard deviation.

    The expected lengthscale grows with the diagonal of the space, the root of the number of axes. Otherwise no point
    would say anything about any other in a space of many axes. If `log_task_weight` is set, the last axis is the task
    of a point, and this is the expected logarithm of its weight.
    """

    log_lengthscale: float = -0.9
    categorical_log_lengthscale: float = -0.35
    log_lengthscale_sigma: float = 0.9
    log_signal_variance: float = 0.0
    log_signal_variance_sigma: float = 1.0
    log_noise_variance: float = -10.0
    log_noise_variance_sigma: float = 3.0
    warp_sigma: float = 0.4
    log_task_weight: float | None = None

    def distribution(self, geometry: Geometry) -> "PriorDistribution":
        """Return the prior of the hyperparameters in the order of `Hyperparameters.to_vector`."""
        axes, numeric = geometry.dimension, len(geometry.numeric)
        log_lengthscales = np.full(axes, self.categorical_log_lengthscale)
        log_lengthscales[geometry.numeric] = self.log_lengthscale
        weights = -2.0 * (log_lengthscales + 0.5 * np.log(max(1, axes)))
        if self.log_task_weight is not None:
            weights[-1] = self.log_task_weight
        means = np.concatenate([weights, [self.log_signal_variance, self.log_noise_variance], np.zeros(2 * numeric)])
        deviations = np.concatenate(
            [
                np.full(axes, 2.0 * self.log_lengthscale_sigma),
                [self.log_signal_variance_sigma, self.log_noise_variance_sigma],
                np.full(2 * numeric, self.warp_sigma),
            ]
        )
        lower, upper = means - 4.0 * deviations, means + 4.0 * deviations
        return PriorDistribution(means, deviations, lower, upper)


@dataclass(frozen=True, slots=True)
class PriorDistribution:
    """Independent normal distributions of the hyperparameters, with the bounds of their search."""

    means: Array
    deviations: Array
    lower: Array
    upper: Array

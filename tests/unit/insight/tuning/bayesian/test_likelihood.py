import numpy as np
import pytest

from trainyard.insight.tuning.bayesian.gaussian_process import GaussianProcess, Hyperparameters
from trainyard.insight.tuning.bayesian.kernel import Array, Geometry
from trainyard.insight.tuning.bayesian.likelihood import NegativeLogLikelihood, maximise_likelihood
from trainyard.insight.tuning.bayesian.prior import Prior

GEOMETRY = Geometry((0, 3, 0))


def measured(count: int, *, noise: float = 0.0, seed: int = 0) -> tuple[Array, Array]:
    """Points, and what a function of the first two axes came to there."""
    generator = np.random.default_rng(seed)
    rows = np.column_stack([generator.random(count), generator.integers(3, size=count), generator.random(count)])
    targets = np.sin(6.0 * rows[:, 0]) + (rows[:, 1] == 1.0) + noise * generator.standard_normal(count)
    return rows, (targets - targets.mean()) / targets.std()


def likelihood_of(count: int, *, noise: float = 0.0) -> NegativeLogLikelihood:
    rows, targets = measured(count, noise=noise)
    return NegativeLogLikelihood(GEOMETRY, Prior(), points=rows, targets=targets)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_gradient_is_the_slope_of_the_value(seed: int) -> None:
    likelihood = likelihood_of(20, noise=0.1)
    distribution = likelihood.distribution
    at = distribution.means + 0.5 * distribution.deviations * np.random.default_rng(seed).standard_normal(
        len(distribution.means)
    )
    steps = 1e-5 * np.eye(len(at))
    slopes = [
        (likelihood.value_and_gradient(at + step)[0] - likelihood.value_and_gradient(at - step)[0]) / 2e-5
        for step in steps
    ]
    assert likelihood.value_and_gradient(at)[1] == pytest.approx(np.array(slopes), rel=1e-4, abs=1e-5)


def test_the_value_is_the_likelihood_times_the_prior() -> None:
    rows, targets = measured(8)
    likelihood = NegativeLogLikelihood(GEOMETRY, Prior(), points=rows, targets=targets)
    means = likelihood.distribution.means
    chain = 0.0
    for index in range(8):  # one after the other, each given those before it
        process = GaussianProcess(
            GEOMETRY, Hyperparameters.from_vector(means, GEOMETRY), points=rows[:index], targets=targets[:index]
        )
        mean, variance = process.posterior(rows[[index]])
        total = variance[0] + np.exp(means[4])
        chain += 0.5 * np.log(2.0 * np.pi * total) + 0.5 * (targets[index] - mean[0]) ** 2 / total
    assert likelihood.value_and_gradient(means)[0] == pytest.approx(chain)


def test_an_axis_that_does_not_matter_is_found_out() -> None:
    likelihood = likelihood_of(40)
    found = Hyperparameters.from_vector(maximise_likelihood(likelihood), GEOMETRY)
    number, _, idle = np.exp(found.axis_parameters.log_weights)
    assert idle < 0.1 * number


@pytest.mark.parametrize(("noise", "least", "most"), [(0.0, 0.0, 1e-4), (0.5, 0.05, 0.6)])
def test_the_noise_is_found_out(noise: float, least: float, most: float) -> None:
    likelihood = likelihood_of(60, noise=noise)
    found = Hyperparameters.from_vector(maximise_likelihood(likelihood), GEOMETRY)
    assert least <= np.exp(found.log_noise_variance) <= most

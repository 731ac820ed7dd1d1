import numpy as np
import pytest

from trainyard.insight.tuning.bayesian.fitting import Beliefs, Likelihood, likeliest
from trainyard.insight.tuning.bayesian.gp import GaussianProcess, Hyperparameters
from trainyard.insight.tuning.bayesian.kernels import Array, Geometry

GEOMETRY = Geometry((0, 3, 0))


def measured(count: int, *, noise: float = 0.0, seed: int = 0) -> tuple[Array, Array]:
    """Points, and what a function of the first two axes came to there."""
    generator = np.random.default_rng(seed)
    rows = np.column_stack([generator.random(count), generator.integers(3, size=count), generator.random(count)])
    targets = np.sin(6.0 * rows[:, 0]) + (rows[:, 1] == 1.0) + noise * generator.standard_normal(count)
    return rows, (targets - targets.mean()) / targets.std()


def likelihood_of(count: int, *, noise: float = 0.0) -> Likelihood:
    rows, targets = measured(count, noise=noise)
    return Likelihood(GEOMETRY, Beliefs(), points=rows, targets=targets)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_gradient_is_the_slope_of_the_value(seed: int) -> None:
    likelihood = likelihood_of(20, noise=0.1)
    believed = likelihood.believed
    at = believed.means + 0.5 * believed.deviations * np.random.default_rng(seed).standard_normal(len(believed.means))
    steps = 1e-5 * np.eye(len(at))
    slopes = [
        (likelihood.value_and_gradient(at + step)[0] - likelihood.value_and_gradient(at - step)[0]) / 2e-5
        for step in steps
    ]
    assert likelihood.value_and_gradient(at)[1] == pytest.approx(np.array(slopes), rel=1e-4, abs=1e-5)


def test_the_value_is_the_density_of_what_was_measured_times_what_is_believed() -> None:
    rows, targets = measured(8)
    likelihood = Likelihood(GEOMETRY, Beliefs(), points=rows, targets=targets)
    means = likelihood.believed.means
    chain = 0.0
    for index in range(8):  # one after the other, each given those before it
        process = GaussianProcess(
            GEOMETRY, Hyperparameters.of(means, GEOMETRY), points=rows[:index], targets=targets[:index]
        )
        mean, variance = process.posterior(rows[[index]])
        total = variance[0] + np.exp(means[4])
        chain += 0.5 * np.log(2.0 * np.pi * total) + 0.5 * (targets[index] - mean[0]) ** 2 / total
    assert likelihood.value_and_gradient(means)[0] == pytest.approx(chain)


def test_an_axis_that_does_not_matter_is_found_out() -> None:
    likelihood = likelihood_of(40)
    found = Hyperparameters.of(likeliest(likelihood), GEOMETRY)
    number, _, idle = np.exp(found.bends.weights)
    assert idle < 0.1 * number


@pytest.mark.parametrize(("noise", "least", "most"), [(0.0, 0.0, 1e-4), (0.5, 0.05, 0.6)])
def test_the_noise_is_found_out(noise: float, least: float, most: float) -> None:
    likelihood = likelihood_of(60, noise=noise)
    found = Hyperparameters.of(likeliest(likelihood), GEOMETRY)
    assert least <= np.exp(found.noise) <= most

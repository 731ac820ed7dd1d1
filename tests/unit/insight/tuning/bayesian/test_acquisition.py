import numpy as np
import pytest
from scipy import integrate

from trainyard.insight.tuning.bayesian.acquisition import (
    Acquisition,
    AveragedAcquisition,
    ExpectedImprovement,
    FeasibilityWeighted,
    log_improvement,
)
from trainyard.insight.tuning.bayesian.gaussian_process import GaussianProcess, Hyperparameters
from trainyard.insight.tuning.bayesian.kernel import Array, Geometry
from trainyard.insight.tuning.bayesian.prior import Prior

GEOMETRY = Geometry((0, 3, 0))


def rows(count: int, *, seed: int) -> Array:
    generator = np.random.default_rng(seed)
    return np.column_stack([generator.random(count), generator.integers(3, size=count), generator.random(count)])


def process(targets: Array, *, seed: int = 0) -> GaussianProcess:
    vector = Prior(log_lengthscale=0.0, log_noise_variance=-6.0).distribution(GEOMETRY).means
    known = rows(len(targets), seed=seed)
    return GaussianProcess(GEOMETRY, Hyperparameters.from_vector(vector, GEOMETRY), points=known, targets=targets)


def improvement(*, seed: int) -> ExpectedImprovement:
    """Return the acquisition of a process with three fantasies."""
    fantasies = np.random.default_rng(3).standard_normal((10, 3))
    return ExpectedImprovement(process(fantasies, seed=seed), fantasies.min(axis=0), exploration=0.5)


@pytest.fixture(params=["one process", "two that are possible"])
def acquisition(request: pytest.FixtureRequest) -> Acquisition:
    """One with trials of which some failed."""
    several = AveragedAcquisition([improvement(seed=0), improvement(seed=1)])
    labels = np.sign(np.random.default_rng(3).standard_normal(10))
    return FeasibilityWeighted(
        improvement(seed=0) if request.param == "one process" else several, process(labels, seed=4)
    )


@pytest.mark.parametrize("z", [3.0, 0.0, -0.99, -1.01, -7.0, -30.0, -49.9, -50.1, -300.0, -5000.0])
def test_the_improvement_is_what_integration_says_even_in_the_far_tail(z: float) -> None:
    # The excess t over -z has the density of a normal number at t - z, of which a factor of t alone is taken out.
    reach = 40.0 / max(1.0, -z)
    rest, _ = integrate.quad(lambda t: t * np.exp(z * t - 0.5 * t * t), 0.0, reach + max(0.0, z), epsabs=0.0)
    expected = np.log(rest) - 0.5 * z * z - 0.5 * np.log(2.0 * np.pi)
    assert log_improvement(np.array([z]))[0] == pytest.approx(expected, rel=1e-9)


def test_the_value_is_the_mean_improvement_of_samples_of_the_posterior() -> None:
    known = process(np.random.default_rng(0).standard_normal(8))
    asked = rows(3, seed=9)
    best = float(known.targets.min())
    samples = known.sample(asked, np.random.default_rng(1), size=200_000)
    improvement = np.maximum(best - samples, 0.0).mean(axis=1)
    assert np.exp(ExpectedImprovement(known, np.array([best])).values(asked)) == pytest.approx(improvement, rel=0.1)


def test_the_gradient_is_the_slope_of_the_value(acquisition: Acquisition) -> None:
    asked = rows(6, seed=5)
    found = acquisition.values_and_gradients(asked)
    assert found.values == pytest.approx(acquisition.values(asked))
    for axis in (0, 2):
        step = 1e-6 * np.eye(3)[axis]
        slopes = (acquisition.values(asked + step) - acquisition.values(asked - step)) / 2e-6
        assert found.gradients[:, axis] == pytest.approx(slopes, rel=1e-3, abs=1e-4)
    assert not found.gradients[:, 1].any()


def test_what_several_processes_expect_is_the_mean_of_their_improvements() -> None:
    asked = rows(4, seed=5)
    one, two = (np.exp(improvement(seed=seed).values(asked)) for seed in (0, 1))
    found = AveragedAcquisition([improvement(seed=0), improvement(seed=1)]).values(asked)
    assert np.exp(found) == pytest.approx(0.5 * (one + two))


def test_a_point_where_trials_fail_is_worth_less() -> None:
    known = process(np.zeros(6))
    anywhere = ExpectedImprovement(known, np.zeros(1))
    labels = np.array([1.0, 1.0, 1.0, 1.0, 1.0, -1.0])
    loss = anywhere.values(known.points) - FeasibilityWeighted(anywhere, process(labels)).values(known.points)
    assert loss[5] > 2.0
    assert np.all(loss[:5] < 0.2)

import numpy as np
import pytest

from trainyard.insight.tuning.bayesian.gaussian_process import MIN_NOISE_VARIANCE, GaussianProcess, Hyperparameters
from trainyard.insight.tuning.bayesian.kernel import Array, AxisParameters, Geometry

GEOMETRY = Geometry((0, 3, 0))  # a number, one of three categories, a number
AXIS_PARAMETERS = AxisParameters(np.log([4.0, 0.7, 9.0]), np.array([0.3, 0.0, -0.2]), np.array([-0.1, 0.0, 0.4]))
HYPERPARAMETERS = Hyperparameters(
    AXIS_PARAMETERS, log_signal_variance=float(np.log(2.0)), log_noise_variance=float(np.log(0.05))
)
NOISE = 0.05 + MIN_NOISE_VARIANCE


def points(count: int, *, seed: int) -> Array:
    generator = np.random.default_rng(seed)
    numbers = generator.random((count, 2))
    return np.column_stack([numbers[:, 0], generator.integers(3, size=count).astype(float), numbers[:, 1]])


def covariance(left: Array, right: Array) -> Array:
    """The covariance of two sets of points, written out as a textbook has it."""
    table = np.empty((len(left), len(right)))
    for i, one in enumerate(left):
        for j, other in enumerate(right):
            squares = [_difference(axis, one, other) * np.exp(AXIS_PARAMETERS.log_weights[axis]) for axis in range(3)]
            r = np.sqrt(5.0 * (squares[0] + squares[2]))
            table[i, j] = 1.0 + 2.0 * (1.0 + r + r * r / 3.0) * np.exp(-r) * np.exp(-squares[1])
    return table


def _difference(axis: int, one: Array, other: Array) -> float:
    if axis == 1:
        return float(one[axis] != other[axis])
    a, b = np.exp(AXIS_PARAMETERS.log_warp_a[axis]), np.exp(AXIS_PARAMETERS.log_warp_b[axis])
    bent = [1.0 - (1.0 - point[axis] ** a) ** b for point in (one, other)]
    return float((bent[0] - bent[1]) ** 2)


@pytest.fixture
def process() -> GaussianProcess:
    known = points(12, seed=1)
    targets = np.sin(5.0 * known[:, 0]) + known[:, 1]
    return GaussianProcess(GEOMETRY, HYPERPARAMETERS, points=known, targets=targets)


def test_the_posterior_is_that_of_the_textbook(process: GaussianProcess) -> None:
    asked = points(5, seed=2)
    noisy = covariance(process.points, process.points) + NOISE * np.eye(12)
    across = covariance(asked, process.points)
    mean, variance = process.posterior(asked)
    assert mean == pytest.approx(across @ np.linalg.solve(noisy, process.targets))
    assert variance == pytest.approx(np.diag(covariance(asked, asked) - across @ np.linalg.solve(noisy, across.T)))


def test_leaving_one_out_says_what_a_process_without_it_says(process: GaussianProcess) -> None:
    left_out = process.leave_one_out()
    for index in range(len(process.points)):
        rest = np.arange(len(process.points)) != index
        without = GaussianProcess(
            GEOMETRY, HYPERPARAMETERS, points=process.points[rest], targets=process.targets[rest]
        ).posterior(process.points[[index]])
        assert left_out.mean[index] == pytest.approx(without.mean[0])
        assert left_out.variance[index] == pytest.approx(without.variance[0] + NOISE)


def test_samples_spread_as_the_posterior_says(process: GaussianProcess) -> None:
    asked = points(4, seed=3)
    samples = process.sample(asked, np.random.default_rng(0), size=20_000)
    mean, variance = process.posterior(asked)
    assert samples.mean(axis=1) == pytest.approx(mean, abs=0.05)
    assert samples.var(axis=1) == pytest.approx(variance, rel=0.05)


def test_a_measurement_with_extra_noise_is_followed_less() -> None:
    known, targets = points(1, seed=4), np.array([2.0])
    sure = GaussianProcess(GEOMETRY, HYPERPARAMETERS, points=known, targets=targets)
    doubted = GaussianProcess(GEOMETRY, HYPERPARAMETERS, points=known, targets=targets, extra_noise=np.array([3.0]))
    assert sure.posterior(known).mean[0] == pytest.approx(2.0, abs=0.1)
    assert 0.0 < doubted.posterior(known).mean[0] < 1.5


def test_fantasies_are_independent(process: GaussianProcess) -> None:
    asked = points(3, seed=5)
    other = process.targets**2
    both = GaussianProcess(
        GEOMETRY, HYPERPARAMETERS, points=process.points, targets=np.column_stack([process.targets, other])
    )
    target_only = GaussianProcess(GEOMETRY, HYPERPARAMETERS, points=process.points, targets=other)
    assert both.posterior(asked).mean[:, 0] == pytest.approx(process.posterior(asked).mean)
    assert both.posterior(asked).mean[:, 1] == pytest.approx(target_only.posterior(asked).mean)
    assert both.smoothed_targets()[:, 1] == pytest.approx(target_only.posterior(process.points).mean)


def test_the_same_point_measured_many_times_is_no_trouble() -> None:
    known = np.repeat(points(2, seed=6), 20, axis=0)
    targets = np.repeat([1.0, -1.0], 20)
    noiseless = Hyperparameters(AXIS_PARAMETERS, log_signal_variance=0.0, log_noise_variance=-60.0)
    process = GaussianProcess(GEOMETRY, noiseless, points=known, targets=targets)
    assert process.posterior(known).mean == pytest.approx(targets, abs=1e-3)

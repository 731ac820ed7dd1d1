import numpy as np
import pytest

from trainyard.foundation.jobs.tuning import Direction
from trainyard.insight.tuning.bayesian import BayesianStrategy
from trainyard.insight.tuning.bayesian.gaussian_process import GaussianProcess
from trainyard.insight.tuning.bayesian.kernel import Array, kernel_geometry
from trainyard.insight.tuning.bayesian.likelihood import fit_process
from trainyard.insight.tuning.bayesian.outliers import fit_without_outliers
from trainyard.insight.tuning.bayesian.prior import Prior
from trainyard.insight.tuning.contract import Observation, State
from trainyard.insight.tuning.space import Space
from trainyard.testing.tuning import continuous

PRIOR = Prior()
GEOMETRY = kernel_geometry([None], [False])
POINTS = np.linspace(0.0, 1.0, 25)[:, None]
OUTLIERS = [3, 9, 10, 20]


def fit(points: Array, targets: Array, extra_noise: Array) -> GaussianProcess:
    return fit_process(GEOMETRY, PRIOR, points=points, targets=targets, extra_noise=extra_noise)


def process_of(losses: Array) -> GaussianProcess:
    return fit(POINTS, (losses - losses.mean()) / losses.std(), np.zeros(len(losses)))


def hollow(points: Array) -> Array:
    return np.asarray((points[:, 0] - 0.4) ** 2)


def test_the_neighbours_predict_the_value_at_an_outlier() -> None:
    losses = hollow(POINTS)
    losses[OUTLIERS] += 2.0
    calm = fit_without_outliers(process_of(losses), fit, prior=PRIOR)
    means = calm.smoothed_targets()
    assert POINTS[np.argmin(means), 0] == pytest.approx(0.4, abs=0.05)
    for trial in OUTLIERS:
        assert abs(means[trial] - (means[trial - 1] + means[trial + 1]) / 2) < 0.2 * np.ptp(means)
    assert np.array_equal(np.flatnonzero(calm.extra_noise), OUTLIERS), "those are not believed for sure, and no others"


@pytest.mark.parametrize("seed", [70, 118])
def test_only_tested_outliers_are_accepted(seed: int) -> None:
    """These find other trials in each round, so that the rounds run out."""
    generator = np.random.default_rng(seed)
    losses = hollow(POINTS) + generator.normal(0.0, 0.02, 25)
    losses += (generator.random(25) < 0.25) * generator.uniform(0.1, 1.5, 25)
    doubted: list[list[int]] = []

    def noted(points: Array, targets: Array, extra_noise: Array) -> GaussianProcess:
        doubted.append(np.flatnonzero(extra_noise).tolist())
        return fit(points, targets, extra_noise)

    fit_without_outliers(process_of(losses), noted, prior=PRIOR)
    *weighed, at_last = doubted
    assert len(weighed) == 3
    assert at_last == weighed[-1]


def test_unexpectedly_good_trials_are_no_outliers() -> None:
    losses = hollow(POINTS)
    losses[17] -= 0.5
    found = fit_without_outliers(process_of(losses), fit, prior=PRIOR)
    assert np.argmin(found.smoothed_targets()) == 17
    assert found.extra_noise[17] == 0.0


def test_a_cliff_stays_one() -> None:
    beyond = POINTS[:, 0] > 0.72
    means = fit_without_outliers(process_of(np.where(beyond, 5.0, hollow(POINTS))), fit, prior=PRIOR).smoothed_targets()
    assert means[beyond].min() > means[~beyond].max()


@pytest.mark.parametrize(
    "losses",
    [
        pytest.param(hollow(POINTS), id="calm"),
        pytest.param(np.exp(12.0 * POINTS[:, 0]), id="wall"),
        pytest.param(hollow(POINTS) + np.random.default_rng(3).normal(0.0, 0.1, 25), id="noise"),
        pytest.param(np.full(25, 2.0) + 1e-12 * POINTS[:, 0], id="flat"),
    ],
)
def test_a_bad_region_has_no_outliers(losses: Array) -> None:
    process = process_of(losses)
    assert fit_without_outliers(process, fit, prior=PRIOR) is process


def test_a_study_of_which_every_fifth_training_collapses_comes_to_the_best_place() -> None:
    space = Space([continuous("rate", 0.0, 1.0), continuous("momentum", 0.0, 1.0)])
    strategy = BayesianStrategy(space, Direction.MAXIMIZE, seed=4)
    history: list[Observation] = []
    for number in range(1, 41):
        values = strategy.suggest(history, number=number)
        assert values is not None
        accuracy = 0.9 - (float(values["rate"]) - 0.3) ** 2 - (float(values["momentum"]) - 0.8) ** 2
        history.append(Observation(values, State.MEASURED, 0.1 if number % 5 == 0 else accuracy))
    best = max(history, key=lambda each: each.value or 0.0).values
    assert best["rate"] == pytest.approx(0.3, abs=0.01)
    assert best["momentum"] == pytest.approx(0.8, abs=0.01)

import numpy as np
import pytest

from trainyard.foundation.tuning import Direction
from trainyard.insight.tuning.bayesian import BayesianStrategy, fitting
from trainyard.insight.tuning.bayesian.gp import GaussianProcess
from trainyard.insight.tuning.bayesian.kernels import Array, geometry_of
from trainyard.insight.tuning.bayesian.luck import excused
from trainyard.insight.tuning.contract import Observation, State
from trainyard.insight.tuning.space import Space
from trainyard.testing.tuning import continuous

BELIEFS = fitting.Beliefs()
GEOMETRY = geometry_of([None], [False])
POINTS = np.linspace(0.0, 1.0, 25)[:, None]
UNLUCKY = [3, 9, 10, 20]


def fit(points: Array, targets: Array, doubts: Array) -> GaussianProcess:
    return fitting.fitted(GEOMETRY, BELIEFS, points=points, targets=targets, doubts=doubts)


def process_of(losses: Array) -> GaussianProcess:
    return fit(POINTS, (losses - losses.mean()) / losses.std(), np.zeros(len(losses)))


def hollow(points: Array) -> Array:
    return np.asarray((points[:, 0] - 0.4) ** 2)


def test_the_place_of_an_unlucky_trial_is_known_by_its_neighbours() -> None:
    losses = hollow(POINTS)
    losses[UNLUCKY] += 2.0
    calm = excused(process_of(losses), fit, beliefs=BELIEFS)
    means = calm.denoised()
    assert POINTS[np.argmin(means), 0] == pytest.approx(0.4, abs=0.05)
    for trial in UNLUCKY:
        assert abs(means[trial] - (means[trial - 1] + means[trial + 1]) / 2) < 0.2 * np.ptp(means)
    assert np.array_equal(np.flatnonzero(calm.doubts), UNLUCKY), "those are not believed for sure, and no others"


@pytest.mark.parametrize("seed", [70, 118])
def test_only_what_was_weighed_is_excused(seed: int) -> None:
    """These find other trials in each round, so that the rounds run out."""
    generator = np.random.default_rng(seed)
    losses = hollow(POINTS) + generator.normal(0.0, 0.02, 25)
    losses += (generator.random(25) < 0.25) * generator.uniform(0.1, 1.5, 25)
    doubted: list[list[int]] = []

    def noted(points: Array, targets: Array, doubts: Array) -> GaussianProcess:
        doubted.append(np.flatnonzero(doubts).tolist())
        return fit(points, targets, doubts)

    excused(process_of(losses), noted, beliefs=BELIEFS)
    *weighed, at_last = doubted
    assert len(weighed) == 3
    assert at_last == weighed[-1]


def test_lucky_trials_are_believed() -> None:
    losses = hollow(POINTS)
    losses[17] -= 0.5
    found = excused(process_of(losses), fit, beliefs=BELIEFS)
    assert np.argmin(found.denoised()) == 17
    assert found.doubts[17] == 0.0


def test_a_cliff_stays_one() -> None:
    beyond = POINTS[:, 0] > 0.72
    means = excused(process_of(np.where(beyond, 5.0, hollow(POINTS))), fit, beliefs=BELIEFS).denoised()
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
def test_what_a_place_is_worth_is_not_bad_luck(losses: Array) -> None:
    process = process_of(losses)
    assert excused(process, fit, beliefs=BELIEFS) is process


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

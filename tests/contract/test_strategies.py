"""Every strategy searches any space within its ranges, from any history, deterministically."""

import pytest

from trainyard.foundation.errors import InvalidRequest
from trainyard.foundation.jobs.tuning import Direction
from trainyard.insight.tuning.bayesian import BayesianStrategy
from trainyard.insight.tuning.contract import Observation, State
from trainyard.insight.tuning.grid import GridStrategy
from trainyard.insight.tuning.random import RandomStrategy
from trainyard.testing.tuning import FINITE, MIXED, FiniteStrategyContract, Make, StrategyContract


class TestRandom(StrategyContract):
    @pytest.fixture
    def make(self) -> Make:
        return lambda space, seed: RandomStrategy(space, seed=seed)


class TestBayesian(StrategyContract):
    @pytest.fixture
    def make(self) -> Make:
        return lambda space, seed: BayesianStrategy(space, Direction.MINIMIZE, seed=seed)


class TestGrid(FiniteStrategyContract):
    @pytest.fixture
    def make(self) -> Make:
        return lambda space, seed: GridStrategy(space, seed=seed)

    def test_a_grid_ends_when_every_combination_was_tried(self, make: Make) -> None:
        history = [Observation(FINITE.point(index), State.PENDING) for index in range(24)]
        assert make(FINITE, 0).suggest(history, number=25) is None

    def test_a_continuous_range_makes_no_grid(self, make: Make) -> None:
        with pytest.raises(InvalidRequest, match="continuous"):
            make(MIXED, 0)

import pytest

from trainyard.insight.tuning.contract import Observation, State
from trainyard.insight.tuning.random import RandomStrategy
from trainyard.insight.tuning.space import Space
from trainyard.testing.tuning import FINITE, MIXED, categorical, continuous


def test_a_point_is_not_repeated_even_if_all_draws_were_tried() -> None:
    strategy = RandomStrategy(MIXED, seed=1)
    history: list[Observation] = []
    for _ in range(40):
        point = strategy.suggest(history, number=3)
        history.append(Observation(point, State.FAILED))
    assert len({MIXED.key(each.values) for each in history}) == 32
    assert MIXED.admits(strategy.suggest(history, number=3))


def test_of_a_finite_space_every_point_is_tried_once_and_then_as_without_a_history() -> None:
    strategy = RandomStrategy(FINITE, seed=1)
    history: list[Observation] = []
    assert FINITE.size is not None
    for number in range(1, FINITE.size + 1):
        history.append(Observation(strategy.suggest(history, number=number), State.MEASURED, 1.0))
    assert len({FINITE.key(each.values) for each in history}) == FINITE.size
    for number in range(1, 5):
        assert strategy.suggest(history, number=number) == strategy.suggest([], number=number)


def test_one_of_a_thousand_points_that_is_left_is_found() -> None:
    space = Space([categorical("word", *(f"w{index}" for index in range(1000)))])
    history = [Observation({"word": f"w{index}"}, State.MEASURED, 1.0) for index in range(999)]
    assert RandomStrategy(space, seed=1).suggest(history, number=1) == {"word": "w999"}


@pytest.mark.parametrize(("seed", "number"), [(1, 2), (2, 1)])
def test_another_seed_or_number_is_another_chance(seed: int, number: int) -> None:
    space = Space([continuous("rate", 0.0, 1.0)])
    first = RandomStrategy(space, seed=1).suggest([], number=1)
    assert RandomStrategy(space, seed=seed).suggest([], number=number) != first

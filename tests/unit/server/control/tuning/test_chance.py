import pytest

from trainyard.foundation.tuning import (
    Definition,
    Direction,
    Objective,
    ParameterRange,
    RangeKind,
    Scaling,
    StrategyKind,
    TuningPlan,
)
from trainyard.server.control.tuning.chance import by_chance

OBJECTIVE = Objective("loss", Direction.MINIMIZE)


def plan(*ranges: ParameterRange) -> TuningPlan:
    return TuningPlan(StrategyKind.BAYESIAN, (Definition("", OBJECTIVE, ranges),), max_parallel=1, max_trials=9, seed=3)


@pytest.mark.parametrize("scaling", list(Scaling))
@pytest.mark.parametrize(("low", "high"), [(0.001, 0.9), (0.5, 0.5), (0.0, 0.0)])
def test_numbers_are_within_their_range_however_they_are_spread(scaling: Scaling, low: float, high: float) -> None:
    searched = plan(ParameterRange("x", RangeKind.CONTINUOUS, low, high, scaling))
    for number in range(1, 50):
        assert low <= float(by_chance(searched, number).values["x"]) <= high


def test_integers_are_whole_and_categories_are_as_given() -> None:
    searched = plan(
        ParameterRange("layers", RangeKind.INTEGER, 1, 4),
        ParameterRange("kind", RangeKind.CATEGORICAL, values=('"a"', '"b"')),
    )
    drawn = [by_chance(searched, number).values for number in range(1, 100)]
    assert {values["layers"] for values in drawn} == {"1", "2", "3", "4"}
    assert {values["kind"] for values in drawn} == {'"a"', '"b"'}


def test_the_same_trial_is_drawn_alike_each_time() -> None:
    searched = plan(ParameterRange("x", RangeKind.CONTINUOUS, 0, 1))
    assert by_chance(searched, 4) == by_chance(searched, 4)
    assert by_chance(searched, 4) != by_chance(searched, 5)

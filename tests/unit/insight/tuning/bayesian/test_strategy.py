import math

import numpy as np
import pytest

from trainyard.foundation.jobs.tuning import Direction, HyperparameterRange, RangeKind, Scaling
from trainyard.insight.tuning.bayesian import BayesianStrategy
from trainyard.insight.tuning.contract import Observation, State, Value
from trainyard.insight.tuning.space import Space

PLANE = Space(
    [HyperparameterRange(name, RangeKind.CONTINUOUS, 0.0, 1.0, Scaling.LINEAR) for name in ("x", "y")],
)
MIXED = Space(
    [
        HyperparameterRange("rate", RangeKind.CONTINUOUS, 1e-5, 1.0, Scaling.LOGARITHMIC),
        HyperparameterRange("layers", RangeKind.INTEGER, 1, 12, Scaling.LINEAR),
        HyperparameterRange("optimizer", RangeKind.CATEGORICAL, values=("sgd", "adam", "lamb", "lion")),
    ]
)


def bowl(values: dict[str, Value]) -> float:
    return (float(values["x"]) - 0.3) ** 2 + 2.0 * (float(values["y"]) - 0.8) ** 2


def training(values: dict[str, Value]) -> float:
    """A loss that is least, at zero, for a rate of 0.003, seven layers and lamb."""
    optimizer = {"sgd": 0.5, "adam": 0.2, "lamb": 0.0, "lion": 0.3}[str(values["optimizer"])]
    off = math.log10(float(values["rate"])) - math.log10(0.003)
    return off**2 + 0.05 * abs(int(values["layers"]) - 7) + optimizer


def sampled(space: Space, count: int, *, seed: int = 0) -> list[dict[str, Value]]:
    return [space.decode(row) for row in space.sample(np.random.default_rng(seed), count)]


def measured(space: Space, count: int, *, source: str = "") -> list[Observation]:
    objective = bowl if space is PLANE else training
    return [Observation(each, State.MEASURED, objective(each), source=source) for each in sampled(space, count)]


def asked(space: Space, history: list[Observation], direction: Direction = Direction.MINIMIZE) -> dict[str, Value]:
    found = BayesianStrategy(space, direction, seed=7).suggest(history, number=len(history) + 1)
    assert found is not None
    return dict(found)


@pytest.mark.parametrize(("space", "objective", "most"), [(PLANE, bowl, 1e-4), (MIXED, training, 0.01)])
def test_twenty_five_trials_find_the_optimum(space: Space, objective: object, most: float) -> None:
    assert callable(objective)
    history: list[Observation] = []
    for _ in range(25):
        values = asked(space, history)
        history.append(Observation(values, State.MEASURED, objective(values)))
    assert min(each.value for each in history if each.value is not None) < most


def test_to_maximise_is_to_minimise_the_opposite() -> None:
    history = measured(MIXED, 12)
    opposite = [Observation(each.values, each.state, -(each.value or 0.0)) for each in history]
    assert asked(MIXED, history) == asked(MIXED, opposite, Direction.MAXIMIZE)


def test_trials_at_the_same_time_keep_away_from_each_other() -> None:
    history = measured(PLANE, 12)
    for _ in range(4):
        history.append(Observation(asked(PLANE, history), State.PENDING))
    rows = np.array([[float(each.values["x"]), float(each.values["y"])] for each in history[12:]])
    distances = np.linalg.norm(rows[:, None] - rows[None, :], axis=2)[np.triu_indices(4, 1)]
    assert distances.min() > 0.01


@pytest.mark.parametrize("source", ["", "parent"])
def test_a_place_where_trials_fail_is_left(source: str) -> None:
    """Everything promising is where trials fail: beyond 0.6 of the second axis."""
    history = [
        Observation(each, State.FAILED, source=source)
        if float(each["y"]) > 0.6
        else Observation(each, State.MEASURED, bowl(each), source=source)
        for each in sampled(PLANE, 25)
    ]
    assert float(asked(PLANE, history)["y"]) < 0.65


def test_a_place_where_trials_of_a_parent_failed_is_tried_once_they_do_not_fail_here() -> None:
    failed = [Observation(each, State.FAILED, source="parent") for each in sampled(PLANE, 25) if float(each["y"]) > 0.6]
    measured_there = [each for each in measured(PLANE, 25, source="parent") if float(each.values["y"]) <= 0.6]
    points: list[dict[str, Value]] = [{"x": x, "y": y} for x in (0.1, 0.3, 0.5) for y in (0.5, 0.65, 0.9)]
    history = [*failed, *measured_there, *(Observation(each, State.MEASURED, bowl(each)) for each in points)]
    assert bowl(asked(PLANE, history)) < 0.02


@pytest.mark.parametrize(
    "bad", [Observation({}, State.DIVERGED, -100.0), Observation({}, State.MEASURED, float("-inf"))]
)
def test_a_trial_that_diverged_is_as_bad_as_the_worst_whatever_it_reported(bad: Observation) -> None:
    history = measured(PLANE, 15)
    worst = max(history, key=lambda each: each.value or 0.0)
    corner: dict[str, Value] = {"x": 0.9, "y": 0.05}
    as_bad = Observation(corner, State.MEASURED, worst.value)
    assert asked(PLANE, [*history, Observation(corner, bad.state, bad.value)]) == asked(PLANE, [*history, as_bad])


def test_a_trial_that_was_cut_short_is_no_new_best() -> None:
    """All objectives rise by two at last, and it was ended before its own did: lower than any other had come to."""
    history = [
        Observation(each.values, State.MEASURED, each.value, ((each.value or 0.0) - 2.0, each.value or 0.0))
        for each in measured(PLANE, 15)
    ]
    far: dict[str, Value] = {"x": 0.95, "y": 0.05}
    reached = bowl(far) - 2.0
    assert reached < min(each.value or 0.0 for each in history)
    assert bowl(asked(PLANE, [*history, Observation(far, State.CUT_SHORT, reached, (reached,))])) < 0.1


def test_the_first_trial_after_a_parent_is_near_its_best() -> None:
    found = asked(PLANE, measured(PLANE, 30, source="parent"))
    assert bowl(found) < 0.02


def test_a_parent_that_says_the_opposite_is_soon_not_believed() -> None:
    misleading = [
        Observation(each.values, State.MEASURED, -(each.value or 0.0), source="parent") for each in measured(PLANE, 20)
    ]
    is_target = [Observation(each, State.MEASURED, bowl(each)) for each in sampled(PLANE, 12, seed=5)]
    assert bowl(asked(PLANE, [*misleading, *is_target])) < 0.1


def test_thirty_hyperparameters_of_thirty_categories_are_searched() -> None:
    ranges = [
        HyperparameterRange(f"p{index}", RangeKind.CATEGORICAL, values=tuple(f"v{each}" for each in range(30)))
        for index in range(30)
    ]
    space = Space(ranges)
    history = [
        Observation(each, State.MEASURED, float(sum(value == "v0" for value in each.values())))
        for each in sampled(space, 40)
    ]
    assert space.admits(asked(space, history))

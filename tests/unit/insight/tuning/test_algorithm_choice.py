import math
import random
import statistics
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from scipy import stats

from trainyard.foundation.jobs.tuning import Direction, Objective, StrategyKind, TuningDefinition, TuningPlan
from trainyard.insight.tuning.algorithm_choice import rank_definitions
from trainyard.insight.tuning.contract import Observation, State

NAMES = ("linear", "trees", "network")
Result = Callable[[str, int], Observation]


def plan(direction: Direction = Direction.MINIMIZE, *, max_trials: int | None = 100) -> TuningPlan:
    definitions = tuple(TuningDefinition(name, Objective("loss", direction), ()) for name in NAMES)
    return TuningPlan(StrategyKind.RANDOM, definitions, max_parallel=1, max_trials=max_trials)


def study(result: Result, *, trials: int, asked: TuningPlan | None = None) -> list[str]:
    """Return the algorithms of a study's trials; `result` gives the objective of an algorithm's nth trial."""
    histories: dict[str, list[Observation]] = {name: [] for name in NAMES}
    chosen: list[str] = []
    for _ in range(trials):
        chosen.append(rank_definitions(asked or plan(), histories)[0])
        histories[chosen[-1]].append(result(chosen[-1], len(histories[chosen[-1]])))
    return chosen


def noisy(means: Sequence[float]) -> Result:
    generator = np.random.default_rng(0)
    by_name = dict(zip(NAMES, means, strict=True))
    return lambda name, _: Observation({}, State.MEASURED, by_name[name] + 0.1 * float(generator.random()))


def test_every_algorithm_has_a_few_trials_first() -> None:
    assert Counter(study(noisy([0.0, 5.0, 9.0]), trials=12)) == {"linear": 4, "trees": 4, "network": 4}


def test_a_short_study_leaves_trials_for_the_better_ones() -> None:
    chosen = study(noisy([5.0, 0.0, 9.0]), trials=9, asked=plan(max_trials=9))
    assert set(chosen[:3]) == set(NAMES)
    assert Counter(chosen)["trees"] >= 5


def test_the_better_algorithm_has_most_trials_and_none_is_starved() -> None:
    counts = Counter(study(noisy([5.0, 0.0, 9.0]), trials=100))
    assert counts["trees"] > 75
    assert min(counts.values()) >= 8


def test_larger_is_better_where_the_objective_is_maximized() -> None:
    counts = Counter(study(noisy([5.0, 0.0, 9.0]), trials=60, asked=plan(Direction.MAXIMIZE)))
    assert counts.most_common(1)[0][0] == "network"


def test_an_algorithm_that_still_improves_overtakes_one_that_does_not() -> None:
    def result(name: str, count: int) -> Observation:
        losses = {"linear": 1.0 + 0.001 * (count % 3), "trees": 3.0 * 0.93**count, "network": 9.0 + count % 2}
        return Observation({}, State.MEASURED, losses[name])

    chosen = study(result, trials=100)
    assert Counter(chosen).most_common(1)[0][0] == "trees"
    assert 3.0 * 0.93 ** (Counter(chosen)["trees"] - 1) < 0.1


def test_an_algorithm_that_always_fails_has_only_its_least_share() -> None:
    def result(name: str, count: int) -> Observation:
        failed = Observation({}, State.FAILED)
        return failed if name == "linear" else Observation({}, State.MEASURED, 1.0 + 0.1 * (count % 4))

    assert Counter(study(result, trials=80))["linear"] <= 8


def test_values_that_are_not_finite_or_enormous_are_no_obstacle() -> None:
    def result(name: str, count: int) -> Observation:
        values = {"linear": float("nan"), "trees": (-1.0) ** count * 1.7e308, "network": 1e-300 * count}
        return Observation({}, State.MEASURED, values[name])

    assert set(study(result, trials=40)) == set(NAMES)


def test_slots_that_are_free_at_the_same_time_are_not_all_given_to_one() -> None:
    histories: dict[str, list[Observation]] = {
        name: [Observation({}, State.MEASURED, base + 0.1 * count) for count in range(6)]
        for name, base in zip(NAMES, (1.0, 1.02, 9.0), strict=True)
    }
    chosen = []
    for _ in range(6):
        chosen.append(rank_definitions(plan(), histories)[0])
        histories[chosen[-1]].append(Observation({}, State.PENDING))
    assert {"linear", "trees"} <= set(chosen)


def promised(values: Sequence[float], *, best: float, of_all: Sequence[float], pending: int) -> float:
    """The mean improvement on the best value by one more of the better half, by integration."""
    half = sorted(values)[: max(2, math.ceil(len(values) / 2))]
    spread = statistics.stdev(half if len(half) > 1 else of_all) * math.sqrt(1 + 1 / len(half))
    threshold = (best - statistics.fmean(half)) / spread
    below = np.linspace(threshold - 2000, threshold, 100_001)
    density = stats.t.pdf(below, max(2, len(half)))
    return float(np.trapezoid((threshold - below) * density, below)) * spread / (1 + pending)


@pytest.mark.parametrize("seed", range(12))
def test_the_algorithm_comes_first_that_promises_to_improve_most_on_the_best(seed: int) -> None:
    chance = random.Random(seed)
    sign = chance.choice((1.0, -1.0))
    measured = {
        name: [chance.gauss(chance.uniform(0.0, 0.4), 0.2) for _ in range(chance.choice((3, 4, 5, 6, 9)))]
        for name in NAMES
    }
    measured[chance.choice(NAMES)][1:] = []
    pending = {name: chance.randrange(3) for name in NAMES}
    failed = {name: max(0, 5 - len(measured[name]) - pending[name]) for name in NAMES}
    histories = {
        name: [
            *(Observation({}, State.MEASURED, sign * value) for value in measured[name]),
            *[Observation({}, State.PENDING)] * pending[name],
            *[Observation({}, State.FAILED)] * failed[name],
            Observation({}, State.MEASURED, -9.0 * sign, source="parent"),
        ]
        for name in NAMES
    }
    of_all = [value for values in measured.values() for value in values]
    promises = {
        name: promised(measured[name], best=min(of_all), of_all=of_all, pending=pending[name]) for name in NAMES
    }
    asked = plan(Direction.MINIMIZE if sign > 0 else Direction.MAXIMIZE)
    assert rank_definitions(asked, histories) == sorted(NAMES, key=lambda name: -promises[name])


@pytest.mark.parametrize(("max_trials", "first"), [(None, 4), (100, 4), (36, 4), (35, 3), (18, 2), (17, 1), (3, 1)])
def test_each_algorithm_has_its_first_trials_in_turn(max_trials: int | None, first: int) -> None:
    """A third of all trials, and at most four of each."""
    chosen = study(noisy([0.0, 5.0, 9.0]), trials=3 * first + 3, asked=plan(max_trials=max_trials))
    for turn in range(first):
        assert set(chosen[3 * turn : 3 * turn + 3]) == set(NAMES)
    assert chosen[3 * first] == "linear"
    # After a single trial of each, how far its values lie apart is not known, and others may have their turns.
    assert first == 1 or set(chosen[3 * first :]) != set(NAMES)


def test_an_algorithm_has_at_least_a_quarter_of_an_even_share() -> None:
    chosen = study(noisy([0.0, 5.0, 9.0]), trials=300, asked=plan(max_trials=None))
    for trials in range(60, 301):
        assert min(Counter(chosen[:trials]).values()) >= math.floor(trials / 12)
    assert max(Counter(chosen)[name] for name in ("trees", "network")) <= 300 / 12 + 1


def test_of_algorithms_that_promise_nothing_the_one_with_fewer_trials_comes_first() -> None:
    histories = {name: [Observation({}, State.FAILED)] * count for name, count in zip(NAMES, (9, 7, 8), strict=True)}
    assert rank_definitions(plan(), histories) == ["trees", "network", "linear"]


def test_one_value_promises_nothing_as_long_as_no_other_tells_how_far_values_lie_apart() -> None:
    failed = Observation({}, State.FAILED)
    histories = {
        "linear": [Observation({}, State.MEASURED, 1.0), *[failed] * 8],
        "trees": [failed] * 7,
        "network": [failed] * 8,
    }
    assert rank_definitions(plan(), histories) == ["trees", "network", "linear"]

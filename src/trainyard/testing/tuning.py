"""Contract suites of search strategies and pruners.

The fixture `make` of a test module makes a strategy for a space. A strategy that needs finite spaces, such as a grid,
must pass `FiniteStrategyContract`, any other `StrategyContract`. A pruner must pass `PrunerContract`, for which the
fixture `make_pruner` makes one for a direction.
"""

import copy
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from trainyard.foundation.jobs.tuning import Direction, HyperparameterRange, RangeKind, Scaling
from trainyard.insight.tuning.contract import Observation, Pruner, State, Strategy, TrialCurve, Value
from trainyard.insight.tuning.space import Space

# Makes a strategy for a space and a seed; smaller objectives are better.
Make = Callable[[Space, int], Strategy]
# Makes a pruner for trials of `REPORTS` reports.
MakePruner = Callable[[Direction], Pruner]


def continuous(name: str, low: float, high: float, scaling: Scaling = Scaling.LINEAR) -> HyperparameterRange:
    return HyperparameterRange(name, RangeKind.CONTINUOUS, low, high, scaling)


def integer(name: str, low: int, high: int, scaling: Scaling = Scaling.LINEAR) -> HyperparameterRange:
    return HyperparameterRange(name, RangeKind.INTEGER, low, high, scaling)


def categorical(name: str, *values: str) -> HyperparameterRange:
    return HyperparameterRange(name, RangeKind.CATEGORICAL, values=values)


FINITE = Space(
    [categorical("optimizer", "sgd", "adam", "lamb"), integer("layers", 1, 4), categorical("bias", "no", "yes")]
)
SINGLE = Space([continuous("rate", 0.1, 0.1), integer("layers", 3, 3), categorical("optimizer", "sgd")])
THIRTY_VALUES = Space([categorical("word", *(f"w{index}" for index in range(30))), integer("layers", 5, 5)])
MIXED = Space(
    [
        continuous("rate", 1e-5, 1.0, Scaling.LOGARITHMIC),
        continuous("momentum", 0.0, 0.999, Scaling.REVERSE_LOGARITHMIC),
        integer("layers", 1, 12),
        categorical("optimizer", "sgd", "adam", "lamb"),
        continuous("fixed", 0.5, 0.5),
    ]
)
EXTREME = Space(
    [
        continuous("tiny and huge", 1e-300, 1e300, Scaling.AUTO),
        continuous("both signs", -1.7e308, 1.7e308),
        integer("large", -(10**18), 10**18),
        continuous("narrow", 1.0, math.nextafter(1.0, 2.0), Scaling.LOGARITHMIC),
    ]
)
THIRTY_PARAMETERS = Space(
    [continuous(f"c{index}", 0.0, 1.0) for index in range(10)]
    + [integer(f"i{index}", 1, 1000, Scaling.LOGARITHMIC) for index in range(10)]
    + [categorical(f"k{index}", "a", "b", "c") for index in range(10)]
)


def points(space: Space, count: int, *, seed: int = 0) -> list[dict[str, Value]]:
    """Draw random points of a space; a point may come twice."""
    return [space.decode(row) for row in space.sample(np.random.default_rng(seed), count)]


def measure(space: Space, values: dict[str, Value]) -> Observation:
    """Measure a point: the nearer to the lower corner of the cube, the smaller the objective."""
    row = space.encode(values)
    assert row is not None
    return Observation(values, State.MEASURED, float(np.sum(row**2)))


def measure_as(value: float) -> Callable[[dict[str, Value]], Observation]:
    return lambda point: Observation(point, State.MEASURED, value)


# Histories that a strategy must accept.
HISTORIES: dict[str, Callable[[Space], list[Observation]]] = {
    "nothing": lambda _: [],
    "one trial": lambda space: [measure(space, point) for point in points(space, 1)],
    "all pending": lambda space: [Observation(point, State.PENDING) for point in points(space, 4)],
    "only failures": lambda space: [Observation(point, State.FAILED) for point in points(space, 8)],
    "only diverged": lambda space: [Observation(point, State.DIVERGED, math.nan) for point in points(space, 8)],
    "only cut short": lambda space: [
        Observation(point, State.CUT_SHORT, 1.0, (2.0, 1.0)) for point in points(space, 8)
    ],
    "not a number": lambda space: [measure_as(math.nan)(point) for point in points(space, 8)],
    "infinite among others": lambda space: [
        *(measure(space, point) for point in points(space, 8)),
        *(measure_as(math.inf)(point) for point in points(space, 2, seed=1)),
        *(measure_as(-math.inf)(point) for point in points(space, 2, seed=2)),
    ],
    "enormous values": lambda space: [
        Observation(point, State.MEASURED, (-1.0) ** index * 1e308) for index, point in enumerate(points(space, 8))
    ],
    "all equal": lambda space: [measure_as(0.25)(point) for point in points(space, 12)],
    "one point many times": lambda space: [
        Observation(points(space, 1)[0], State.MEASURED, float(index % 3)) for index in range(15)
    ],
    "missing and foreign values": lambda space: [
        Observation({}, State.MEASURED, 1.0),
        Observation({each.name: "of another kind" for each in space.ranges}, State.MEASURED, 2.0),
        Observation({each.name: math.nan for each in space.ranges}, State.MEASURED, 3.0),
        *(measure(space, point) for point in points(space, 5)),
    ],
    "outside the ranges": lambda space: [
        *(Observation({each.name: 1e6 for each in space.ranges}, State.MEASURED, 1.0) for _ in range(3)),
        *(Observation({each.name: -7 for each in space.ranges}, State.PENDING) for _ in range(3)),
    ],
    "of a parent alone": lambda space: [
        Observation(point, State.MEASURED, float(index), source="parent")
        for index, point in enumerate(points(space, 20))
    ],
    "of everything": lambda space: [
        Observation(point, state, None if state in (State.PENDING, State.FAILED) else float(index), source=source)
        for index, (point, state, source) in enumerate(
            zip(points(space, 30), list(State) * 6, ["", "", "first", "", "second", ""] * 5, strict=True)
        )
    ],
}


class FiniteStrategyContract:
    @pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
    def test_any_history_is_answered_with_a_point_of_the_space(
        self, make: Make, history: Callable[[Space], list[Observation]]
    ) -> None:
        assert_suggests_a_point(make, FINITE, history(FINITE))

    def test_the_same_history_and_number_give_the_same_answer_in_every_instance(self, make: Make) -> None:
        history = [measure(FINITE, FINITE.point(index)) for index in range(7)]
        answers = [make(FINITE, 3).suggest(history, number=8) for _ in range(2)]
        assert answers[0] == answers[1]

    def test_a_history_is_not_changed(self, make: Make) -> None:
        history = HISTORIES["of everything"](FINITE)
        before = copy.deepcopy(history)
        make(FINITE, 0).suggest(history, number=31)
        assert repr(history) == repr(before)

    @pytest.mark.parametrize("seed", [0, 1])
    def test_no_point_is_tried_twice_while_others_are_left(self, make: Make, seed: int) -> None:
        assert len(distinct_keys(FINITE, search(make(FINITE, seed), FINITE, 24))) == 24

    def test_no_running_or_failed_point_is_tried_while_others_are_left(self, make: Make) -> None:
        taken = [FINITE.point(index) for index in range(23)]
        history = [Observation(point, (State.PENDING, State.FAILED)[index % 2]) for index, point in enumerate(taken)]
        assert make(FINITE, 0).suggest(history, number=24) == FINITE.point(23)

    def test_each_of_thirty_categories_is_tried_once(self, make: Make) -> None:
        found = search(make(THIRTY_VALUES, 0), THIRTY_VALUES, 30)
        assert len(distinct_keys(THIRTY_VALUES, found)) == 30

    def test_a_space_of_one_point_has_that_point(self, make: Make) -> None:
        assert make(SINGLE, 0).suggest([], number=1) == {"rate": 0.1, "layers": 3, "optimizer": "sgd"}


class StrategyContract(FiniteStrategyContract):
    @pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
    def test_any_history_of_a_mixed_space_is_answered_with_a_point_of_it(
        self, make: Make, history: Callable[[Space], list[Observation]]
    ) -> None:
        assert_suggests_a_point(make, MIXED, history(MIXED))

    @pytest.mark.parametrize("space", [EXTREME, THIRTY_PARAMETERS], ids=["extreme", "thirty parameters"])
    @pytest.mark.parametrize("kind", ["nothing", "infinite among others", "all equal", "of everything"])
    def test_any_space_is_searched_within_its_ranges(self, make: Make, space: Space, kind: str) -> None:
        assert_suggests_a_point(make, space, HISTORIES[kind](space))

    def test_five_hundred_observations_are_accepted(self, make: Make) -> None:
        assert_suggests_a_point(make, MIXED, [measure(MIXED, point) for point in points(MIXED, 500)])

    def test_a_search_of_a_mixed_space_is_the_same_for_one_seed_and_another_for_another(self, make: Make) -> None:
        first, again, other = (search(make(MIXED, seed), MIXED, 6) for seed in (0, 0, 1))
        assert first == again
        assert first != other

    def test_concurrent_trials_differ(self, make: Make) -> None:
        history = [measure(MIXED, point) for point in points(MIXED, 12)]
        strategy = make(MIXED, 0)
        found: list[dict[str, Value]] = []
        for number in range(13, 17):
            pending = [Observation(point, State.PENDING) for point in found]
            found.append(suggest_point(strategy, MIXED, [*history, *pending], number=number))
        assert len(distinct_keys(MIXED, found)) == 4

    @pytest.mark.parametrize("space", [SINGLE, FINITE], ids=["single", "finite"])
    def test_an_exhausted_space_is_tried_again(self, make: Make, space: Space) -> None:
        assert space.size is not None
        history = [measure(space, space.point(index)) for index in range(space.size)]
        assert_suggests_a_point(make, space, history)


def search(strategy: Strategy, space: Space, count: int) -> list[dict[str, Value]]:
    """Run a study with one trial at a time and return its points."""
    found: list[dict[str, Value]] = []
    for number in range(1, count + 1):
        history = [measure(space, point) for point in found]
        found.append(suggest_point(strategy, space, history, number=number))
    return found


def suggest_point(strategy: Strategy, space: Space, history: Sequence[Observation], *, number: int) -> dict[str, Value]:
    """Return what a strategy suggests; it must be a point of the space."""
    values = strategy.suggest(history, number=number)
    assert values is not None, f"the strategy suggested nothing after {len(history)} observations"
    assert space.admits(values), f"{dict(values)} is not within the ranges"
    return dict(values)


def assert_suggests_a_point(make: Make, space: Space, history: Sequence[Observation]) -> None:
    suggest_point(make(space, 0), space, history, number=len(history) + 1)


def distinct_keys(space: Space, found: Sequence[dict[str, Value]]) -> set[tuple[Value | None, ...]]:
    return {space.key(point) for point in found}


REPORTS = 27

# Curves of other trials that a pruner must accept.
CURVES: dict[str, Sequence[tuple[float, ...]]] = {
    "nothing": [],
    "no reports": [()] * 8,
    "one report": [(0.5,)] * 8,
    "of many lengths": [(0.5,) * length for length in range(1, REPORTS + 1)],
    "longer than known": [tuple(1 / report for report in range(1, 400))] * 6,
    "all equal": [(0.5,) * REPORTS] * 8,
    "not a number": [(math.nan,) * REPORTS] * 8,
    "infinite": [(math.inf, -math.inf) * 13] * 8,
    "diverged in the end": [(*(0.5,) * 26, math.nan)] * 4 + [(0.5,) * REPORTS] * 4,
    "holes": [(0.9, math.nan, 0.7, math.inf, 0.5, *(0.4,) * 22)] * 8,
    "enormous": [(1e308, -1e308, 1e300) * 9] * 8,
    "tiny": [tuple(5e-324 * report for report in range(REPORTS, 0, -1))] * 8,
}


def falling_to(final: float) -> tuple[float, ...]:
    """Return a learning curve from 1 to about a final value."""
    return tuple(final + (1 - final) * math.exp(-report / 4) for report in range(REPORTS))


class PrunerContract:
    @pytest.mark.parametrize("curves", CURVES.values(), ids=CURVES)
    @pytest.mark.parametrize("direction", list(Direction))
    def test_any_curves_get_a_sentence_or_no_verdict(
        self, make_pruner: MakePruner, direction: Direction, curves: Sequence[tuple[float, ...]]
    ) -> None:
        others = finished_trials(curves)
        for own in ((), (0.6,), (0.6,) * 12, (0.6, math.nan, 0.5), (0.5, math.nan), (1e308,) * 5):
            why = make_pruner(direction).verdict(TrialCurve(1, own), others)
            assert why is None or (why.endswith(".") and "objective" in why)

    def test_a_trial_without_others_continues(self, make_pruner: MakePruner) -> None:
        curve = falling_to(0.5)
        assert not is_ended(make_pruner(Direction.MINIMIZE), curve, [])

    def test_an_ended_trial_gets_no_verdict(self, make_pruner: MakePruner) -> None:
        others = finished_trials([falling_to(0.1)] * 12)
        assert make_pruner(Direction.MINIMIZE).verdict(TrialCurve(1, (9.0,) * 9, is_over=True), others) is None

    def test_the_best_trial_continues_and_one_that_learns_nothing_ends(self, make_pruner: MakePruner) -> None:
        others = finished_trials([falling_to(0.2 + place / 50) for place in range(24)])
        pruner = make_pruner(Direction.MINIMIZE)
        assert not is_ended(pruner, falling_to(0.05), others)
        assert is_ended(pruner, (1.0,) * (REPORTS - 1), others)

    def test_minimizing_and_maximizing_the_negative_end_trials_alike(self, make_pruner: MakePruner) -> None:
        curves = [falling_to(0.2 + place / 50) for place in range(24)]
        negative = [tuple(-value for value in curve) for curve in curves]
        for own in (falling_to(0.05), falling_to(0.3), falling_to(0.9), (1.0,) * REPORTS):
            less = end_report(make_pruner(Direction.MINIMIZE), own, finished_trials(curves))
            more = end_report(
                make_pruner(Direction.MAXIMIZE), tuple(-value for value in own), finished_trials(negative)
            )
            assert less == more

    def test_the_verdict_depends_neither_on_the_order_of_the_others_nor_on_earlier_calls(
        self, make_pruner: MakePruner
    ) -> None:
        others = finished_trials([falling_to(0.2 + place / 50) for place in range(24)])
        run = TrialCurve(1, falling_to(0.6)[:13])
        asked_before = make_pruner(Direction.MINIMIZE)
        asked_before.verdict(TrialCurve(1, falling_to(0.1)[:20]), others[:10])
        first = make_pruner(Direction.MINIMIZE).verdict(run, others)
        assert asked_before.verdict(run, others) == first
        assert asked_before.verdict(run, others[::-1]) == first


def finished_trials(curves: Sequence[tuple[float, ...]]) -> list[TrialCurve]:
    """Return other trials that ran to their end."""
    return [TrialCurve(number, curve, is_over=True) for number, curve in enumerate(curves, start=2)]


def is_ended(pruner: Pruner, curve: tuple[float, ...], others: Sequence[TrialCurve]) -> bool:
    return end_report(pruner, curve, others) is not None


def end_report(pruner: Pruner, curve: tuple[float, ...], others: Sequence[TrialCurve]) -> int | None:
    """Return at which report, before the last, a pruner ends a trial with this curve; None if it does not."""
    reports = range(1, min(len(curve), REPORTS - 1) + 1)
    return next(
        (report for report in reports if pruner.verdict(TrialCurve(1, curve[:report]), others) is not None), None
    )

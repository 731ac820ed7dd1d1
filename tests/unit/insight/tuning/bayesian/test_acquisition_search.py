import numpy as np
import pytest

from trainyard.foundation.jobs.tuning import HyperparameterRange, RangeKind, Scaling
from trainyard.insight.tuning.bayesian.acquisition import AcquisitionValues
from trainyard.insight.tuning.bayesian.acquisition_search import AcquisitionSearch, SearchEffort, ascend
from trainyard.insight.tuning.bayesian.kernel import Array
from trainyard.insight.tuning.contract import Value
from trainyard.insight.tuning.space import Space

NO_ANCHORS = np.empty((0, 0))


class Hill:
    """Worth most at a peak, and less by how far away a point is, some axes counting more than others."""

    def __init__(self, peak: Array, steepness: Array) -> None:
        self.peak = peak
        self.steepness = steepness

    def values(self, points: Array) -> Array:
        return self.values_and_gradients(points).values

    def values_and_gradients(self, points: Array) -> AcquisitionValues:
        away = points - self.peak
        return AcquisitionValues(-np.sum(self.steepness * away * away, axis=1), -2.0 * self.steepness * away)


def continuous(name: str) -> HyperparameterRange:
    return HyperparameterRange(name, RangeKind.CONTINUOUS, 0.0, 1.0, Scaling.LINEAR)


def integer(name: str, high: int) -> HyperparameterRange:
    return HyperparameterRange(name, RangeKind.INTEGER, 0, high, Scaling.LINEAR)


def category(name: str, count: int) -> HyperparameterRange:
    return HyperparameterRange(name, RangeKind.CATEGORICAL, values=tuple(str(index) for index in range(count)))


def test_climbing_comes_to_the_top_of_a_long_ridge() -> None:
    hill = Hill(np.array([0.3, 0.7, 0.5]), np.array([1.0, 100.0, 1e4]))
    starts = np.random.default_rng(0).random((4, 3))
    found = ascend(hill, starts, free=np.ones(3, dtype=np.bool_), steps=60)
    assert found == pytest.approx(np.tile(hill.peak, (4, 1)), abs=1e-4)


def test_climbing_comes_to_the_face_of_the_cube_that_is_nearest_to_a_top_outside() -> None:
    hill = Hill(np.array([1.5, 0.4]), np.array([1.0, 10.0]))
    found = ascend(hill, np.array([[0.2, 0.9]]), free=np.ones(2, dtype=np.bool_), steps=60)
    assert found[0] == pytest.approx([1.0, 0.4], abs=1e-4)


def test_climbing_leaves_coordinates_alone_that_are_not_free() -> None:
    hill = Hill(np.array([0.3, 0.7]), np.ones(2))
    found = ascend(hill, np.array([[0.9, 0.1]]), free=np.array([True, False]), steps=60)
    assert found[0] == pytest.approx([0.3, 0.1], abs=1e-4)


def test_the_best_point_of_a_mixed_space_is_found_exactly() -> None:
    space = Space([continuous("x"), integer("n", 9), category("c", 30), integer("many", 5000)])
    values: dict[str, Value] = {"x": 0.123456, "n": 7, "c": "17", "many": 1234}
    peak = space.encode(values)
    assert peak is not None
    hill = Hill(peak, np.array([5.0, 3.0, 0.001, 10.0]))
    found = AcquisitionSearch(space, frozenset(), effort=SearchEffort()).best(
        hill, NO_ANCHORS, generator=np.random.default_rng(0)
    )
    assert found["x"] == pytest.approx(0.123456, abs=1e-5)
    assert (found["n"], found["c"], found["many"]) == (7, "17", 1234)


def test_a_tried_point_is_never_the_answer_while_another_is_left() -> None:
    space = Space([integer("n", 3), category("c", 4)])
    hill = Hill(np.array([0.2, 2.0]), np.ones(2))
    tried: set[tuple[Value | None, ...]] = set()
    for number in range(16):
        search = AcquisitionSearch(space, tried, effort=SearchEffort(candidates=4))
        found = search.best(hill, NO_ANCHORS, generator=np.random.default_rng(number))
        assert space.key(found) not in tried
        tried.add(space.key(found))
    again = AcquisitionSearch(space, tried, effort=SearchEffort()).best(
        hill, NO_ANCHORS, generator=np.random.default_rng(0)
    )
    assert space.key(again) in tried

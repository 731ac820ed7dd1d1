from collections.abc import Callable, Mapping

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from trainyard.foundation.tuning import Direction
from trainyard.insight.tuning.bayesian import leaning, warping
from trainyard.insight.tuning.bayesian.evidence import Evidence, evidence_of
from trainyard.insight.tuning.bayesian.fitting import Beliefs, fitted
from trainyard.insight.tuning.bayesian.kernels import Array, Geometry, geometry_of
from trainyard.insight.tuning.bayesian.targets import standardised
from trainyard.insight.tuning.contract import Observation, State
from trainyard.insight.tuning.space import Space
from trainyard.testing.tuning import categorical, continuous

SPACE = Space([continuous("rate", 0.0, 1.0), continuous("decay", 0.0, 1.0)])
GEOMETRY = geometry_of([None, None], [False, False])
Function = Callable[[Mapping[str, float]], float]


def bowl(rate: float, decay: float) -> Function:
    return lambda at: (at["rate"] - rate) ** 2 + 0.5 * (at["decay"] - decay) ** 2


def leant(function: Function, rate: float, decay: float) -> Function:
    """A function that has in one place what the other has elsewhere."""
    lean = np.array([rate, decay])

    def there(at: Mapping[str, float]) -> float:
        rate, decay = warping.bend(np.array([[at["rate"], at["decay"]]]), lean, -lean)[0].tolist()
        return function({"rate": rate, "decay": decay})

    return there


def observed(function: Function, count: int, *, seed: int, source: str = "") -> list[Observation]:
    points = np.random.default_rng(seed).random((count, 2)).tolist()
    rows = [{"rate": rate, "decay": decay} for rate, decay in points]
    return [Observation(row, State.MEASURED, function(row), source=source) for row in rows]


def known(*histories: list[Observation], space: Space = SPACE) -> Evidence:
    return evidence_of(space, [each for history in histories for each in history], direction=Direction.MINIMIZE)


def told(evidence: Evidence) -> Array:
    """What is told of relatives; of the study nothing."""
    targets = np.zeros(len(evidence.losses))
    for source in np.unique(evidence.sources[~evidence.own]):
        targets[evidence.sources == source] = standardised(evidence.losses[evidence.sources == source])
    return targets


def straightened(evidence: Evidence, geometry: Geometry = GEOMETRY) -> leaning.Straightened:
    targets, theirs = told(evidence), ~evidence.own
    process = fitted(geometry, Beliefs(), points=evidence.rows[theirs], targets=targets[theirs])
    generator = np.random.default_rng(5)
    found = process.hyperparameters
    return leaning.straightened(evidence, targets, geometry, hyperparameters=found, most=100, generator=generator)


def moves(evidence: Evidence) -> Array:
    """How far each row is moved."""
    return straightened(evidence).rows - evidence.rows


def doubts(evidence: Evidence) -> Array:
    """How far the possible places of what is in the middle of each axis lie apart."""
    inner = ~evidence.own & np.all(np.abs(evidence.rows - 0.5) < 0.25, axis=1)
    return np.asarray(np.median(np.std(straightened(evidence).otherwise, axis=0)[inner], axis=0))


def middle(evidence: Evidence, source: int = 1) -> Array:
    """By how much what is in the middle of each axis is moved."""
    inner = (evidence.sources == source) & np.all(np.abs(evidence.rows - 0.5) < 0.25, axis=1)
    return np.asarray(np.median(moves(evidence)[inner], axis=0))


@pytest.mark.parametrize("factor", [1.0, 10.0])
def test_a_relative_is_moved_to_where_the_study_has_its_best(factor: float) -> None:
    def elsewhere(at: Mapping[str, float]) -> float:
        return factor * leant(bowl(0.3, 0.4), 0.13, -0.13)(at) - 4.0

    evidence = known(observed(elsewhere, 8, seed=1), observed(bowl(0.3, 0.4), 40, seed=2, source="parent"))
    np.testing.assert_allclose(middle(evidence), [0.08, -0.09], atol=0.02)


def test_a_relative_that_has_its_best_at_the_same_place_is_not_moved() -> None:
    evidence = known(observed(bowl(0.3, 0.6), 8, seed=1), observed(bowl(0.3, 0.6), 40, seed=2, source="parent"))
    assert np.max(np.abs(moves(evidence))) < 0.01


def test_each_relative_is_moved_by_itself() -> None:
    evidence = known(
        observed(bowl(0.5, 0.5), 8, seed=1),
        observed(leant(bowl(0.5, 0.5), -0.13, 0.0), 40, seed=2, source="one"),
        observed(leant(bowl(0.5, 0.5), 0.13, 0.0), 40, seed=3, source="two"),
    )
    assert middle(evidence, source=1)[0] > 0.05
    assert middle(evidence, source=2)[0] < -0.05


def test_the_trials_of_the_study_and_the_ends_of_axes_stay_where_they_are() -> None:
    corners: list[dict[str, float]] = [{"rate": rate, "decay": decay} for rate in (0.0, 1.0) for decay in (0.0, 1.0)]
    ends = [Observation(each, State.MEASURED, bowl(0.5, 0.5)(each), source="parent") for each in corners]
    elsewhere = leant(bowl(0.5, 0.5), 0.2, 0.2)
    evidence = known(observed(elsewhere, 8, seed=1), observed(bowl(0.5, 0.5), 40, seed=2, source="parent"), ends)
    moved = moves(evidence)
    assert np.all(moved[evidence.own] == 0.0)
    np.testing.assert_allclose(moved[-4:], 0.0, atol=1e-6)
    assert np.max(np.abs(moved)) > 0.05


def test_one_trial_of_a_study_moves_nothing() -> None:
    evidence = known(observed(bowl(0.6, 0.6), 1, seed=1), observed(bowl(0.5, 0.5), 40, seed=2, source="parent"))
    np.testing.assert_allclose(moves(evidence), 0.0, atol=1e-5)


def test_after_one_trial_a_relative_may_lie_anywhere_near() -> None:
    evidence = known(observed(bowl(0.6, 0.6), 1, seed=1), observed(bowl(0.5, 0.5), 40, seed=2, source="parent"))
    assert np.all(doubts(evidence) > 0.04)


def test_where_a_relative_lies_is_in_doubt_along_those_axes_that_trials_tell_nothing_of() -> None:
    elsewhere = leant(bowl(0.5, 0.5), 0.13, 0.13)
    rows: list[dict[str, float]] = [{"rate": rate, "decay": 0.5} for rate in (0.1, 0.3, 0.5, 0.7, 0.9)]
    along = [Observation(row, State.MEASURED, elsewhere(row)) for row in rows]
    in_rate, in_decay = doubts(known(along, observed(bowl(0.5, 0.5), 40, seed=2, source="parent")))
    assert 3.0 * in_rate < in_decay


def test_the_trials_of_the_study_lie_where_they_do_whatever_is_possible() -> None:
    evidence = known(observed(bowl(0.6, 0.6), 3, seed=1), observed(bowl(0.5, 0.5), 40, seed=2, source="parent"))
    for rows in straightened(evidence).otherwise:
        assert np.array_equal(rows[evidence.own], evidence.rows[evidence.own])


def test_categories_are_not_moved() -> None:
    space, geometry = Space([categorical("kind", "a", "b", "c")]), geometry_of([3], [True])
    history = [
        Observation({"kind": kind}, State.MEASURED, value, source=source)
        for source in ("", "parent")
        for kind, value in (("a", 1.0), ("b", 2.0), ("c", 3.0))
    ]
    evidence = known(history, space=space)
    found = straightened(evidence, geometry)
    assert np.array_equal(found.rows, evidence.rows)
    assert not found.otherwise


@pytest.mark.parametrize("vector", [[0.03, 0.03, -2.0], [-0.2, 0.1, -4.0]])
def test_the_gradient_is_that_of_the_unlikeliness(vector: list[float]) -> None:
    evidence = known(observed(bowl(0.6, 0.4), 6, seed=1), observed(bowl(0.5, 0.5), 30, seed=2, source="parent"))
    noisy = np.random.default_rng(3).normal(0.0, 0.3, len(evidence.losses)) * ~evidence.own
    targets, theirs = told(evidence) + noisy, ~evidence.own
    process = fitted(GEOMETRY, Beliefs(), points=evidence.rows[theirs], targets=targets[theirs])
    kin = leaning._Kin(evidence, targets, GEOMETRY, process.hyperparameters)
    at = np.array(vector)
    measured = approx_fprime(at, lambda point: kin.unlikeliness_and_gradient(point)[0], 1e-6)
    np.testing.assert_allclose(kin.unlikeliness_and_gradient(at)[1], measured, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(("first", "second"), [(0.3, -0.3), (-0.5, 0.1), (0.0, 0.0)])
def test_what_was_bent_is_unbent(first: float, second: float) -> None:
    units = np.linspace(0.0, 1.0, 11)[:, None]
    bent = warping.bend(units, np.array([first]), np.array([second]))
    np.testing.assert_allclose(warping.unbend(bent, np.array([first]), np.array([second])), units, atol=1e-6)

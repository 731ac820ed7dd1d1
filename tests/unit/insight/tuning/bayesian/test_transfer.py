from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from trainyard.foundation.jobs.tuning import Direction
from trainyard.insight.tuning.bayesian.gaussian_process import standardise
from trainyard.insight.tuning.bayesian.history_arrays import HistoryArrays, history_arrays
from trainyard.insight.tuning.bayesian.kernel import Array, Geometry, kernel_geometry, unwarp, warp
from trainyard.insight.tuning.bayesian.likelihood import fit_process
from trainyard.insight.tuning.bayesian.prior import Prior
from trainyard.insight.tuning.bayesian.surrogate import SurrogateModel
from trainyard.insight.tuning.bayesian.transfer import ShiftedPoints, _TaskPair, align_tasks, shift_sources
from trainyard.insight.tuning.contract import Observation, State
from trainyard.insight.tuning.space import Space
from trainyard.testing.tuning import categorical, continuous

LINE = Space([continuous("rate", 0.0, 1.0)])
SOURCE_TRIALS = [
    Observation({"rate": rate}, State.MEASURED, (rate - 0.3) ** 2, source="parent")
    for rate in np.linspace(0.0, 1.0, 15).tolist()
]


def target_trials(*rates: float, factor: float = 1.0, offset: float = 0.0) -> list[Observation]:
    """Trials of a study whose function is that of its parent, of another size."""
    return [Observation({"rate": rate}, State.MEASURED, factor * (rate - 0.3) ** 2 + offset) for rate in rates]


def aligned_targets(history: list[Observation]) -> tuple[HistoryArrays, Array]:
    arrays = history_arrays(LINE, history, direction=Direction.MINIMIZE)
    generator = np.random.default_rng(0)
    found = align_tasks(arrays, kernel_geometry([None], [False]), prior=Prior(), generator=generator)
    return found.arrays, found.targets


def test_a_study_without_parents_is_standardised() -> None:
    _, found = aligned_targets(target_trials(0.1, 0.5, 0.9))
    np.testing.assert_allclose([found.mean(), found.std()], [0.0, 1.0], atol=1e-12)


def test_the_only_trial_of_a_study_is_as_good_as_its_parent_lets_expect_there() -> None:
    levels = []
    for rate in (0.3, 0.6, 1.0):
        arrays, found = aligned_targets([*SOURCE_TRIALS, *target_trials(rate, factor=50.0, offset=-7.0)])
        levels.append(found[arrays.is_target][0])
    assert levels[0] + 0.1 < levels[1] < levels[2] - 0.5


@pytest.mark.parametrize(("factor", "offset"), [(1.0, 0.0), (3.0, 7.0), (0.2, -4.0)])
def test_the_targets_of_a_study_are_on_the_scale_of_its_parent(factor: float, offset: float) -> None:
    rates = (0.2, 0.25, 0.35, 0.5, 0.6, 0.7)
    arrays, found = aligned_targets([*SOURCE_TRIALS, *target_trials(*rates, factor=factor, offset=offset)])
    source_rows = np.interp(rates, arrays.rows[~arrays.is_target][:, 0], found[~arrays.is_target])
    assert 0.8 < np.ptp(found[arrays.is_target]) / np.ptp(source_rows) < 1.25
    assert np.array_equal(np.argsort(found[arrays.is_target]), np.argsort(arrays.losses[arrays.is_target]))


def test_trials_that_are_all_the_same_have_one_target() -> None:
    arrays, found = aligned_targets([*SOURCE_TRIALS, *target_trials(0.4, 0.4, 0.4)])
    assert np.ptp(found[arrays.is_target]) == 0.0
    assert np.all(np.isfinite(found))


def test_a_parent_of_the_same_function_is_not_a_source_task() -> None:
    arrays = history_arrays(
        LINE, [*SOURCE_TRIALS, *target_trials(0.3)], direction=Direction.MINIMIZE, same_task_sources=["parent"]
    )
    assert np.all(arrays.is_target)
    assert arrays.is_own_trial.tolist() == [False] * 15 + [True]


@pytest.mark.parametrize(("is_noise", "expected"), [(False, False), (True, True)])
def test_source_tasks_that_predict_nothing_are_left_out(is_noise: bool, expected: bool) -> None:
    chance = np.random.default_rng(0).permutation(len(SOURCE_TRIALS)) if is_noise else np.arange(len(SOURCE_TRIALS))
    source_rows = [
        replace(each, value=SOURCE_TRIALS[index].value) for each, index in zip(SOURCE_TRIALS, chance, strict=True)
    ]
    rates = (0.05, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95)
    arrays = history_arrays(LINE, [*source_rows, *target_trials(*rates)], direction=Direction.MINIMIZE)
    surrogate = SurrogateModel(kernel_geometry([None], [False]), arrays, generator=np.random.default_rng(0))
    process = surrogate.fit()
    assert surrogate.has_sources is not expected
    assert len(process.points) == len(rates) + (0 if expected else len(SOURCE_TRIALS))


SPACE = Space([continuous("rate", 0.0, 1.0), continuous("decay", 0.0, 1.0)])
GEOMETRY = kernel_geometry([None, None], [False, False])
Function = Callable[[Mapping[str, float]], float]


def bowl(rate: float, decay: float) -> Function:
    return lambda at: (at["rate"] - rate) ** 2 + 0.5 * (at["decay"] - decay) ** 2


def shifted(function: Function, rate: float, decay: float) -> Function:
    """A function that has in one place what the other has elsewhere."""
    shift = np.array([rate, decay])

    def there(at: Mapping[str, float]) -> float:
        rate, decay = warp(np.array([[at["rate"], at["decay"]]]), shift, -shift)[0].tolist()
        return function({"rate": rate, "decay": decay})

    return there


def observed(function: Function, count: int, *, seed: int, source: str = "") -> list[Observation]:
    points = np.random.default_rng(seed).random((count, 2)).tolist()
    rows = [{"rate": rate, "decay": decay} for rate, decay in points]
    return [Observation(row, State.MEASURED, function(row), source=source) for row in rows]


def known(*histories: list[Observation], space: Space = SPACE) -> HistoryArrays:
    return history_arrays(space, [each for history in histories for each in history], direction=Direction.MINIMIZE)


def source_targets(arrays: HistoryArrays) -> Array:
    """Return the targets of the source tasks, and zeros for the target task."""
    targets = np.zeros(len(arrays.losses))
    for source in np.unique(arrays.sources[~arrays.is_target]):
        targets[arrays.sources == source] = standardise(arrays.losses[arrays.sources == source])
    return targets


def moved_sources(arrays: HistoryArrays, geometry: Geometry = GEOMETRY) -> ShiftedPoints:
    targets, source_rows = source_targets(arrays), ~arrays.is_target
    process = fit_process(geometry, Prior(), points=arrays.rows[source_rows], targets=targets[source_rows])
    generator = np.random.default_rng(5)
    found = process.hyperparameters
    return shift_sources(arrays, targets, geometry, hyperparameters=found, most=100, generator=generator)


def moves(arrays: HistoryArrays) -> Array:
    """How far each row is moved."""
    return moved_sources(arrays).rows - arrays.rows


def shift_spread(arrays: HistoryArrays) -> Array:
    """How far the possible places of what is in the middle of each axis lie apart."""
    inner = ~arrays.is_target & np.all(np.abs(arrays.rows - 0.5) < 0.25, axis=1)
    return np.asarray(np.median(np.std(moved_sources(arrays).alternatives, axis=0)[inner], axis=0))


def middle(arrays: HistoryArrays, source: int = 1) -> Array:
    """By how much what is in the middle of each axis is moved."""
    inner = (arrays.sources == source) & np.all(np.abs(arrays.rows - 0.5) < 0.25, axis=1)
    return np.asarray(np.median(moves(arrays)[inner], axis=0))


@pytest.mark.parametrize("factor", [1.0, 10.0])
def test_a_source_task_is_shifted_to_the_optimum_of_the_target_task(factor: float) -> None:
    def elsewhere(at: Mapping[str, float]) -> float:
        return factor * shifted(bowl(0.3, 0.4), 0.13, -0.13)(at) - 4.0

    arrays = known(observed(elsewhere, 8, seed=1), observed(bowl(0.3, 0.4), 40, seed=2, source="parent"))
    np.testing.assert_allclose(middle(arrays), [0.08, -0.09], atol=0.02)


def test_a_source_task_with_the_same_optimum_is_not_shifted() -> None:
    arrays = known(observed(bowl(0.3, 0.6), 8, seed=1), observed(bowl(0.3, 0.6), 40, seed=2, source="parent"))
    assert np.max(np.abs(moves(arrays))) < 0.01


def test_each_source_task_has_its_own_shift() -> None:
    arrays = known(
        observed(bowl(0.5, 0.5), 8, seed=1),
        observed(shifted(bowl(0.5, 0.5), -0.13, 0.0), 40, seed=2, source="one"),
        observed(shifted(bowl(0.5, 0.5), 0.13, 0.0), 40, seed=3, source="two"),
    )
    assert middle(arrays, source=1)[0] > 0.05
    assert middle(arrays, source=2)[0] < -0.05


def test_the_trials_of_the_study_and_the_ends_of_axes_stay_where_they_are() -> None:
    corners: list[dict[str, float]] = [{"rate": rate, "decay": decay} for rate in (0.0, 1.0) for decay in (0.0, 1.0)]
    ends = [Observation(each, State.MEASURED, bowl(0.5, 0.5)(each), source="parent") for each in corners]
    elsewhere = shifted(bowl(0.5, 0.5), 0.2, 0.2)
    arrays = known(observed(elsewhere, 8, seed=1), observed(bowl(0.5, 0.5), 40, seed=2, source="parent"), ends)
    moved = moves(arrays)
    assert np.all(moved[arrays.is_target] == 0.0)
    np.testing.assert_allclose(moved[-4:], 0.0, atol=1e-6)
    assert np.max(np.abs(moved)) > 0.05


def test_one_trial_of_a_study_moves_nothing() -> None:
    arrays = known(observed(bowl(0.6, 0.6), 1, seed=1), observed(bowl(0.5, 0.5), 40, seed=2, source="parent"))
    np.testing.assert_allclose(moves(arrays), 0.0, atol=1e-5)


def test_after_one_trial_the_alternative_shifts_differ() -> None:
    arrays = known(observed(bowl(0.6, 0.6), 1, seed=1), observed(bowl(0.5, 0.5), 40, seed=2, source="parent"))
    assert np.all(shift_spread(arrays) > 0.04)


def test_alternative_shifts_differ_along_axes_that_the_trials_do_not_vary() -> None:
    elsewhere = shifted(bowl(0.5, 0.5), 0.13, 0.13)
    rows: list[dict[str, float]] = [{"rate": rate, "decay": 0.5} for rate in (0.1, 0.3, 0.5, 0.7, 0.9)]
    along = [Observation(row, State.MEASURED, elsewhere(row)) for row in rows]
    in_rate, in_decay = shift_spread(known(along, observed(bowl(0.5, 0.5), 40, seed=2, source="parent")))
    assert 3.0 * in_rate < in_decay


def test_alternative_shifts_do_not_move_the_trials_of_the_target_task() -> None:
    arrays = known(observed(bowl(0.6, 0.6), 3, seed=1), observed(bowl(0.5, 0.5), 40, seed=2, source="parent"))
    for rows in moved_sources(arrays).alternatives:
        assert np.array_equal(rows[arrays.is_target], arrays.rows[arrays.is_target])


def test_categories_are_not_moved() -> None:
    space, geometry = Space([categorical("kind", "a", "b", "c")]), kernel_geometry([3], [True])
    history = [
        Observation({"kind": kind}, State.MEASURED, value, source=source)
        for source in ("", "parent")
        for kind, value in (("a", 1.0), ("b", 2.0), ("c", 3.0))
    ]
    arrays = known(history, space=space)
    found = moved_sources(arrays, geometry)
    assert np.array_equal(found.rows, arrays.rows)
    assert not found.alternatives


@pytest.mark.parametrize("vector", [[0.03, 0.03, -2.0], [-0.2, 0.1, -4.0]])
def test_the_gradient_is_that_of_the_negative_log_likelihood(vector: list[float]) -> None:
    arrays = known(observed(bowl(0.6, 0.4), 6, seed=1), observed(bowl(0.5, 0.5), 30, seed=2, source="parent"))
    noisy = np.random.default_rng(3).normal(0.0, 0.3, len(arrays.losses)) * ~arrays.is_target
    targets, source_rows = source_targets(arrays) + noisy, ~arrays.is_target
    process = fit_process(GEOMETRY, Prior(), points=arrays.rows[source_rows], targets=targets[source_rows])
    pair = _TaskPair(arrays, targets, GEOMETRY, process.hyperparameters)
    at = np.array(vector)
    measured = approx_fprime(at, lambda point: pair.value_and_gradient(point)[0], 1e-6)
    np.testing.assert_allclose(pair.value_and_gradient(at)[1], measured, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(("first", "second"), [(0.3, -0.3), (-0.5, 0.1), (0.0, 0.0)])
def test_unwarping_undoes_warping(first: float, second: float) -> None:
    units = np.linspace(0.0, 1.0, 11)[:, None]
    warped = warp(units, np.array([first]), np.array([second]))
    np.testing.assert_allclose(unwarp(warped, np.array([first]), np.array([second])), units, atol=1e-6)

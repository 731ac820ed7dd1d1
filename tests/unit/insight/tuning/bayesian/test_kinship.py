from dataclasses import replace

import numpy as np
import pytest

from trainyard.foundation.tuning import Direction
from trainyard.insight.tuning.bayesian.evidence import Evidence, evidence_of
from trainyard.insight.tuning.bayesian.fitting import Beliefs
from trainyard.insight.tuning.bayesian.kernels import Array, geometry_of
from trainyard.insight.tuning.bayesian.kinship import reconciled
from trainyard.insight.tuning.bayesian.modelling import Modelling
from trainyard.insight.tuning.contract import Observation, State
from trainyard.insight.tuning.space import Space
from trainyard.testing.tuning import continuous

SPACE = Space([continuous("rate", 0.0, 1.0)])
THEIRS = [
    Observation({"rate": rate}, State.MEASURED, (rate - 0.3) ** 2, source="parent")
    for rate in np.linspace(0.0, 1.0, 15).tolist()
]


def own(*rates: float, factor: float = 1.0, offset: float = 0.0) -> list[Observation]:
    """Trials of a study whose function is that of its parent, of another size."""
    return [Observation({"rate": rate}, State.MEASURED, factor * (rate - 0.3) ** 2 + offset) for rate in rates]


def targets(history: list[Observation]) -> tuple[Evidence, Array]:
    evidence = evidence_of(SPACE, history, direction=Direction.MINIMIZE)
    generator = np.random.default_rng(0)
    found = reconciled(evidence, geometry_of([None], [False]), beliefs=Beliefs(), generator=generator)
    return found.evidence, found.targets


def test_a_study_without_parents_is_standardised() -> None:
    _, found = targets(own(0.1, 0.5, 0.9))
    np.testing.assert_allclose([found.mean(), found.std()], [0.0, 1.0], atol=1e-12)


def test_the_only_trial_of_a_study_is_as_good_as_its_parent_lets_expect_there() -> None:
    levels = []
    for rate in (0.3, 0.6, 1.0):
        evidence, found = targets([*THEIRS, *own(rate, factor=50.0, offset=-7.0)])
        levels.append(found[evidence.own][0])
    assert levels[0] + 0.1 < levels[1] < levels[2] - 0.5


@pytest.mark.parametrize(("factor", "offset"), [(1.0, 0.0), (3.0, 7.0), (0.2, -4.0)])
def test_trials_of_a_study_are_told_in_units_of_its_parent(factor: float, offset: float) -> None:
    rates = (0.2, 0.25, 0.35, 0.5, 0.6, 0.7)
    evidence, found = targets([*THEIRS, *own(*rates, factor=factor, offset=offset)])
    theirs = np.interp(rates, evidence.rows[~evidence.own][:, 0], found[~evidence.own])
    assert 0.8 < np.ptp(found[evidence.own]) / np.ptp(theirs) < 1.25
    assert np.array_equal(np.argsort(found[evidence.own]), np.argsort(evidence.losses[evidence.own]))


def test_trials_that_are_all_the_same_have_one_target() -> None:
    evidence, found = targets([*THEIRS, *own(0.4, 0.4, 0.4)])
    assert np.ptp(found[evidence.own]) == 0.0
    assert np.all(np.isfinite(found))


def test_a_parent_of_the_same_function_is_no_relative() -> None:
    evidence = evidence_of(SPACE, [*THEIRS, *own(0.3)], direction=Direction.MINIMIZE, alike=["parent"])
    assert np.all(evidence.own)
    assert evidence.mine.tolist() == [False] * 15 + [True]


@pytest.mark.parametrize(("is_noise", "expected"), [(False, False), (True, True)])
def test_relatives_that_foretell_nothing_of_the_study_are_left_out(is_noise: bool, expected: bool) -> None:
    chance = np.random.default_rng(0).permutation(len(THEIRS)) if is_noise else np.arange(len(THEIRS))
    theirs = [replace(each, value=THEIRS[index].value) for each, index in zip(THEIRS, chance, strict=True)]
    rates = (0.05, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95)
    evidence = evidence_of(SPACE, [*theirs, *own(*rates)], direction=Direction.MINIMIZE)
    modelling = Modelling(geometry_of([None], [False]), evidence, generator=np.random.default_rng(0))
    process = modelling.process()
    assert modelling.has_relatives is not expected
    assert len(process.points) == len(rates) + (0 if expected else len(THEIRS))

import numpy as np
import pytest

from benchmarks.tuning.ranking import ranks, standings


def test_the_engine_with_less_regret_has_the_better_rank() -> None:
    regrets = {"good": np.array([0.1, 0.2]), "bad": np.array([5.0, 6.0]), "fair": np.array([1.0, 2.0])}
    assert ranks(regrets) == {"good": 1.0, "fair": 2.0, "bad": 3.0}


def test_equal_regrets_share_a_rank() -> None:
    assert ranks({"one": np.array([0.0, 0.0]), "other": np.array([0.0])}) == {"one": 1.5, "other": 1.5}


def test_engines_with_fewer_studies_are_ranked_by_how_often_they_win() -> None:
    regrets = {"many": np.array([1.0, 1.0, 1.0, 3.0]), "few": np.array([2.0])}
    assert ranks(regrets) == {"many": 1.25, "few": 1.75}


def test_a_study_without_a_measured_trial_loses() -> None:
    assert ranks({"none": np.array([np.inf]), "some": np.array([1e9])}) == {"none": 2.0, "some": 1.0}


def test_an_engine_that_always_wins_is_surely_the_best() -> None:
    problems = [{"best": np.array([0.1, 0.2]), "other": np.array([1.0, 2.0])} for _ in range(5)]
    standing = standings(problems)
    assert standing["best"].rank == standing["best"].low == standing["best"].high == 1.0
    assert standing["best"].is_best == 1.0
    assert standing["other"].is_best == 0.0


def test_engines_that_do_alike_are_within_each_others_intervals() -> None:
    chance = np.random.default_rng(1)
    problems = [{name: chance.random(10) for name in ("one", "other")} for _ in range(8)]
    standing = standings(problems)
    assert standing["one"].low < standing["other"].rank < standing["one"].high
    assert standing["one"].rank + standing["other"].rank == pytest.approx(3.0)

import numpy as np
import pytest

from benchmarks.tuning.engines import Random
from benchmarks.tuning.functions import DEVELOPMENT, FINAL
from benchmarks.tuning.problem import Problem
from benchmarks.tuning.scales import from_unit, to_unit
from trainyard.insight.tuning.contract import Value

TEXTBOOK = {
    "branin": 0.397887,
    "hartmann6": -3.32237,
    "michalewicz5": -4.687658,
    "camel2_noisy": -1.031628,
    "goldstein_price2": 3.0,
    "shekel4": -10.536443,
}


@pytest.mark.parametrize("problem", [*DEVELOPMENT, *FINAL], ids=lambda problem: problem.name)
def test_nothing_is_less_than_the_least_value(problem: Problem) -> None:
    chance = Random(problem.ranges, seed=0, workers=1)
    near = np.random.default_rng(0)
    points = [chance.ask(number) for number in range(300)]
    points += [_beside(problem, near, 10.0**-power) for power in (1, 2, 3, 4) for _ in range(75)]
    values = [value for value in map(problem.truth, points) if value is not None]
    assert min(values) >= problem.least - 1e-9


def _beside(problem: Problem, chance: np.random.Generator, distance: float) -> dict[str, Value]:
    """The optimum with its numbers moved a little."""
    moved: dict[str, Value] = dict(problem.optimum)
    for each in problem.ranges:
        if not each.values:
            share = to_unit(each, float(problem.optimum[each.name]))
            moved[each.name] = from_unit(each, share + distance * float(chance.standard_normal()))
    return moved


@pytest.mark.parametrize("problem", [*DEVELOPMENT, *FINAL], ids=lambda problem: problem.name)
def test_an_optimum_is_within_the_ranges(problem: Problem) -> None:
    assert set(problem.optimum) == {each.name for each in problem.ranges}
    for each in problem.ranges:
        value = problem.optimum[each.name]
        assert value in each.values if each.values else each.low <= float(value) <= each.high


@pytest.mark.parametrize("name", TEXTBOOK)
def test_a_textbook_function_has_the_least_value_of_the_textbook(name: str) -> None:
    problem = next(each for each in (*DEVELOPMENT, *FINAL) if each.name == name)
    assert problem.least == pytest.approx(TEXTBOOK[name], abs=2e-6)


def test_no_function_is_for_development_and_for_the_final_table() -> None:
    assert {each.name for each in DEVELOPMENT} & {each.name for each in FINAL} == set()
    assert {each.truth for each in DEVELOPMENT} & {each.truth for each in FINAL} == set()


@pytest.mark.parametrize("problem", [each for each in (*DEVELOPMENT, *FINAL) if each.name.endswith("failing")])
def test_a_part_of_a_failing_problem_fails(problem: Problem) -> None:
    chance = Random(problem.ranges, seed=0, workers=1)
    failed = sum(problem.truth(chance.ask(number)) is None for number in range(400))
    assert 20 < failed < 200

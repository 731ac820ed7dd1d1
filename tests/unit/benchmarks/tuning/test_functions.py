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


def test_no_value_is_below_the_minimum_of_its_problem() -> None:
    for problem in (*DEVELOPMENT, *FINAL):
        chance = Random(problem.ranges, seed=0, workers=1)
        near = np.random.default_rng(0)
        points = [chance.ask(number) for number in range(300)]
        points += [_near_optimum(problem, near, 10.0**-power) for power in (1, 2, 3, 4) for _ in range(75)]
        values = [value for value in map(problem.truth, points) if value is not None]
        assert min(values) >= problem.least - 1e-9, problem.name


def _near_optimum(problem: Problem, chance: np.random.Generator, distance: float) -> dict[str, Value]:
    """Return the optimum with its numbers moved a little."""
    moved: dict[str, Value] = dict(problem.optimum)
    for each in problem.ranges:
        if not each.values:
            share = to_unit(each, float(problem.optimum[each.name]))
            moved[each.name] = from_unit(each, share + distance * float(chance.standard_normal()))
    return moved


def test_every_optimum_is_within_the_ranges() -> None:
    for problem in (*DEVELOPMENT, *FINAL):
        assert set(problem.optimum) == {each.name for each in problem.ranges}, problem.name
        for each in problem.ranges:
            value = problem.optimum[each.name]
            is_inside = value in each.values if each.values else each.low <= float(value) <= each.high
            assert is_inside, (problem.name, each.name, value)


def test_textbook_functions_have_the_minimum_of_the_textbook() -> None:
    least = {each.name: each.least for each in (*DEVELOPMENT, *FINAL) if each.name in TEXTBOOK}
    assert least == pytest.approx(TEXTBOOK, abs=2e-6)


def test_no_function_is_for_development_and_for_the_final_table() -> None:
    assert {each.name for each in DEVELOPMENT} & {each.name for each in FINAL} == set()
    assert {each.truth for each in DEVELOPMENT} & {each.truth for each in FINAL} == set()


@pytest.mark.parametrize("problem", [each for each in (*DEVELOPMENT, *FINAL) if each.name.endswith("failing")])
def test_a_part_of_a_failing_problem_fails(problem: Problem) -> None:
    chance = Random(problem.ranges, seed=0, workers=1)
    failed = sum(problem.truth(chance.ask(number)) is None for number in range(400))
    assert 20 < failed < 200

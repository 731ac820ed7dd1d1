from xml.etree import ElementTree

from benchmarks.tuning.comparison import median_rows, rank_rows
from benchmarks.tuning.drawing import picture
from benchmarks.tuning.functions import DEVELOPMENT
from benchmarks.tuning.running import EVALUATIONS, Line, digest
from benchmarks.tuning.studies import Results, gather

BRANIN = next(each for each in DEVELOPMENT if each.name == "branin")


def _results(*lines: Line) -> Results:
    return gather(lines, [BRANIN])


def _line(engine: str, seed: int, regret: float | None) -> Line:
    study = {"engine": engine, "version": "1", "problem": "branin", "digest": digest(BRANIN), "mode": "parallel"}
    return {**study, "seed": seed, "regret": [None, *[regret] * (EVALUATIONS - 1)]}


def test_the_best_engine_is_first_and_its_median_is_emphasised() -> None:
    results = _results(
        *(_line("random", seed, 2.0) for seed in (1, 2)), *(_line("optuna-gp", seed, 0.5) for seed in (1, 2))
    )
    _, _, first, second = rank_rows(results, {"all": ["branin"]}, "parallel")
    assert first == "| Optuna GP | 1.00 | 1.00 to 1.00 | 100 % | 2 |"
    assert second.startswith("| random | 2.00 |")
    assert (
        median_rows(results, ["branin"], "parallel", engines=["random", "optuna-gp"])[-1] == "| branin | 2 | **0.5** |"
    )


def test_an_engine_without_results_for_a_problem_is_left_out() -> None:
    results = _results(_line("random", 1, 2.0))
    assert results.engines(["branin"], "parallel") == ["random"]
    assert results.engines(["branin"], "sequential") == []


def test_a_study_that_never_measured_anything_counts_as_infinitely_bad() -> None:
    results = _results(_line("random", 1, None), _line("optuna-gp", 1, 1e6))
    assert "| Optuna GP | 1.00 |" in rank_rows(results, {"all": ["branin"]}, "parallel")[2]


def test_a_picture_names_every_curve_and_draws_all_its_points() -> None:
    drawn = ElementTree.fromstring(
        picture("Regret", {"a < b": [1.0, 0.1, 0.01], "c": [2.0, 1.0, 0.5]}, across="trials")
    )
    words = [each.text for each in drawn.iter("{http://www.w3.org/2000/svg}text")]
    lines = [each.attrib["points"].split() for each in drawn.iter("{http://www.w3.org/2000/svg}polyline")]
    assert {"Regret", "a < b", "c", "trials"} <= set(words)
    assert [len(points) for points in lines] == [3, 3]

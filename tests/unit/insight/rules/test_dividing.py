"""Which rules are judged where."""

import pytest

from trainyard.insight.rules.catalog import make_rule
from trainyard.insight.rules.dividing import is_judged_beside


@pytest.mark.parametrize("word", ["VanishingGradient", "NotANumber", "LossNotDecreasing"])
def test_what_the_statistics_of_one_worker_tell_is_judged_in_its_process(word: str) -> None:
    assert not is_judged_beside(make_rule(word, {}))


@pytest.mark.parametrize(
    ("word", "parameters"),
    [
        ("StalledTrainingRule", {}),  # waits
        ("ReplicaDivergence", {}),  # compares workers
        ("SimilarAcrossRuns", {"other_trials": "s3://yard/old"}),
        ("CreateXgboostReport", {}),  # writes files
        ("WeightUpdateRatio", {"num_steps": "5"}),  # needs raw values
    ],
)
def test_what_one_process_cannot_judge_is_judged_beside_it(word: str, parameters: dict[str, str]) -> None:
    assert is_judged_beside(make_rule(word, parameters))

"""Which rules are judged where."""

import pytest

from trainyard.insight.rules.catalog import make_rule
from trainyard.insight.rules.contract import needs_own_process


@pytest.mark.parametrize("word", ["VanishingGradient", "NotANumber", "LossNotDecreasing"])
def test_what_the_statistics_of_one_worker_tell_is_judged_in_its_process(word: str) -> None:
    assert not needs_own_process(make_rule(word, {}))


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
    assert needs_own_process(make_rule(word, parameters))

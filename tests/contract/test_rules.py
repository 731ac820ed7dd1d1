"""Rules evaluate real trainings recorded by the real hook: they find the faults and raise no false alarms."""

import json
from pathlib import Path

import pytest

from benchmarks.rule_table import Found, all_subjects, examine, rules_for
from trainyard.foundation.jobs.status import RuleStatus
from trainyard.insight.rules.catalog import make_rule
from trainyard.insight.rules.contract import DebuggerRule, WritesFiles, needs_own_process
from trainyard.insight.rules.evaluation import RuleEvaluator
from trainyard.insight.rules.parameters import Defaults
from trainyard.testing.trainings.boosting import BOOSTED
from trainyard.testing.trainings.faults import FAULTS
from trainyard.testing.trainings.recorded import HookWatch, evaluate_rules, record_boosted

SUBJECTS = {subject.name: subject for subject in all_subjects()}


def found_in(name: str, seeds: int = 1) -> list[Found]:
    """Return what the recommended defaults find in a training of the set, or in one of its faulty variants."""
    return [each for each in examine(SUBJECTS[name], seeds).found if each.defaults is Defaults.ADVISED]


@pytest.mark.parametrize("name", ["regression", "boosted_tumours", "replicas"])
def test_healthy_trainings_raise_no_alarm(name: str) -> None:
    assert found_in(name) == []


@pytest.mark.parametrize(
    ("fault", "rule", "latest"),
    [
        ("poisoned_batch", "NotANumber", 120),
        ("outlier_batch", "LossSpike", 150),
        pytest.param("unknown_words", "DeadEmbedding", 100, marks=pytest.mark.slow),
        ("altered_replica", "ReplicaDivergence", 100),
        ("deep_trees", "TreeDepth", 0),
        pytest.param("leaking_feature", "FeatureImportanceOverweight", 19, marks=pytest.mark.slow),
        pytest.param("mistaken_digits", "Confusion", 5, marks=pytest.mark.slow),
    ],
)
def test_a_fault_is_found_when_it_occurs_and_not_before(fault: str, rule: str, latest: int) -> None:
    (found,) = [each for each in found_in(fault) if each.rule == rule]
    assert SUBJECTS[fault].step <= found.step <= latest


@pytest.mark.slow
def test_a_run_that_repeats_another_is_found() -> None:
    assert {each.rule for each in found_in("fixed_seed", seeds=2)} == {"SimilarAcrossRuns"}


def test_a_rule_finds_the_same_in_the_training_process_and_in_its_recording(tmp_path: Path) -> None:
    rules = statistical_rules("negative_biases")
    living = RuleEvaluator(rules)
    watch = HookWatch(tmp_path, rules.values(), subscribers=[living])
    FAULTS["negative_biases"].run(0, watch=watch)
    watch.close()
    recorded = evaluate_rules(tmp_path, statistical_rules("negative_biases"))
    assert living.evaluations == recorded
    assert sum(len(evaluation.findings) for evaluation in recorded) >= 3


def test_the_report_on_a_booster_shows_its_run_and_its_notebook_reads_the_tensors(tmp_path: Path) -> None:
    rule = make_rule("CreateXgboostReport", {})
    record_boosted(BOOSTED["digits"], 0, folder=tmp_path, rules=[rule])
    (evaluation,) = evaluate_rules(tmp_path, {"report": rule})
    assert evaluation.status is RuleStatus.NO_ISSUES_FOUND
    assert isinstance(rule, WritesFiles)
    files = rule.files()
    page = files["xgboost_report.html"]
    assert "20 rounds" in page
    assert "<td>max_depth</td><td>6</td>" in page
    assert "of 359 samples are predicted correctly" in page
    # A metric, five kinds of importance, and a matrix.
    assert page.count("<svg") == 1 + 5 + 1
    cells = json.loads(files["xgboost_report.ipynb"])["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    names: dict[str, object] = {}
    exec(code.replace('"tensors"', repr(str(tmp_path))), names)
    assert len(names["labels"]) == len(names["predictions"]) == 359  # type: ignore[arg-type]


def statistical_rules(name: str) -> dict[str, DebuggerRule]:
    """Return the rules that the training process evaluates itself."""
    rules = rules_for(SUBJECTS[name])
    return {each: rule for each, rule in rules.items() if not needs_own_process(rule)}

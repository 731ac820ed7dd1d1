"""Rules run in the training process, on the hook's own thread: what they find, and at which step."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from torch import nn

from trainyard.foundation.jobs.status import RuleStatus
from trainyard.insight.rules.catalog import make_rule
from trainyard.insight.rules.contract import DebuggerRule, Evaluation
from trainyard.insight.rules.evaluation import RuleEvaluator
from trainyard.testing.trainings import TRAININGS
from trainyard.testing.trainings.faults import data, optimisation, weights
from trainyard.testing.trainings.recorded import HookWatch, evaluate_rules
from trainyard.testing.trainings.training import SampleTraining
from trainyard.testing.trainings.training_loop import Setup

FOUR_RULES = ("VanishingGradient", "Overfit", "Overtraining", "PoorWeightInitialization")

Rules = Mapping[str, DebuggerRule]
Change = Callable[[Setup], Setup]


def judged(folder: Path, training: str, rules: Rules, *, change: Change, epochs: int = 1) -> Mapping[str, Evaluation]:
    """Return the rule states after this many epochs of a training with a change."""

    def prepare(seed: int) -> Setup:
        return replace(change(TRAININGS[training].prepare(seed)), epochs=epochs)

    living = RuleEvaluator(rules, counts_gaps=True)
    watch = HookWatch(folder, rules.values(), subscribers=[living])
    SampleTraining(training, prepare).run(0, watch=watch)
    watch.close()
    return {evaluation.rule: evaluation for evaluation in living.evaluations}


def healthy(setup: Setup) -> Setup:
    return setup


def with_a_layer_reset(setup: Setup) -> Setup:
    nn.init.zeros_(setup.model.block2.conv.weight)
    return setup


def test_four_rules_with_awss_defaults_find_nothing_in_a_healthy_fine_tuning(tmp_path: Path) -> None:
    rules = {name: make_rule(name, {}) for name in FOUR_RULES}
    evaluations = judged(tmp_path, "fine_tuning", rules, change=healthy, epochs=4)
    found_nothing = dict.fromkeys(FOUR_RULES, RuleStatus.NO_ISSUES_FOUND)
    assert {name: each.status for name, each in evaluations.items()} == found_nothing
    # All had tensors to evaluate, and no step was lost.
    assert [each.details for each in evaluations.values()] == [""] * 4


def test_a_layer_whose_weights_are_reset_is_found_in_the_first_step(tmp_path: Path) -> None:
    rules = {"rule": make_rule("PoorWeightInitialization", {})}
    evaluation = judged(tmp_path, "fine_tuning", rules, change=with_a_layer_reset)["rule"]
    assert evaluation.status is RuleStatus.ISSUES_FOUND
    assert (evaluation.findings[0].step, evaluation.findings[0].module) == (0, "block2.relu")


def test_a_poisoned_batch_is_named_in_its_step_and_again_in_a_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "POISONED_STEP", 5)
    rules = {"rule": make_rule("NotANumber", {})}
    (live, *_) = judged(tmp_path, "cnn", rules, change=data.poisoned_batch)["rule"].findings
    assert (live.step, live.worker, live.tensor) == (5, "worker_0", "Convolutional_input_0")
    assert "they are in the batch" in live.message
    (replayed,) = evaluate_rules(tmp_path, {"rule": make_rule("NotANumber", {})})
    assert (replayed.findings[0].step, replayed.findings[0].message) == (live.step, live.message)


def test_a_gradient_that_becomes_nan_is_traced_to_the_backward_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "EPSILON_STEP", 5)
    rules = {"rule": make_rule("NotANumber", {})}
    (finding, *_) = judged(tmp_path, "cnn", rules, change=weights.lost_epsilon)["rule"].findings
    assert (finding.step, finding.module) == (5, "block2.norm")
    assert "the first in the backward pass" in finding.message
    assert "dropout.norm" in finding.message


@pytest.mark.parametrize(
    ("training", "change", "rule", "step", "tensor"),
    [
        ("mlp", optimisation.forgotten_layer, "WeightUpdateRatio", 11, "Perceptron_layer1.linear.weight"),
        ("mlp", optimisation.high_learning_rate, "LearningRateTooHigh", 4, "Perceptron_output.weight"),
        ("mlp", weights.negative_biases, "DeadRelu", 9, "layer1.relu_output_0"),
        ("mlp", weights.huge_layer, "PoorWeightInitialization", 0, "layer1.relu_input_0"),
        ("regression", weights.saturated_tanh, "SaturatedActivation", 9, "layer1.tanh_input_0"),
    ],
)
def test_a_faulty_twin_is_found_with_the_advised_defaults(
    tmp_path: Path, training: str, change: Change, rule: str, step: int, tensor: str
) -> None:
    rules = {"rule": make_rule(rule, {"defaults": "advised"})}
    evaluation = judged(tmp_path, training, rules, change=change)["rule"]
    assert evaluation.status is RuleStatus.ISSUES_FOUND
    (finding, *_) = evaluation.findings
    assert (finding.step, finding.tensor) == (step, tensor)
    assert finding.value is not None
    assert finding.evidence[0].values

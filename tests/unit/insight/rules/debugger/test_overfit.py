from collections.abc import Sequence

import numpy as np
import pytest

from tests.unit.insight.rules.steps import Run, found_by, losses
from trainyard.formats.tensors.contract import Mode, Step

LOSS = "CrossEntropyLoss_output_0"


def epochs(training: Sequence[Sequence[float]], validation: Sequence[Sequence[float]]) -> list[Step]:
    run = Run()
    return [
        step
        for learned, evaluated in zip(training, validation, strict=True)
        for step in losses(learned, run=run) + losses(evaluated, mode=Mode.EVAL, run=run)
    ]


def test_a_validation_loss_far_above_the_training_loss_is_found_after_its_evaluation() -> None:
    (finding,) = found_by("Overfit", epochs([[1.0] * 4, [0.5] * 4], [[1.0] * 2, [1.0] * 2]))
    assert (finding.tensor, finding.step, finding.mode) == (LOSS, 11, Mode.EVAL)
    assert finding.value == pytest.approx((1.0 - 0.75) / 0.75)
    assert finding.threshold == 0.1
    assert list(finding.evidence[0].values) == pytest.approx([0.0, 1 / 3])


def test_a_gap_within_the_ratio_is_not_found() -> None:
    assert found_by("Overfit", epochs([[1.0] * 4], [[1.09] * 2])) == []


def test_a_gap_that_the_noise_of_the_batches_explains_is_not_found() -> None:
    noise = np.random.default_rng(1).normal(0, 0.3, 24)
    noisy = [float(1 + each) for each in noise]
    assert found_by("Overfit", epochs([noisy[:20]], [[1.2, 1.25]])) == []
    assert found_by("Overfit", epochs([[1.0] * 20], [[1.2, 1.25]])) != []


def test_patience_asks_for_evaluations_on_end() -> None:
    steps = epochs([[1.0] * 4] * 3, [[2.0] * 2] * 3)
    assert [finding.step for finding in found_by("Overfit", steps, patience="3")] == [17]


def test_what_ended_before_the_start_step_is_not_judged() -> None:
    steps = epochs([[0.1] * 4, [1.0] * 4], [[2.0] * 2, [1.0] * 2])
    assert found_by("Overfit", steps) != []
    assert found_by("Overfit", steps, start_step="6") == []


def test_a_training_without_evaluation_is_not_judged() -> None:
    assert found_by("Overfit", losses([1.0] * 20)) == []


def test_xgboost_tells_both_losses_at_each_step() -> None:
    run = Run()
    steps = [run.step({"train-rmse": 1.0 / (step + 1), "validation-rmse": 1.0}) for step in range(3)]
    findings = found_by("Overfit", steps)
    assert [(finding.tensor, finding.step) for finding in findings] == [("rmse", 1), ("rmse", 2)]


def test_losses_can_be_named_by_regexes() -> None:
    run = Run()
    steps = [run.step({"scalar/error": 0.5})]
    steps += [run.step({"scalar/error": 1.0}, mode=Mode.EVAL)]
    assert found_by("Overfit", steps) == []
    assert found_by("Overfit", steps, tensor_regex="error") != []


@pytest.mark.parametrize(("validation", "is_found"), [(2.4, False), (2.6, True)])
def test_a_gap_that_may_be_the_noise_of_few_batches_is_not_found(validation: float, is_found: bool) -> None:
    noisy = [0.5, 1.5] * 50  # whose single losses are 0.71 off, so that 1.1 is exceeded for sure from 2.52 on
    assert bool(found_by("Overfit", epochs([noisy], [[validation]]))) is is_found

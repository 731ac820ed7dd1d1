from collections.abc import Sequence

import pytest

from tests.unit.insight.rules.steps import Run, found_by, losses
from trainyard.formats.tensors.contract import Mode, Step

LOSS = "CrossEntropyLoss_output_0"


def epochs(training: Sequence[float], validation: Sequence[float]) -> list[Step]:
    run = Run()
    return [
        step
        for learned, evaluated in zip(training, validation, strict=True)
        for step in losses([learned, learned], run=run) + losses([evaluated], mode=Mode.EVAL, run=run)
    ]


def falling(count: int) -> list[float]:
    return [1.0 - 0.02 * step for step in range(count)]


def test_a_training_loss_without_a_new_best_for_five_phases_is_found() -> None:
    findings = found_by("Overtraining", epochs([1.0, 0.5] + [0.495] * 5, falling(7)))
    assert [(finding.tensor, finding.mode, finding.step) for finding in findings] == [(LOSS, Mode.TRAIN, 19)]
    assert "best at step 4, with 0.5" in findings[0].message
    assert " training " in findings[0].message
    assert (findings[0].value, findings[0].threshold) == (5, 5)


def test_a_validation_loss_without_a_new_best_for_ten_evaluations_is_found_at_the_end() -> None:
    (finding,) = found_by("Overtraining", epochs(falling(12), [0.8, 0.6] + [0.6] * 10))
    assert (finding.mode, finding.step, finding.value) == (Mode.EVAL, 35, 10)
    assert " validation " in finding.message


def test_losses_that_get_better_are_not_found() -> None:
    assert found_by("Overtraining", epochs(falling(30), falling(30))) == []


def test_single_batches_without_a_new_best_are_not_found() -> None:
    run = Run()
    steps = losses([0.5] + [0.9] * 40, run=run) + losses([0.5], mode=Mode.EVAL, run=run)
    assert found_by("Overtraining", steps) == []


def test_a_loss_that_stays_is_no_finding_with_the_advised_defaults() -> None:
    assert found_by("Overtraining", epochs([0.1] * 15, [0.6] * 15), defaults="advised") == []


def test_a_validation_loss_that_rises_again_is_found_with_the_advised_defaults() -> None:
    rising = [0.6 + 0.02 * step for step in range(14)]
    (finding, *_) = found_by("Overtraining", epochs([0.1] * 14, rising), defaults="advised")
    assert (finding.mode, finding.step) == (Mode.EVAL, 32)
    assert "they were 18% above it on average" in finding.message


def test_a_program_that_never_evaluates_has_phases_of_five_hundred_steps() -> None:
    found = found_by("Overtraining", losses([1.0] * 500 + [0.5] * 3001))
    assert [finding.step for finding in found] == [3499, 3500]


@pytest.mark.parametrize("delta", ["0.001", "0.5"])
def test_delta_is_what_a_new_best_must_be_better_by(delta: str) -> None:
    found = found_by("Overtraining", epochs(falling(8), falling(8)), delta=delta)
    assert bool(found) == (delta == "0.5")

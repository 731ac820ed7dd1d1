from collections.abc import Sequence

import numpy as np
import pytest

from tests.unit.insight.rules.steps import Run, found_by
from trainyard.formats.tensors.contract import Step
from trainyard.insight.rules.updates import MOVED

WEIGHTS = [f"Net_fc{number}.weight" for number in range(3)]


def moved(steps: Sequence[Sequence[float]], *, trained: Sequence[str] = WEIGHTS) -> list[Step]:
    run, one = Run(), np.ones((2, 2))
    tensors = dict.fromkeys(WEIGHTS, one) | {f"gradient/{name}": one for name in trained}
    return [
        run.step(tensors, measures={(name, MOVED): move for name, move in zip(WEIGHTS, moves, strict=True)})
        for moves in steps
    ]


def test_updates_that_move_most_weights_too_far_are_found_at_the_third_step() -> None:
    (finding,) = found_by("LearningRateTooHigh", moved([[0.01] * 3, *[[0.05, 0.2, 0.5]] * 3]))
    assert (finding.step, finding.tensor, finding.threshold) == (3, "Net_fc2.weight", 0.1)
    assert finding.value == pytest.approx(0.2)
    assert list(finding.evidence[0].values) == pytest.approx([0.01, 0.2, 0.2, 0.2])


def test_one_weight_that_moves_far_is_not_enough() -> None:
    assert found_by("LearningRateTooHigh", moved([[0.01, 0.01, 5.0]] * 10)) == []


def test_half_of_the_weights_are_not_enough() -> None:
    # The second matrix of each low-rank adapter begins at zero, and its first update is all it is.
    assert found_by("LearningRateTooHigh", moved([[0.01, 1.0, np.nan], [0.01, 0.5, np.nan], [0.01, 0.3, np.nan]])) == []


def test_a_pause_is_a_new_beginning() -> None:
    far, near = [0.5] * 3, [0.01] * 3
    assert found_by("LearningRateTooHigh", moved([far, far, near, far, far])) == []


def test_weights_that_are_not_trained_do_not_count() -> None:
    assert found_by("LearningRateTooHigh", moved([[0.0, 0.0, 0.5]] * 3)) == []
    assert found_by("LearningRateTooHigh", moved([[0.0, 0.0, 0.5]] * 3, trained=WEIGHTS[2:])) != []

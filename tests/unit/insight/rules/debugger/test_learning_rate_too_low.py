from collections.abc import Sequence

import numpy as np
import pytest

from tests.unit.insight.rules.steps import Run, found_by
from trainyard.formats.tensors.contract import Step
from trainyard.insight.rules.updates import MOVED

FAST, SLOW = "Net_fc1.weight", "Net_fc2.weight"


def moved(fastest: Sequence[float]) -> list[Step]:
    run, one = Run(), np.ones((2, 2))
    tensors = {FAST: one, SLOW: one, f"gradient/{FAST}": one, f"gradient/{SLOW}": one}
    return [run.step(tensors, measures={(FAST, MOVED): move, (SLOW, MOVED): move / 10}) for move in fastest]


def test_updates_that_move_nothing_are_found_at_the_fiftieth() -> None:
    (finding,) = found_by("LearningRateTooLow", moved([1e-3] + [3e-7] * 50))
    assert (finding.step, finding.tensor, finding.threshold) == (50, FAST, 1e-5)
    assert finding.value == pytest.approx(3e-7)


def test_one_weight_that_moves_is_enough_not_to_be_found() -> None:
    assert found_by("LearningRateTooLow", moved([1.1e-5] * 200)) == []


def test_a_warm_up_is_not_found() -> None:
    assert found_by("LearningRateTooLow", moved([1e-8 * step for step in range(49)] + [1e-3] * 60)) == []


def test_weights_whose_updates_are_not_known_are_not_judged() -> None:
    assert found_by("LearningRateTooLow", moved([np.nan] * 60)) == []

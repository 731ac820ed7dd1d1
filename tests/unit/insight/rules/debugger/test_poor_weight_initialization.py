from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from numpy.typing import ArrayLike

from tests.unit.insight.rules.steps import Run, found_by
from trainyard.formats.tensors.contract import Mode, Probe, Step
from trainyard.insight.rules.debugger.poor_weight_initialization import RANGE

LOSS, GRADIENT = "CrossEntropyLoss_output_0", "gradient/Net_fc1.weight"
FIRST, SECOND = "layer1.relu_input_0", "layer2.relu_input_0"
SPREAD = np.array([[-1.0, 1.0], [1.0, -1.0]])
HEALTHY: Mapping[str, ArrayLike] = {FIRST: SPREAD, SECOND: SPREAD * 2, "Net_fc1.weight": SPREAD, GRADIENT: SPREAD}


def begins(
    losses: Sequence[float], *, gradient_range: float = 0.01, mode: Mode = Mode.TRAIN, **changed: ArrayLike
) -> list[Step]:
    run = Run()
    tensors = {**HEALTHY, **{NAMES[name]: value for name, value in changed.items()}}
    measures: dict[tuple[str, Probe], float] = {(GRADIENT, RANGE): gradient_range}
    return [run.step({**tensors, LOSS: loss}, measures=measures, mode=mode) for loss in losses]


NAMES = {"first": FIRST, "second": SECOND, "weight": "Net_fc1.weight", "gradient": GRADIENT}
FALLING = [2.0 - 0.1 * step for step in range(10)]


def test_inputs_whose_variances_are_too_different_are_found_at_once() -> None:
    finding, *_ = found_by("PoorWeightInitialization", begins(FALLING, second=SPREAD * 4))
    assert (finding.tensor, finding.module, finding.step, finding.threshold) == (FIRST, "layer1.relu", 0, 10)
    assert finding.value == pytest.approx(16)


def test_inputs_that_do_not_vary_at_all_are_found() -> None:
    finding, *_ = found_by("PoorWeightInitialization", begins(FALLING, second=np.zeros((2, 2))))
    assert (finding.tensor, finding.value) == (SECOND, np.inf)


def test_a_gradient_that_is_too_narrow_is_found() -> None:
    finding, *_ = found_by("PoorWeightInitialization", begins(FALLING, gradient_range=0.0005))
    assert (finding.tensor, finding.step, finding.threshold) == (GRADIENT, 0, 0.001)
    assert finding.value == pytest.approx(0.0005)


def test_a_loss_that_does_not_fall_is_found_after_ten_steps() -> None:
    (finding,) = found_by("PoorWeightInitialization", begins([2.3] * 30))
    assert (finding.tensor, finding.step) == (LOSS, 9)


def test_weights_that_are_all_the_same_are_found() -> None:
    finding, *_ = found_by("PoorWeightInitialization", begins(FALLING, weight=np.full((2, 2), 0.01)))
    assert (finding.tensor, finding.step) == ("Net_fc1.weight", 0)


def test_a_healthy_beginning_is_not_found() -> None:
    assert found_by("PoorWeightInitialization", begins(FALLING)) == []


def test_weights_of_zero_alone_are_no_finding() -> None:
    # The last layer of a residual branch and the second of a low-rank adapter begin so, and learn well.
    assert found_by("PoorWeightInitialization", begins(FALLING, weight=np.zeros((2, 2)))) == []


def test_a_noisy_loss_is_not_found() -> None:
    assert found_by("PoorWeightInitialization", begins([2.3, 2.2, 2.4, 2.3, 2.1, 2.4, 2.2, 2.3, 2.35, 2.25])) == []


def test_what_comes_after_the_first_steps_is_not_judged() -> None:
    run = Run()
    steps = [run.step({**HEALTHY, LOSS: loss}) for loss in FALLING]
    steps += [run.step({**HEALTHY, SECOND: SPREAD * 100, LOSS: 1.0}) for _ in range(10)]
    assert found_by("PoorWeightInitialization", steps) == []


def test_the_gradient_of_an_embedding_of_which_few_rows_are_used_is_not_found() -> None:
    sparse = np.zeros((20, 2))
    sparse[0] = 1.0
    assert found_by("PoorWeightInitialization", begins(FALLING, gradient=sparse, gradient_range=0.0)) == []
    nothing = found_by("PoorWeightInitialization", begins(FALLING, gradient=np.zeros((20, 2)), gradient_range=0.0))
    assert nothing[0].tensor == GRADIENT


def test_a_gradient_that_is_narrow_at_first_is_not_found_with_the_advised_defaults() -> None:
    run = Run()
    steps = [run.step({**HEALTHY, LOSS: loss}, measures={(GRADIENT, RANGE): 0.0}) for loss in FALLING[:2]]
    steps += [run.step({**HEALTHY, LOSS: loss}, measures={(GRADIENT, RANGE): 0.01}) for loss in FALLING[2:]]
    assert found_by("PoorWeightInitialization", steps, defaults="advised") == []
    found = found_by("PoorWeightInitialization", begins(FALLING, gradient_range=0.0), defaults="advised")
    assert found[0].step == 2


def test_evaluations_are_not_judged() -> None:
    assert found_by("PoorWeightInitialization", begins(FALLING, second=SPREAD * 9, mode=Mode.EVAL)) == []

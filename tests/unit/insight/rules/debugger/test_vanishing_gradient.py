from collections.abc import Sequence

import numpy as np
import pytest

from tests.unit.insight.rules.steps import Run, found_by
from trainyard.formats.tensors.contract import Mode, Step

GRADIENT = "gradient/Net_fc1.weight"
BIAS = "gradient/Net_fc1.bias"


def run_with(magnitudes: Sequence[float | None], mode: Mode = Mode.TRAIN) -> list[Step]:
    run = Run()
    return [
        run.step({GRADIENT: None if size is None else np.array([[size, -size]]), BIAS: np.ones(2)}, mode=mode)
        for size in magnitudes
    ]


def test_a_gradient_under_the_threshold_is_found_at_that_step() -> None:
    (finding,) = found_by("VanishingGradient", run_with([1e-2, 1e-5, 9e-8, 1e-3]))
    assert (finding.tensor, finding.step, finding.worker, finding.module) == (GRADIENT, 2, "worker_0", "fc1")
    assert finding.value == pytest.approx(9e-8)
    assert finding.threshold == 1e-7
    assert "9.0e-08, under 1e-07" in finding.message


def test_the_evidence_is_what_the_gradient_was_before() -> None:
    (finding,) = found_by("VanishingGradient", run_with([1e-2, 1e-5, 9e-8]))
    (evidence,) = finding.evidence
    assert list(evidence.steps) == [0, 1, 2]
    assert list(evidence.values) == pytest.approx([1e-2, 1e-5, 9e-8])


def test_a_gradient_at_the_threshold_is_not_found() -> None:
    assert found_by("VanishingGradient", run_with([0.5, 0.5]), threshold="0.5") == []


def test_patience_asks_for_so_many_steps_on_end() -> None:
    steps = [1e-8, 1e-8, 1e-2, 1e-8, None, 1e-8, 1e-8]
    assert [finding.step for finding in found_by("VanishingGradient", run_with(steps), patience="3")] == [6]


def test_a_gradient_that_was_not_looked_at_is_not_found() -> None:
    assert found_by("VanishingGradient", run_with([None, None])) == []


def test_only_steps_that_train_are_judged() -> None:
    assert found_by("VanishingGradient", run_with([1e-9], mode=Mode.EVAL)) == []


def test_a_bias_beside_a_matrix_is_not_found() -> None:
    # The gradient of a bias before a normalisation is nothing but rounding, in the healthiest of trainings.
    steps = [Run().step({GRADIENT: np.ones((2, 2)), BIAS: np.full(2, 1e-10)})]
    assert found_by("VanishingGradient", steps) == []


def test_a_vector_that_is_all_its_module_has_is_found() -> None:
    steps = [Run().step({GRADIENT: np.ones((2, 2)), "gradient/Net_norm.weight": np.full(2, 1e-10)})]
    assert [finding.tensor for finding in found_by("VanishingGradient", steps)] == ["gradient/Net_norm.weight"]


def test_the_worst_of_many_is_told_first_and_says_how_many_there_are() -> None:
    run = Run()
    gradients = {f"gradient/Net_{layer}.weight": np.full((2, 2), 10.0 ** -(8 + layer)) for layer in range(30)}
    findings = found_by("VanishingGradient", [run.step(gradients)])
    assert findings[0].tensor == "gradient/Net_29.weight"
    assert "29 others are as bad" in findings[0].message
    assert len(findings) == 16

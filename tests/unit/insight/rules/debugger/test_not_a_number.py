from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import ArrayLike

from tests.unit.insight.rules.steps import Run, found_by
from trainyard.formats.tensors.contract import Step
from trainyard.insight.rules.contract import Finding, Severity

ONE = np.ones((2, 2))
BAD = np.array([[1.0, np.nan], [1.0, 1.0]])
FORWARD = [f"{module}_{side}_0" for module in ("conv", "relu", "norm", "head") for side in ("input", "output")]
PARAMETERS = ["Net_conv.weight", "Net_norm.weight", "Net_head.weight"]
LOSS = "CrossEntropyLoss_output_0"
NAMES = [*PARAMETERS, *FORWARD, *(f"gradient/{name}" for name in PARAMETERS)]


def step(run: Run, bad: Mapping[str, ArrayLike] | None = None, *, loss: float = 0.5) -> Step:
    return run.step({**dict.fromkeys(NAMES, ONE), LOSS: loss, **(bad or {})})


def found(bad: Mapping[str, ArrayLike], *, loss: float = np.nan, **parameters: str) -> list[Finding]:
    run = Run("worker_3")
    return found_by("NotANumber", [step(run), step(run, bad, loss=loss)], **parameters)


def everything_from(first: str) -> Mapping[str, ArrayLike]:
    return dict.fromkeys(FORWARD[FORWARD.index(first) :], BAD) | {f"gradient/{name}": BAD for name in PARAMETERS}


def test_the_module_whose_output_was_first_is_found_with_step_pass_and_rank() -> None:
    (finding,) = found(everything_from("norm_output_0"))
    assert (finding.tensor, finding.module, finding.step, finding.worker) == ("norm_output_0", "norm", 1, "worker_3")
    assert "In step 1 of worker_3, 1 of the 4 elements of norm_output_0 are NaN or infinite" in finding.message
    assert "the first in the forward pass" in finding.message
    assert "the module norm produced them" in finding.message
    assert (finding.severity, finding.value, finding.threshold) == (Severity.CRITICAL, 1.0, 0.0)
    assert list(finding.evidence[0].values) == [0.5, pytest.approx(np.nan, nan_ok=True)]


def test_a_batch_that_brings_nan_is_found() -> None:
    (finding,) = found(everything_from("conv_input_0"))
    assert (finding.tensor, finding.module) == ("conv_input_0", "conv")
    assert "they are in the batch" in finding.message


def test_an_operation_between_modules_is_found() -> None:
    (finding,) = found(everything_from("norm_input_0"))
    assert "an operation before it that is not a module produced them" in finding.message


def test_a_weight_that_was_nan_before_the_step_is_found() -> None:
    (finding,) = found({**everything_from("norm_output_0"), "Net_norm.weight": BAD})
    assert (finding.tensor, finding.module) == ("Net_norm.weight", "norm")
    assert "the previous update or the program produced them" in finding.message


def test_an_overflow_is_found_as_the_cause_of_the_nan_after_it() -> None:
    (finding,) = found({**everything_from("norm_output_0"), "relu_output_0": np.array([[np.inf, 0], [0, 0]])})
    assert finding.tensor == "relu_output_0"


def test_a_loss_function_is_found() -> None:
    (finding,) = found({f"gradient/{name}": BAD for name in PARAMETERS})
    assert finding.tensor == LOSS
    assert "the loss function produced them" in finding.message


def test_the_backward_pass_is_found_with_the_modules_that_it_can_be() -> None:
    (finding,) = found({"gradient/Net_conv.weight": BAD}, loss=0.5)
    assert (finding.tensor, finding.module) == ("gradient/Net_conv.weight", "conv")
    assert "the first in the backward pass, while the forward pass and its loss are finite" in finding.message
    assert "(relu, norm)" in finding.message


def test_masked_scores_are_not_found() -> None:
    assert found({"norm_input_0": np.array([[1.0, -np.inf], [1.0, 1.0]])}, loss=0.5) == []


def test_a_trouble_that_lasts_is_found_once() -> None:
    run = Run()
    bad = everything_from("norm_output_0")
    steps = [step(run), step(run, bad, loss=np.nan), step(run, bad, loss=np.nan), step(run), step(run, bad)]
    assert [finding.step for finding in found_by("NotANumber", steps)] == [1, 4]


def test_gradients_of_a_scaled_loss_may_overflow_for_a_step() -> None:
    run = Run()
    bad = {"gradient/Net_conv.weight": np.full((2, 2), np.inf)}
    steps = [step(run, bad), step(run), step(run, bad), step(run, bad), step(run, bad)]
    assert [finding.step for finding in found_by("NotANumber", steps, gradient_patience="3")] == [4]


def test_without_activations_the_weights_and_the_loss_are_still_found() -> None:
    run = Run()
    (finding,) = found_by("NotANumber", [run.step({"Net_norm.weight": BAD, LOSS: np.nan})], activations="False")
    assert finding.tensor == "Net_norm.weight"


@pytest.mark.parametrize("name", [LOSS, "Net_conv.weight", "Net_conv.bias", "gradient/Net_conv.weight"])
def test_losses_weights_biases_and_gradients_are_looked_at(name: str) -> None:
    assert [each.tensor for each in found_by("NotANumber", [Run().step({LOSS: 0.5, name: np.nan})])] == [name]

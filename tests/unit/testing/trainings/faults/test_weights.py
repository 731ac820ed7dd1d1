import math

import torch

from tests.unit.testing.trainings.step_capture import capture_steps
from trainyard.testing.trainings import TRAININGS
from trainyard.testing.trainings.faults import FAULTS


def test_gradients_vanish_in_a_deep_stack_of_sigmoids() -> None:
    (step,) = capture_steps(FAULTS["deep_sigmoid_stack"], 20)
    assert step.gradients["layer1.linear.weight"].abs().mean() < 1e-7
    assert step.gradients["layer12.linear.weight"].abs().mean() > 1e-5


def test_negative_biases_block_everything() -> None:
    for step in capture_steps(FAULTS["negative_biases"], 0, 100):
        assert not step.outputs["layer1.relu"].any()
        assert not step.gradients["layer1.linear.weight"].any()


def test_a_zeroed_layer_passes_no_gradient_to_the_one_below() -> None:
    healthy, zeroed = (capture_steps(each, 0)[0] for each in (TRAININGS["mlp"], FAULTS["zeroed_layer"]))
    assert not zeroed.weights["layer2.linear.weight"].any()
    assert not zeroed.gradients["layer1.linear.weight"].any()
    assert healthy.inputs["layer2.relu"].std(0).min() > 0.01
    assert zeroed.inputs["layer2.relu"].std(0).max() < 1e-6


def test_a_huge_layer_has_ten_thousand_times_the_variance() -> None:
    (step,) = capture_steps(FAULTS["huge_layer"], 0)
    assert step.weights["layer2.linear.weight"].var() > 1000 * step.weights["layer1.linear.weight"].var()
    assert step.inputs["layer2.relu"].var() > 1000 * step.inputs["layer1.relu"].var()


def test_constant_weights_have_no_variance_and_units_stay_alike() -> None:
    first, later = capture_steps(FAULTS["constant_weights"], 0, 50)
    assert first.weights["layer1.linear.weight"].unique().numel() == 1
    assert later.outputs["layer1.relu"].var(dim=1).max() < 1e-6


def test_tangents_are_saturated() -> None:
    for step in capture_steps(FAULTS["saturated_tanh"], 0, 100):
        assert (step.inputs["layer1.tanh"].abs() > 9.5).float().mean() > 0.9


def test_sigmoids_are_saturated() -> None:
    for step in capture_steps(FAULTS["saturated_sigmoid"], 0, 100):
        inputs = step.inputs["layer2.sigmoid"]
        assert ((inputs < -23) | (inputs > 17)).float().mean() > 0.9


def test_sharpened_attention_looks_at_one_letter() -> None:
    fault = FAULTS["sharpened_attention"]
    before, after = capture_steps(fault, fault.step - 1, fault.step)
    assert _entropy(before.outputs["blocks.1.attention.softmax"]) > 0.5
    assert _entropy(after.outputs["blocks.1.attention.softmax"]) < 0.1


def test_a_poisoned_weight_shows_first_in_its_own_module() -> None:
    fault = FAULTS["poisoned_weight"]
    before, after = capture_steps(fault, fault.step - 1, fault.step)
    assert math.isfinite(before.loss)
    assert after.inputs["blocks.1.mlp.wide"].isfinite().all()
    assert after.outputs["blocks.1.mlp.wide"].isnan().any()


def test_a_norm_without_epsilon_has_good_outputs_and_bad_gradients() -> None:
    fault = FAULTS["lost_epsilon"]
    before, after = capture_steps(fault, fault.step - 1, fault.step)
    assert all(gradient.isfinite().all() for gradient in before.gradients.values())
    assert all(output.isfinite().all() for output in after.outputs.values())
    assert after.gradients["block2.conv.weight"].isnan().any()
    assert after.gradients["output.weight"].isfinite().all()


def _entropy(weights: torch.Tensor) -> float:
    """Only for the later half of the letters, because the first have few others to attend to."""
    later = weights[..., weights.shape[-1] // 2 :, :]
    return float(-(later * later.clamp_min(1e-30).log()).sum(-1).mean())

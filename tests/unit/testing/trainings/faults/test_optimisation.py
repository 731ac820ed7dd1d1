import math

import torch

from tests.unit.testing.trainings.step_capture import capture_steps
from trainyard.testing.trainings import TRAININGS
from trainyard.testing.trainings.faults import FAULTS
from trainyard.testing.trainings.training import SampleTraining, TrainingFault


def test_an_enormous_learning_rate_ends_in_nans() -> None:
    losses = FAULTS["enormous_learning_rate"].run(0).losses
    assert math.isfinite(losses[0])
    assert not any(math.isfinite(loss) for loss in losses[50:])


def test_a_high_learning_rate_moves_weights_by_more_than_they_are_and_kills_units() -> None:
    before, after, late = capture_steps(FAULTS["high_learning_rate"], 0, 1, 100)
    assert _moved(before.weights, after.weights, name="layer1.linear.weight") > 1
    assert float((late.outputs["layer1.relu"] == 0).all(0).float().mean()) > 0.5


def test_a_low_learning_rate_hardly_moves_weights() -> None:
    before, after = capture_steps(FAULTS["low_learning_rate"], 50, 51)
    assert 0 < _moved(before.weights, after.weights, name="hidden.weight") < 1e-5
    assert FAULTS["low_learning_rate"].run(0).metric < 0.6


def test_a_learning_rate_of_zero_moves_nothing() -> None:
    before, after = capture_steps(FAULTS["zero_learning_rate"], 0, 20)
    assert all(torch.equal(before.weights[name], after.weights[name]) for name in before.weights)


def test_a_jump_of_the_learning_rate_throws_the_loss_up() -> None:
    fault = FAULTS["learning_rate_jump"]
    before, after = capture_steps(fault, fault.step - 1, fault.step + 2)
    assert after.loss > 3 * before.loss


def test_a_layer_that_the_optimizer_does_not_know_stays_while_others_move() -> None:
    before, after = capture_steps(FAULTS["forgotten_layer"], 0, 50)
    assert after.gradients["layer1.linear.weight"].abs().mean() > 1e-6
    assert torch.equal(before.weights["layer1.linear.weight"], after.weights["layer1.linear.weight"])
    assert not torch.equal(before.weights["layer2.linear.weight"], after.weights["layer2.linear.weight"])


def test_a_frozen_head_stays_while_the_layers_below_move() -> None:
    before, after = capture_steps(FAULTS["frozen_head"], 0, 50)
    assert torch.equal(before.weights["output.weight"], after.weights["output.weight"])
    assert not torch.equal(before.weights["block2.conv.weight"], after.weights["block2.conv.weight"])


def test_the_gradients_of_tiny_batches_do_not_agree() -> None:
    assert _agreement(TRAININGS["mlp"]) > 0.15
    assert _agreement(FAULTS["tiny_batches"]) < 0.02


def test_too_many_epochs_fit_the_noise() -> None:
    outcome = FAULTS["too_many_epochs"].run(0)
    assert outcome.losses[-1] < 0.1
    assert max(outcome.metrics) > outcome.metric + 0.3


def test_a_fixed_seed_makes_runs_repeat_each_other() -> None:
    first, second = (FAULTS["fixed_seed"].run(seed) for seed in (1, 2))
    assert first.losses == second.losses == TRAININGS["mlp"].run(0).losses


def _moved(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor], *, name: str) -> float:
    return float((after[name] - before[name]).norm() / before[name].norm())


def _agreement(training: SampleTraining | TrainingFault) -> float:
    """The mean cosine between the gradients of any two of the first hundred steps."""
    gradients = torch.stack(
        [step.gradients["layer2.linear.weight"].flatten() for step in capture_steps(training, *range(100))]
    )
    unit = gradients / gradients.norm(dim=1, keepdim=True)
    return float((unit @ unit.T).triu(1).sum() / (len(unit) * (len(unit) - 1) / 2))

"""Faults in a model: its structure, its initial weights, and changes to them during training."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn

from trainyard.testing.trainings.digits import Perceptron
from trainyard.testing.trainings.samples import Samples
from trainyard.testing.trainings.training_loop import Setup

SHARPENED_STEP = 100
POISONED_WEIGHT_STEP = 90
ALTERED_STEP = 100
EPSILON_STEP = 80


def deep_sigmoid_stack(setup: Setup) -> Setup:
    """Twelve layers with sigmoids replace the two with ReLUs."""
    return _with_model(setup, Perceptron(widths=(32,) * 12, activation=nn.Sigmoid))


def negative_biases(setup: Setup) -> Setup:
    """The biases of the first layer start at -100, so its ReLUs always output zero."""
    nn.init.constant_(setup.model.layer1.linear.bias, -100.0)
    return setup


def zeroed_layer(setup: Setup) -> Setup:
    """The weights of the second layer are reset to zero."""
    nn.init.zeros_(setup.model.layer2.linear.weight)
    return setup


def huge_layer(setup: Setup) -> Setup:
    """The weights of the second layer start a hundred times too large."""
    _multiply(setup.model.layer2.linear.weight, 100)
    return setup


def constant_weights(setup: Setup) -> Setup:
    """All weights start at the same number, so the units of a layer never differ."""
    for name, parameter in setup.model.named_parameters():
        nn.init.constant_(parameter, 0.01 if name.endswith("weight") else 0.0)
    return setup


def saturated_tanh(setup: Setup) -> Setup:
    """The weights of the first layer start a thousand times too large for tanh."""
    _multiply(setup.model.layer1.linear.weight, 1000)
    return setup


def saturated_sigmoid(setup: Setup) -> Setup:
    """Sigmoids replace the ReLUs, and the weights before them start a thousand times too large."""
    model = Perceptron(activation=nn.Sigmoid)
    _multiply(model.layer1.linear.weight, 1000)
    _multiply(model.layer2.linear.weight, 1000)
    return _with_model(setup, model)


def sharpened_attention(setup: Setup) -> Setup:
    """From one step on, queries and keys are so large that each letter attends to a single other one."""

    def sharpen() -> None:
        for block in setup.model.blocks:
            _multiply(block.attention.query.weight, 20)
            _multiply(block.attention.key.weight, 20)

    return _with_event(setup, SHARPENED_STEP, sharpen)


def poisoned_weight(setup: Setup) -> Setup:
    """One weight of the second block's MLP becomes NaN at one step."""

    def poison() -> None:
        with torch.no_grad():
            setup.model.blocks[1].mlp.wide.weight[0, 0] = torch.nan

    return _with_event(setup, POISONED_WEIGHT_STEP, poison)


def altered_replica(setup: Setup) -> Setup:
    """The weights of the second layer change by a thousandth at one step, on this rank only."""
    return _with_event(setup, ALTERED_STEP, lambda: _multiply(setup.model.layer2.linear.weight, 1.001))


def lost_epsilon(setup: Setup) -> Setup:
    """A norm loses its epsilon at one step: its values stay correct, but its gradient at zero is NaN."""
    norm = _Norm()
    setup.model.dropout = nn.Sequential(OrderedDict(drop=setup.model.dropout, norm=norm))
    return _with_event(setup, EPSILON_STEP, lambda: setattr(norm, "epsilon", 0.0))


class _Norm(nn.Module):  # type: ignore[misc]  # mypy does not read torch
    def __init__(self) -> None:
        super().__init__()
        self.epsilon = 1e-6

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return torch.sqrt(values.square() + self.epsilon)


def _with_model(setup: Setup, model: nn.Module) -> Setup:
    rate = setup.optimizer.param_groups[0]["lr"]
    return replace(setup, model=model, optimizer=torch.optim.Adam(model.parameters(), lr=rate))


def _with_event(setup: Setup, at: int, act: Callable[[], None]) -> Setup:
    def transform(step: int, batch: Samples) -> Samples:
        if step == at:
            act()
        return batch

    return replace(setup, batches=replace(setup.batches, transform=transform))


def _multiply(weights: torch.Tensor, factor: float) -> None:
    with torch.no_grad():
        weights.mul_(factor)

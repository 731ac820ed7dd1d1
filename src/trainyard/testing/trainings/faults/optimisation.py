"""Faults in the optimization."""

from collections.abc import Callable
from dataclasses import replace

import torch

from trainyard.testing.trainings import digits
from trainyard.testing.trainings.samples import Samples
from trainyard.testing.trainings.training_loop import Setup

JUMP_STEP = 120


def enormous_learning_rate(setup: Setup) -> Setup:
    """The learning rate is 100, so the training diverges."""
    return _with_learning_rate(setup, lambda _: 100.0)


def high_learning_rate(setup: Setup) -> Setup:
    """The learning rate is a hundred times too high."""
    return _with_learning_rate(setup, lambda rate: rate * 100)


def low_learning_rate(setup: Setup) -> Setup:
    """The learning rate is a hundred thousand times too low."""
    return _with_learning_rate(setup, lambda rate: rate * 1e-5)


def zero_learning_rate(setup: Setup) -> Setup:
    """The learning rate is 0."""
    return _with_learning_rate(setup, lambda _: 0.0)


def learning_rate_jump(setup: Setup) -> Setup:
    """The schedule multiplies the learning rate by 300 from one step on."""
    planned = setup.schedule.lr_lambdas[0] if setup.schedule is not None else lambda _: 1.0
    jumping = torch.optim.lr_scheduler.LambdaLR(
        setup.optimizer, lambda step: planned(step) * (300 if step >= JUMP_STEP else 1)
    )
    return replace(setup, schedule=jumping)


def forgotten_layer(setup: Setup) -> Setup:
    """The optimizer does not have the parameters of the first layer."""
    known = [parameter for name, parameter in setup.model.named_parameters() if not name.startswith("layer1.")]
    return replace(setup, optimizer=torch.optim.Adam(known, lr=setup.optimizer.param_groups[0]["lr"]))


def frozen_head(setup: Setup) -> Setup:
    """The new head is frozen together with the layers below it."""
    setup.model.output.requires_grad_(False)
    return setup


def tiny_batches(setup: Setup) -> Setup:
    """Batches have two samples, most of them with the label of another."""
    samples = setup.batches.samples
    generator = torch.Generator().manual_seed(0)
    wrong = torch.rand(len(samples.targets), generator=generator) < 0.8
    others = samples.targets[torch.randperm(len(samples.targets), generator=generator)]
    noisy = Samples(samples.inputs, torch.where(wrong, others, samples.targets))
    return replace(setup, batches=replace(setup.batches, samples=noisy, size=2), epochs=1)


def too_many_epochs(setup: Setup) -> Setup:
    """Training continues without weight decay long after there is nothing left to learn but noise."""
    setup.optimizer.param_groups[0]["weight_decay"] = 0.0
    few = setup.batches.samples.select(torch.arange(96))
    learning = _with_learning_rate(setup, lambda rate: rate * 5)
    return replace(learning, batches=replace(setup.batches, samples=few), epochs=130, evaluates_each_epoch=True)


def fixed_seed(setup: Setup) -> Setup:  # noqa: ARG001
    """The seed is always 0, whatever is requested, so each run repeats the others."""
    torch.manual_seed(0)
    return digits.prepare_mlp(0)


def _with_learning_rate(setup: Setup, change: Callable[[float], float]) -> Setup:
    for group in setup.optimizer.param_groups:
        group["lr"] = change(group["lr"])
        # A schedule multiplies it by its factors.
        if "initial_lr" in group:
            group["initial_lr"] = change(group["initial_lr"])
    if setup.schedule is None:
        return setup
    planned = setup.schedule.lr_lambdas[0]
    return replace(setup, schedule=torch.optim.lr_scheduler.LambdaLR(setup.optimizer, planned))

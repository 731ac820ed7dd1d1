"""Data-parallel training in one process: replicas start equal, split each batch and average their gradients."""

from collections.abc import Iterable, Sequence

import torch
from torch import nn

from trainyard.testing.trainings.samples import Samples
from trainyard.testing.trainings.training import SampleTraining
from trainyard.testing.trainings.training_loop import Setup, TrainingOutcome, TrainingWatch


def train_replicas(
    ranks: Sequence[SampleTraining], seed: int, *, watches: Sequence[TrainingWatch]
) -> list[TrainingOutcome]:
    """Train one replica for each rank. Without a fault, the weights of all stay bitwise equal."""
    with torch.random.fork_rng(devices=[]):
        setups = [training.make_setup(seed) for training in ranks]
        for setup, watch in zip(setups, watches, strict=True):
            watch.begin(setup.model, setup.loss, setup.optimizer)
            watch.mode("TRAIN")
        losses: list[list[float]] = []
        for _ in range(setups[0].epochs):
            losses += [
                _train_one_step(setups, batches) for batches in zip(*(each.batches for each in setups), strict=True)
            ]
    return [TrainingOutcome(tuple(each), ()) for each in zip(*losses, strict=True)]


def _train_one_step(setups: Sequence[Setup], batches: Iterable[Samples]) -> list[float]:
    losses = []
    for rank, (setup, (inputs, targets)) in enumerate(zip(setups, batches, strict=True)):
        setup.optimizer.zero_grad()
        loss = setup.loss(setup.model(inputs[rank :: len(setups)]), targets[rank :: len(setups)])
        loss.backward()
        losses.append(loss.item())
    _average_gradients([setup.model for setup in setups])
    for setup in setups:
        setup.optimizer.step()
    return losses


def _average_gradients(models: Sequence[nn.Module]) -> None:
    for parameters in zip(*(model.parameters() for model in models), strict=True):
        mean = torch.stack([parameter.grad for parameter in parameters]).mean(0)
        for parameter in parameters:
            parameter.grad.copy_(mean)

"""All that a training consists of before its first step."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from trainyard.testing.trainings.samples import Batches, Samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A model, what it learns from and how; a fault takes one and gives back another."""

    model: nn.Module
    loss: nn.Module
    optimizer: torch.optim.Optimizer
    batches: Batches
    evaluation: Samples
    epochs: int
    metric: Callable[[torch.Tensor, torch.Tensor], float]  # of outputs and targets: more is better
    schedule: torch.optim.lr_scheduler.LRScheduler | None = None  # of the learning rate, by the step
    largest_gradient_norm: float | None = None  # longer gradients are clipped to it
    gives_out_labels: bool = True  # so that rules about classes can judge
    evaluates_each_epoch: bool = True  # or only after the last


def accuracy(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """The share of targets that got the highest score."""
    return float((outputs.argmax(1) == targets).float().mean())


def explained_variance(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """R², the share of the targets' variance that the outputs account for."""
    return float(1 - (outputs - targets).square().mean() / targets.var(correction=0))

"""The loop that every training runs, with its setup, its watch and its outcome."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import nn

from trainyard.testing.trainings.samples import Batches, Samples

Mode = Literal["TRAIN", "EVAL"]
_EVALUATION_BATCH = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A model, its data and how it is trained. A fault changes a setup into another."""

    model: nn.Module
    loss: nn.Module
    optimizer: torch.optim.Optimizer
    batches: Batches
    evaluation: Samples
    epochs: int
    # Of outputs and targets; higher is better.
    metric: Callable[[torch.Tensor, torch.Tensor], float]
    # Stepped after each training step.
    schedule: torch.optim.lr_scheduler.LRScheduler | None = None
    # Larger gradients are clipped to it.
    max_gradient_norm: float | None = None
    # For rules about classes.
    records_labels: bool = True
    # Otherwise only after the last epoch.
    evaluates_each_epoch: bool = True


def accuracy(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the share of samples whose target has the highest score."""
    return float((outputs.argmax(1) == targets).float().mean())


def explained_variance(outputs: torch.Tensor, targets: torch.Tensor) -> float:
    """Return R², the share of the targets' variance that the outputs explain."""
    return float(1 - (outputs - targets).square().mean() / targets.var(correction=0))


class TrainingWatch(Protocol):
    """Observes what a training script would show a hook. Called on the training thread, in this order."""

    def begin(self, model: nn.Module, loss: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Observe the setup before anything runs. Called once."""

    def mode(self, mode: Mode) -> None:
        """Set the mode of the following steps."""

    def record(self, name: str, tensor: torch.Tensor) -> None:
        """Record a tensor that the script provides in the current step: its labels or its predictions."""


class NullWatch:
    """Ignores everything."""

    def begin(self, model: nn.Module, loss: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        pass

    def mode(self, mode: Mode) -> None:
        pass

    def record(self, name: str, tensor: torch.Tensor) -> None:
        pass


@dataclass(frozen=True, slots=True)
class TrainingOutcome:
    """The results of a training."""

    # Of each training step.
    losses: tuple[float, ...]
    # Of each evaluation.
    metrics: tuple[float, ...]

    @property
    def metric(self) -> float:
        """The metric of the last evaluation."""
        return self.metrics[-1]


def train(setup: Setup, watch: TrainingWatch) -> TrainingOutcome:
    """Run all epochs."""
    watch.begin(setup.model, setup.loss, setup.optimizer)
    losses: list[float] = []
    metrics: list[float] = []
    for epoch in range(setup.epochs):
        losses += _train_one_epoch(setup, watch)
        if setup.evaluates_each_epoch or epoch == setup.epochs - 1:
            metrics.append(_evaluate(setup, watch))
    return TrainingOutcome(tuple(losses), tuple(metrics))


def _train_one_epoch(setup: Setup, watch: TrainingWatch) -> Iterator[float]:
    watch.mode("TRAIN")
    setup.model.train()
    for inputs, targets in setup.batches:
        setup.optimizer.zero_grad()
        outputs = setup.model(inputs)
        loss = setup.loss(outputs, targets)
        _record_labels(setup, watch, outputs=outputs, targets=targets)
        loss.backward()
        if setup.max_gradient_norm is not None:
            nn.utils.clip_grad_norm_(setup.model.parameters(), setup.max_gradient_norm)
        setup.optimizer.step()
        if setup.schedule is not None:
            setup.schedule.step()
        yield loss.item()


@torch.no_grad()  # type: ignore[untyped-decorator]  # mypy does not read torch
def _evaluate(setup: Setup, watch: TrainingWatch) -> float:
    watch.mode("EVAL")
    setup.model.eval()
    all_outputs = []
    for inputs, targets in setup.evaluation.split(_EVALUATION_BATCH):
        outputs = setup.model(inputs)
        setup.loss(outputs, targets)
        _record_labels(setup, watch, outputs=outputs, targets=targets)
        all_outputs.append(outputs)
    return setup.metric(torch.cat(all_outputs), setup.evaluation.targets)


def _record_labels(setup: Setup, watch: TrainingWatch, *, outputs: torch.Tensor, targets: torch.Tensor) -> None:
    if setup.records_labels:
        watch.record("labels", targets)
        watch.record("predictions", outputs.detach().argmax(1))

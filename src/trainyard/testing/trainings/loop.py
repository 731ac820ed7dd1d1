"""The loop that every training runs: an ordinary one, as scripts have it."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn

from trainyard.testing.trainings.setup import Setup
from trainyard.testing.trainings.watch import Watch

_EVALUATED_AT_ONCE = 128


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a training came to."""

    losses: tuple[float, ...]  # of each training step
    metrics: tuple[float, ...]  # of each evaluation

    @property
    def metric(self) -> float:
        """What the last evaluation said."""
        return self.metrics[-1]


def train(setup: Setup, watch: Watch) -> Outcome:
    """Go through all epochs."""
    watch.begin(setup.model, setup.loss, setup.optimizer)
    losses: list[float] = []
    metrics: list[float] = []
    for epoch in range(setup.epochs):
        losses += _train_one_epoch(setup, watch)
        if setup.evaluates_each_epoch or epoch == setup.epochs - 1:
            metrics.append(_evaluate(setup, watch))
    return Outcome(tuple(losses), tuple(metrics))


def _train_one_epoch(setup: Setup, watch: Watch) -> Iterator[float]:
    watch.mode("TRAIN")
    setup.model.train()
    for inputs, targets in setup.batches:
        setup.optimizer.zero_grad()
        outputs = setup.model(inputs)
        loss = setup.loss(outputs, targets)
        _give_out(setup, watch, outputs=outputs, targets=targets)
        loss.backward()
        if setup.largest_gradient_norm is not None:
            nn.utils.clip_grad_norm_(setup.model.parameters(), setup.largest_gradient_norm)
        setup.optimizer.step()
        if setup.schedule is not None:
            setup.schedule.step()
        yield loss.item()


@torch.no_grad()  # type: ignore[untyped-decorator]  # mypy does not read torch
def _evaluate(setup: Setup, watch: Watch) -> float:
    watch.mode("EVAL")
    setup.model.eval()
    answers = []
    for inputs, targets in setup.evaluation.in_parts(_EVALUATED_AT_ONCE):
        outputs = setup.model(inputs)
        setup.loss(outputs, targets)
        _give_out(setup, watch, outputs=outputs, targets=targets)
        answers.append(outputs)
    return setup.metric(torch.cat(answers), setup.evaluation.targets)


def _give_out(setup: Setup, watch: Watch, *, outputs: torch.Tensor, targets: torch.Tensor) -> None:
    if setup.gives_out_labels:
        watch.record("labels", targets)
        watch.record("predictions", outputs.detach().argmax(1))

"""A small training that tells observers of its steps as the hook does."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from trainyard.formats.tensors.contract import Mode
from trainyard.instance.hook.contract import StepObserver

STEPS = 24


class Training:
    """A network with dropout and batch norm, trained by AdamW with a falling learning rate on shuffled data."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(6, 12), nn.Dropout(0.3), nn.BatchNorm1d(12), nn.Linear(12, 2))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.02)
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9)
        inputs = torch.randn(64, 6)
        data = torch.utils.data.TensorDataset(inputs, (inputs.sum(1) > 0).long())
        self.loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)

    def run(
        self, observer: StepObserver, *, after: Callable[[int], None] = lambda _: None, parts: int = 1
    ) -> list[float]:
        """The losses of all steps. Each has so many parts, of which gradients are accumulated."""
        losses: list[float] = []
        part = 0
        while len(losses) < STEPS:
            for inputs, targets in self.loader:
                number = len(losses)
                if part == 0:
                    stepped = [self.optimizer] if number else []
                    observer.begin_step(number, mode=Mode.TRAIN, models=[self.model], optimizers=stepped)
                loss = self._lose(observer, inputs, targets)
                part = (part + 1) % parts
                if part == 0:
                    self.optimizer.step()
                    self.optimizer.zero_grad()
                    observer.end_step(number)
                    self.scheduler.step()
                    losses.append(loss)
                    after(number)
        return losses

    def _lose(self, observer: StepObserver, inputs: torch.Tensor, targets: torch.Tensor) -> float:
        observer.batch(self.model, (inputs,), {})
        loss: Any = nn.functional.cross_entropy(self.model(inputs), targets)
        observer.loss("loss_output_0", loss.detach())
        loss.backward()
        return float(loss.detach())

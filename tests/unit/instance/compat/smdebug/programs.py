"""Small trainings in the style of scripts for smdebug."""

from collections.abc import Callable
from typing import Any

import smdebug.pytorch as smd
import torch
from torch import nn


class Net(nn.Module):  # type: ignore[misc]  # mypy does not read torch
    """Two layers; the second is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 4)
        self.relu = nn.ReLU()
        self.again = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.again(self.relu(self.again(self.fc(x))))


def registered(hook: Any, model: nn.Module | None = None) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(1)
    made, loss = Net() if model is None else model, nn.MSELoss()
    hook.register_module(made)
    hook.register_loss(loss)
    return made, loss


def train(model: nn.Module, loss: nn.Module, *, steps: int = 4, each: Callable[[int], None] = lambda _: None) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        x = torch.full((2, 3), float(step))
        loss(model(x.to(next(model.parameters()).dtype)).float(), torch.ones(2, 4)).backward()
        each(step)
        optimizer.step()


def every(steps: int) -> Any:
    return smd.SaveConfig(save_interval=steps)

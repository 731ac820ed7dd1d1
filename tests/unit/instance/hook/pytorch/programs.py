"""Programs that train without knowing about a hook."""

from collections.abc import Callable

import torch
from torch import nn


class Net(nn.Module):  # type: ignore[misc]  # mypy does not read torch
    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(6, 5)
        self.relu = nn.ReLU()
        self.out = nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.out(self.relu(self.hidden(x)))
        return output


def batch(size: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(size, 6), torch.randint(0, 3, (size,))


def train(
    model: nn.Module, batches: Callable[[], tuple[torch.Tensor, torch.Tensor]] = batch, *, steps: int = 3
) -> list[float]:
    """Return the losses, to check that the hook changes nothing. They are read at the end, not to wait for a GPU."""
    torch.manual_seed(1)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters())
    losses = []
    for _ in range(steps):
        x, y = batches()
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [loss.item() for loss in losses]

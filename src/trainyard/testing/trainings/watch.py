"""Whoever looks on while a training runs: a hook, or nobody."""

from typing import Literal, Protocol

import torch
from torch import nn

Mode = Literal["TRAIN", "EVAL"]


class Watch(Protocol):
    """Sees what a training script would show to a hook; called in the training's own thread, in this order."""

    def begin(self, model: nn.Module, loss: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Everything is built and nothing has run yet; called once."""

    def mode(self, mode: Mode) -> None:
        """The steps that follow are of this mode."""

    def record(self, name: str, tensor: torch.Tensor) -> None:
        """A tensor that the script itself gives out in the current step: its labels and its predictions."""


class Silent:
    """Looks away."""

    def begin(self, model: nn.Module, loss: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        pass

    def mode(self, mode: Mode) -> None:
        pass

    def record(self, name: str, tensor: torch.Tensor) -> None:
        pass

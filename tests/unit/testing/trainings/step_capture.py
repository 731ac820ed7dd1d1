"""A watch that captures the tensors of some steps, and ends the training after the last of them."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from trainyard.testing.trainings.training import SampleTraining, TrainingFault
from trainyard.testing.trainings.training_loop import Mode


@dataclass
class CapturedStep:
    """One training step: weights before its update, and everything else as computed."""

    weights: dict[str, torch.Tensor] = field(default_factory=dict)
    gradients: dict[str, torch.Tensor] = field(default_factory=dict)
    inputs: dict[str, torch.Tensor] = field(default_factory=dict)
    outputs: dict[str, torch.Tensor] = field(default_factory=dict)
    records: dict[str, torch.Tensor] = field(default_factory=dict)

    @property
    def loss(self) -> float:
        return float(self.outputs["loss"])


def capture_steps(training: SampleTraining | TrainingFault, *steps: int, seed: int = 0) -> list[CapturedStep]:
    """Run a training up to the last of these steps, and return them."""
    watch = StepCapture(steps)
    with suppress(_LastStep):
        training.run(seed, watch=watch)
    return [watch.kept[step] for step in steps]


class StepCapture:
    def __init__(self, steps: Sequence[int]) -> None:
        self.kept: dict[int, CapturedStep] = {}
        self._wanted = set(steps)
        self._number = 0
        self._step = CapturedStep()
        self._mode: Mode = "TRAIN"

    def begin(self, model: nn.Module, loss: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._model = model
        for name, module in [*model.named_modules(), ("loss", loss)]:
            module.register_forward_hook(self._keeper(name))
        optimizer.register_step_pre_hook(self._end_step)

    def mode(self, mode: Mode) -> None:
        self._mode = mode

    def record(self, name: str, tensor: torch.Tensor) -> None:
        if self._mode == "TRAIN":
            self._step.records[name] = tensor

    def _keeper(self, name: str) -> Callable[..., None]:
        def keep(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            if self._mode == "TRAIN" and self._number in self._wanted and isinstance(output, torch.Tensor):
                self._step.inputs[name], self._step.outputs[name] = inputs[0].detach(), output.detach()

        return keep

    def _end_step(self, *_: object) -> None:
        if self._number in self._wanted:
            for name, parameter in self._model.named_parameters():
                self._step.weights[name] = parameter.detach().clone()
                if parameter.grad is not None:
                    self._step.gradients[name] = parameter.grad.clone()
            self.kept[self._number] = self._step
        if self._number == max(self._wanted):
            raise _LastStep
        self._number, self._step = self._number + 1, CapturedStep()


class _LastStep(Exception):
    """Raised after the last captured step."""

"""What the profiler reports about a torch program besides the times of its steps: the members of ProgramFacts."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

_CONVOLUTIONS = (nn.modules.conv._ConvNd,)


class ProgramFactsRecorder:
    """Learns about the program from the forwards of its models, most of which it does not look at.

    `next_look` is the number, from 1 on, of the forward that is looked at next.
    """

    def __init__(self) -> None:
        self._facts: dict[str, Any] = {"framework": "torch", "framework_version": str(torch.__version__)}
        self._samples, self._steps = 0, 0
        self.next_look = 1
        # Calls that wait for the GPU, and their seconds, by name: in this step, and in all training steps.
        self._waits: dict[str, tuple[int, float]] = {}
        self._all_waits: dict[str, tuple[int, float]] = {}

    def facts(self, *, loaded_samples: int) -> Mapping[str, Any]:
        """Return what is known. Samples that data loaders have counted are better known than those of forwards."""
        samples = loaded_samples or self._samples
        mean = {"samples_per_step": samples / self._steps} if self._steps and samples else {}
        return {
            **self._facts,
            **mean,
            "threads": torch.get_num_threads(),
            "synchronizations": self._synchronizations(),
        }

    def observe_forward(
        self, number: int, model: nn.Module, *, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        self._samples += _batch_size(args, kwargs)
        if number >= self.next_look:
            self.next_look *= 4
            self._facts |= _model_facts(model)

    def observe_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Learn from what an optimizer steps, in a program whose parameters are in no model."""
        if "device" in self._facts:
            return
        parameters = [each for group in optimizer.param_groups for each in group["params"]]
        if parameters:
            device = parameters[0].device.type
            size = sum(each.numel() for each in parameters)
            self._facts |= {"device": device, "precision": _precision(parameters[0], device), "parameters": size}

    def count_wait(self, name: str, seconds: float) -> None:
        calls, before = self._waits.get(name, (0, 0.0))
        self._waits[name] = calls + 1, before + seconds

    def count_steps(self, steps: int) -> None:
        """Count training steps."""
        self._steps += steps

    def end_waits(self, *, is_training: bool) -> None:
        """End a step in which waits were counted."""
        if is_training:
            for name, (calls, seconds) in self._waits.items():
                all_calls, all_seconds = self._all_waits.get(name, (0, 0.0))
                self._all_waits[name] = all_calls + calls, all_seconds + seconds
        self._waits.clear()

    def _synchronizations(self) -> list[dict[str, Any]]:
        return [
            {"name": name, "calls_per_step": calls / self._steps, "seconds_per_step": seconds / self._steps}
            for name, (calls, seconds) in self._all_waits.items()
        ]


def _model_facts(model: nn.Module) -> dict[str, Any]:
    parameters = list(model.parameters())
    first = parameters[0] if parameters else torch.empty(0)
    device = first.device.type
    convolutions = [each for each in model.modules() if isinstance(each, _CONVOLUTIONS)]
    return {
        "device": device,
        "precision": _precision(first, device),
        "parameters": sum(each.numel() for each in parameters),
        "is_compiled": any(_is_compiled(each) for each in model.modules()),
        "has_convolutions": bool(convolutions),
        "is_channels_last": any(_is_channels_last(each.weight) for each in convolutions),
    }


def _precision(parameter: torch.Tensor, device: str) -> str:
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else parameter.dtype
    return str(dtype).removeprefix("torch.")


def _is_compiled(module: nn.Module) -> bool:
    return module._compiled_call_impl is not None or type(module).__name__ == "OptimizedModule"


def _is_channels_last(weight: torch.Tensor) -> bool:
    is_last = weight.dim() == 4 and weight.is_contiguous(memory_format=torch.channels_last)
    return is_last and not weight.is_contiguous()


def _batch_size(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int:
    """The first dimension of the first tensor of a forward; 0 if it has none."""
    for value in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(value, torch.Tensor) and value.dim():
            return int(value.shape[0])
    return 0

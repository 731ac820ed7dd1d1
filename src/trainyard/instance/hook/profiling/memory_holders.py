"""What holds the memory of a torch program: of its GPU if it trains on one, and of the process otherwise.

Nothing asks CUDA before the program has initialized it. A process that uses a GPU cannot be forked.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class MemoryHolders:
    """Measures parameters, gradients and optimizer states a few times, and the peak of the memory when asked.

    `next_look` is the number, from 1 on, of the step of an optimizer that is observed next.
    """

    def __init__(self) -> None:
        # What Python and the libraries take before the program has made anything.
        self._libraries = _resident_bytes()
        self._sizes: dict[str, int] = {}
        self._device = torch.device("cpu")
        # The first step has no optimizer state yet.
        self.next_look = 2

    def observe_step(self, models: Sequence[nn.Module], optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """Measure when an optimizer is about to step, which is when gradients exist."""
        self.next_look *= 4
        parameters = list({id(each): each for model in models for each in model.parameters()}.values())
        if not parameters:
            parameters = list(_stepped(optimizers))
        if not parameters:
            return
        self._device = parameters[0].device
        self._sizes = {
            "parameters": self._bytes(parameters),
            "gradients": self._bytes(each.grad for each in parameters if each.grad is not None),
            "optimizer": self._bytes(_states(optimizers)),
        }

    def facts(self) -> list[dict[str, Any]]:
        """Return the members of MemoryHolder, as JSON values; none before the second step."""
        if not self._sizes:
            return []
        if self._device.type == "cuda":
            sizes = self._sizes | self._rest_of_gpu()
        elif self._device.type == "cpu":
            sizes = self._sizes | self._rest_of_process()
        else:
            sizes = self._sizes
        return [{"name": name, "bytes": size} for name, size in sizes.items()]

    def _rest_of_gpu(self) -> dict[str, int]:
        if not torch.cuda.is_initialized():
            return {}
        allocated = torch.cuda.max_memory_allocated(self._device)
        cached = torch.cuda.max_memory_reserved(self._device) - allocated
        return {"activations": max(allocated - sum(self._sizes.values()), 0), "cache": max(cached, 0)}

    def _rest_of_process(self) -> dict[str, int]:
        known = sum(self._sizes.values()) + self._libraries
        return {"libraries": self._libraries, "other": max(_peak_resident_bytes() - known, 0)}

    def _bytes(self, tensors: Iterable[torch.Tensor]) -> int:
        # A distributed tensor has a part of itself on this rank.
        own = [getattr(each, "_local_tensor", each) for each in tensors]
        return sum(each.numel() * each.element_size() for each in own if each.device.type == self._device.type)


def _stepped(optimizers: Iterable[torch.optim.Optimizer]) -> Iterator[torch.Tensor]:
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            yield from group["params"]


def _states(optimizers: Iterable[torch.optim.Optimizer]) -> Iterator[torch.Tensor]:
    for optimizer in optimizers:
        for state in optimizer.state.values():
            values: Mapping[Any, Any] = state if isinstance(state, Mapping) else {}
            yield from (each for each in values.values() if isinstance(each, torch.Tensor))


def _resident_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return 0


def _peak_resident_bytes() -> int:
    try:
        lines = Path("/proc/self/status").read_bytes().splitlines()
        found = next((line for line in lines if line.startswith(b"VmHWM:")), b"VmHWM: 0 kB")
        return int(found.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return 0

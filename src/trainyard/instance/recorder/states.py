"""What a step starts from: weights, buffers, optimizer state, and the states of random generators.

Records on disk hold pickled `RandomState` objects, so its module, name and fields must stay.
"""

import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

Tensors = dict[str, torch.Tensor]


@dataclass(slots=True)
class TrainingState:
    """A copy in host memory: tensors by `model/<number>/<name>` and `optimizer/<number>/<parameter>/<name>`.

    `plain` holds the optimizer state that is not tensors. A new copy can reuse the memory of an older one.
    """

    step: int = -1
    tensors: Tensors = field(default_factory=dict)
    plain: dict[str, Any] = field(default_factory=dict)

    def capture(
        self, step: int, models: Sequence[torch.nn.Module], optimizers: Sequence[torch.optim.Optimizer]
    ) -> None:
        """Copy the current state, without waiting for devices; `synchronize_devices` does that."""
        tensors, plain = _tensors_of(models, optimizers)
        self.step = step
        self.tensors = {name: _copy_to_host(tensor, self.tensors.get(name)) for name, tensor in tensors.items()}
        self.plain = plain

    @property
    def size_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def restore(self, models: Sequence[torch.nn.Module]) -> None:
        """Restore the weights of models. LookupError if a model has other tensors."""
        for number, model in enumerate(models):
            for name, tensor in local_tensors(model.state_dict(keep_vars=True)).items():
                copy = self.tensors.get(f"model/{number}/{name}")
                if copy is None or copy.shape != tensor.shape:
                    raise LookupError(
                        f"the model has a tensor {name} of shape {tuple(tensor.shape)}, the record has none"
                    )
                with torch.no_grad():
                    tensor.copy_(copy)

    def restore_optimizer(self, number: int, optimizer: torch.optim.Optimizer) -> None:
        """Restore the state of an optimizer."""
        parameters = _parameters(optimizer)
        prefix = f"optimizer/{number}/"
        for name, value in {**self.plain, **self.tensors}.items():
            if not name.startswith(prefix):
                continue
            place, _, key = name.removeprefix(prefix).partition("/")
            parameter = parameters[int(place)]
            present = optimizer.state[parameter].get(key)
            optimizer.state[parameter][key] = (
                _like(value, present, parameter) if isinstance(value, torch.Tensor) else value
            )


@dataclass(frozen=True, slots=True)
class RandomState:
    """The states of all random generators that a step may use."""

    torch_cpu: torch.Tensor
    cuda: Sequence[torch.Tensor] = ()
    python: Any = None
    numpy: Any = None

    @classmethod
    def capture(cls, *, is_whole: bool) -> "RandomState":
        """Capture the current states. Those that models rarely use take longer, and are included only if `is_whole`."""
        numpy = sys.modules.get("numpy") if is_whole else None
        return cls(
            torch.get_rng_state(),
            torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else (),
            random.getstate() if is_whole else None,
            numpy.random.get_state() if numpy is not None else None,
        )

    def restore(self) -> None:
        torch.set_rng_state(self.torch_cpu)
        if self.python is not None:
            random.setstate(self.python)
        if self.numpy is not None:
            sys.modules["numpy"].random.set_state(self.numpy)
        if self.cuda:
            torch.cuda.set_rng_state_all(list(self.cuda))


def group_values(optimizers: Sequence[torch.optim.Optimizer]) -> list[list[dict[str, Any]]]:
    """Return the settings of each optimizer's parameter groups, such as learning rates."""
    return [
        [{name: _plain(value) for name, value in group.items() if name != "params"} for group in optimizer.param_groups]
        for optimizer in optimizers
    ]


def restore_group_values(optimizer: torch.optim.Optimizer, values: Sequence[Mapping[str, Any]]) -> None:
    for group, recorded in zip(optimizer.param_groups, values, strict=False):
        group.update(recorded)


def synchronize_devices() -> None:
    """Wait until copies from devices are complete."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def local_tensors(tensors: Mapping[str, Any]) -> Tensors:
    """Return the tensors; of those sharded over ranks, the local part. Other values are left out."""
    local = {name: getattr(tensor, "_local_tensor", tensor) for name, tensor in tensors.items()}
    return {name: tensor for name, tensor in local.items() if isinstance(tensor, torch.Tensor)}


def _tensors_of(
    models: Sequence[torch.nn.Module], optimizers: Sequence[torch.optim.Optimizer]
) -> tuple[Tensors, dict[str, Any]]:
    tensors: Tensors = {}
    plain: dict[str, Any] = {}
    for number, model in enumerate(models):
        local = local_tensors(model.state_dict(keep_vars=True))
        tensors |= {f"model/{number}/{name}": tensor.detach() for name, tensor in local.items()}
    for number, optimizer in enumerate(optimizers):
        for place, parameter in enumerate(_parameters(optimizer)):
            for key, value in optimizer.state.get(parameter, {}).items():
                value = getattr(value, "_local_tensor", value)
                into: dict[str, Any] = tensors if isinstance(value, torch.Tensor) else plain
                into[f"optimizer/{number}/{place}/{key}"] = value
    return tensors, plain


def _parameters(optimizer: torch.optim.Optimizer) -> list[Any]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _copy_to_host(tensor: torch.Tensor, into: torch.Tensor | None) -> torch.Tensor:
    """Copy a tensor to the host, into existing memory if it fits, since new memory costs more than the copy."""
    if into is None or into.shape != tensor.shape or into.dtype != tensor.dtype:
        into = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
    with torch.no_grad():
        return into.copy_(tensor, non_blocking=True)


def _like(copy: torch.Tensor, present: object, parameter: torch.Tensor) -> torch.Tensor:
    """Return the copy on the device where the optimizer keeps it: that of its present value or of the parameter.

    A step count stays on the host.
    """
    if isinstance(present, torch.Tensor):
        return copy.to(present.device).clone()
    return copy.to(parameter.device).clone() if copy.shape == parameter.shape else copy.clone()


def _plain(value: object) -> object:
    return value.item() if isinstance(value, torch.Tensor) and value.numel() == 1 else value

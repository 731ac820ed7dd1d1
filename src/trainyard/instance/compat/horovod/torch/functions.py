"""Broadcasts and gathers parameters, optimizer states and objects."""

import ctypes
import pickle
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from .mpi_ops import allgather_async, broadcast_, broadcast_async_, synchronize
from .world import ProcessSet, global_process_set, rank, require_global, world


def broadcast_parameters(
    params: Mapping[str, Any] | Iterable[Any], root_rank: int, process_set: ProcessSet = global_process_set
) -> None:
    """Broadcast parameters from the root: a `state_dict`, `named_parameters` or tensors."""
    require_global(process_set)
    handles = [broadcast_async_(tensor, root_rank) for tensor in _tensors(params)]
    for handle in handles:
        synchronize(handle)


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer,
    root_rank: int,
    model: Any = None,  # noqa: ARG001
    process_set: ProcessSet = global_process_set,
) -> None:
    """Broadcast the state and options of an optimizer from the root. Other ranks may have no state yet."""
    require_global(process_set)
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("The state of torch.optim.LBFGS cannot be broadcast: it is not tied to parameters.")
    if world().position.is_alone:
        return
    tensors: list[torch.Tensor] = []
    form = _without_tensors(optimizer.state_dict(), tensors) if rank() == root_rank else None
    form, kinds = broadcast_object((form, [(t.shape, t.dtype, t.device.type) for t in tensors]), root_rank)
    if rank() != root_rank:
        tensors = [torch.empty(shape, dtype=dtype, device=device) for shape, dtype, device in kinds]
    broadcast_parameters(tensors, root_rank)
    if rank() != root_rank:
        optimizer.load_state_dict(_with_tensors(form, tensors))


def broadcast_object(
    obj: Any = None,
    root_rank: int = 0,
    name: str | None = None,  # noqa: ARG001
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return the root's object, which must be picklable."""
    require_global(process_set)
    if world().position.is_alone:
        return obj
    packed = _pickle_to_tensor(obj) if rank() == root_rank else torch.empty(0, dtype=torch.uint8)
    length = int(broadcast_(torch.tensor([len(packed)]), root_rank))
    if rank() != root_rank:
        packed = torch.empty(length, dtype=torch.uint8)
    broadcast_(packed, root_rank)
    return obj if rank() == root_rank else _unpickle(packed)


def broadcast_object_fn(
    root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Callable[[Any], Any]:
    """Return a function that broadcasts its argument."""
    return lambda obj: broadcast_object(obj, root_rank, name, process_set)


def allgather_object(
    obj: Any,
    name: str | None = None,  # noqa: ARG001
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Return the objects of all ranks, in rank order. They must be picklable."""
    require_global(process_set)
    packed = _pickle_to_tensor(obj)
    lengths = synchronize(allgather_async(torch.tensor([len(packed)]))).tolist()
    parts = torch.split(synchronize(allgather_async(packed)), lengths)
    return [_unpickle(part) for part in parts]


class _TensorIndex(int):
    """The index of a tensor in the list of tensors that are sent separately."""


def _tensors(params: Mapping[str, Any] | Iterable[Any]) -> list[torch.Tensor]:
    pairs = sorted(params.items()) if isinstance(params, Mapping) else params
    values = [pair[1] if isinstance(pair, tuple) else pair for pair in pairs]
    if wrong := [value for value in values if value is not None and not isinstance(value, torch.Tensor)]:
        raise ValueError(
            f"broadcast_parameters accepts tensors, not {type(wrong[0]).__name__}; for other values, use "
            "hvd.broadcast_object."
        )
    return [value for value in values if value is not None]


def _without_tensors(value: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return _TensorIndex(len(tensors) - 1)
    if isinstance(value, dict):
        return {key: _without_tensors(each, tensors) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_without_tensors(each, tensors) for each in value)
    return value


def _with_tensors(value: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(value, _TensorIndex):
        return tensors[value]
    if isinstance(value, dict):
        return {key: _with_tensors(each, tensors) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_with_tensors(each, tensors) for each in value)
    return value


def _pickle_to_tensor(obj: Any) -> torch.Tensor:
    return torch.frombuffer(bytearray(pickle.dumps(obj)), dtype=torch.uint8)


def _unpickle(packed: torch.Tensor) -> Any:
    return pickle.loads(ctypes.string_at(packed.data_ptr(), len(packed)))

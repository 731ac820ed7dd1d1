"""Tensors as they are described and saved."""

import math
from collections.abc import Callable, Iterator

import torch
from torch.utils import _pytree

from trainyard.formats.tensors.contract import Kind, TensorInfo
from trainyard.formats.tensors.safetensors import RawTensor
from trainyard.instance.hook.steps import Raw


def tensors_in(value: object) -> Iterator[torch.Tensor]:
    """All tensors in what a module takes or gives, in order: nested lists, tuples, dicts and dataclasses."""
    if isinstance(value, torch.Tensor):
        yield value
    elif hasattr(value, "__dataclass_fields__") and not isinstance(value, (dict, type)):
        for name in value.__dataclass_fields__:
            yield from tensors_in(getattr(value, name, None))
    elif isinstance(value, dict):  # also those that torch does not know, such as the outputs of transformers
        for each in value.values():
            yield from tensors_in(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from tensors_in(each)
    elif value is not None and type(value) in _pytree.SUPPORTED_NODES:
        for leaf in _pytree.tree_leaves(value):
            if isinstance(leaf, torch.Tensor):
                yield leaf


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a tensor that this process holds, without its graph."""
    held = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return held.detach()


def describe(name: str, kind: Kind, tensor: torch.Tensor, *, module: str = "") -> TensorInfo:
    held = local(tensor)
    whole = tuple(tensor.shape) if held.shape != tensor.shape else ()
    return TensorInfo(name, kind, tuple(held.shape), _word(tensor.dtype), module=module, whole_shape=whole)


def size_bytes(tensor: torch.Tensor) -> int:
    held = local(tensor)
    return int(held.nbytes)


def copied(tensor: torch.Tensor, *, factor: Callable[[], float] | None = None) -> Raw:
    """A copy where the tensor is; it is fetched from there, and multiplied, on the thread that writes."""
    held = local(tensor)
    copy = held.to_dense() if held.layout is not torch.strided else held.clone()
    wait = waiting_for(copy)

    def fetch() -> RawTensor:
        wait()
        return _raw(copy if factor is None else copy * factor())

    return Raw(int(copy.nbytes), fetch)


def reduced(word: str, tensor: torch.Tensor) -> Raw:
    """A reduction that needs the values: prod, abs_prod or abs_min."""
    held = local(tensor)
    if held.layout is not torch.strided:
        held = held.to_dense()
    if not held.numel():
        made = torch.tensor(math.nan)
    elif word == "abs_min":
        made = held.abs().min()
    else:
        made = (held.abs() if word == "abs_prod" else held).prod(dtype=torch.float64)
    wait = waiting_for(made)

    def fetch() -> RawTensor:
        wait()
        return _raw(made)

    return Raw(8, fetch)


def waiting_for(tensor: torch.Tensor) -> Callable[[], None]:
    """Waits, on whichever thread calls it, until what a GPU was told to do so far for a tensor is done.

    A thread has a stream of its own, which knows nothing of those of others.
    """
    if not tensor.is_cuda:
        return lambda: None
    with torch.cuda.device(tensor.device):
        event = torch.cuda.Event()
        event.record()
    wait: Callable[[], None] = event.synchronize
    return wait


def _raw(tensor: torch.Tensor) -> RawTensor:
    kept = tensor.cpu().contiguous()
    data = kept.reshape(-1).view(torch.uint8).numpy().data if kept.numel() else b""
    return RawTensor(_word(kept.dtype), tuple(kept.shape), data)


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")

"""Describes tensors, and copies or reduces them for saving."""

import math
from collections.abc import Callable, Iterator

import torch
from torch.utils import _pytree

from trainyard.formats.tensors.contract import Kind, TensorInfo
from trainyard.formats.tensors.encoding.safetensors import RawTensor
from trainyard.instance.hook.steps import RawCopy


def tensors_in(value: object) -> Iterator[torch.Tensor]:
    """Yield all tensors in a module's inputs or outputs, in order, from nested lists, tuples, dicts and dataclasses."""
    if isinstance(value, torch.Tensor):
        yield value
    elif hasattr(value, "__dataclass_fields__") and not isinstance(value, (dict, type)):
        for name in value.__dataclass_fields__:
            yield from tensors_in(getattr(value, name, None))
    # Includes subclasses that torch does not know, such as the outputs of transformers.
    elif isinstance(value, dict):
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
    """Return the part of a tensor that this process holds, detached from its graph."""
    held = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return held.detach()


def describe(name: str, kind: Kind, tensor: torch.Tensor, *, module: str = "") -> TensorInfo:
    held = local(tensor)
    whole = tuple(tensor.shape) if held.shape != tensor.shape else ()
    return TensorInfo(name, kind, tuple(held.shape), _dtype_name(tensor.dtype), module=module, whole_shape=whole)


def size_bytes(tensor: torch.Tensor) -> int:
    held = local(tensor)
    return int(held.nbytes)


def copy_values(tensor: torch.Tensor, *, factor: Callable[[], float] | None = None) -> RawCopy:
    """Copy a tensor on its device. The writer thread fetches the copy from there and multiplies it."""
    held = local(tensor)
    copy = held.to_dense() if held.layout is not torch.strided else held.clone()
    wait = completion_of(copy)

    def fetch() -> RawTensor:
        wait()
        return _raw(copy if factor is None else copy * factor())

    return RawCopy(int(copy.nbytes), fetch)


def reduce_values(word: str, tensor: torch.Tensor) -> RawCopy:
    """Compute a reduction that needs the values: prod, abs_prod or abs_min."""
    held = local(tensor)
    if held.layout is not torch.strided:
        held = held.to_dense()
    if not held.numel():
        reduced = torch.tensor(math.nan)
    elif word == "abs_min":
        reduced = held.abs().min()
    else:
        reduced = (held.abs() if word == "abs_prod" else held).prod(dtype=torch.float64)
    wait = completion_of(reduced)

    def fetch() -> RawTensor:
        wait()
        return _raw(reduced)

    return RawCopy(8, fetch)


def completion_of(tensor: torch.Tensor) -> Callable[[], None]:
    """Return a function that waits, on any thread, until the GPU has finished its work so far for a tensor.

    Needed because each thread has its own current stream, which is not ordered after those of other threads.
    """
    if not tensor.is_cuda:
        return lambda: None
    with torch.cuda.device(tensor.device):
        event = torch.cuda.Event()
        event.record()
    wait: Callable[[], None] = event.synchronize
    return wait


def _raw(tensor: torch.Tensor) -> RawTensor:
    host = tensor.cpu().contiguous()
    data = host.reshape(-1).view(torch.uint8).numpy().data if host.numel() else b""
    return RawTensor(_dtype_name(host.dtype), tuple(host.shape), data)


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")

"""What a script says of modules where it makes them: the partition they belong to, and whether they are split."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

_PARTITION = "_smp_partition"
_TENSOR = "_smp_tensor_parallelism"


@contextmanager
def partition(index: int) -> Iterator[None]:
    """Modules that are made within belong to this partition; within another such context, the inner one counts."""
    with _marking(_PARTITION, index):
        yield


@contextmanager
def tensor_parallelism(enabled: bool = True, **_options: Any) -> Iterator[None]:
    """Modules that are made within are split over the tensor parallel ranks, where they can be."""
    with _marking(_TENSOR, enabled):
        yield


@contextmanager
def delay_param_initialization(enabled: bool = True) -> Iterator[None]:
    """Modules that are made within get their parameters only when the model is split, and only those of this rank."""
    with ExitStack() as stack:
        if enabled:
            stack.enter_context(torch.device("meta"))
        yield


@contextmanager
def model_creation(
    tensor_parallelism: bool = False, dtype: torch.dtype | None = None, **_options: Any
) -> Iterator[None]:
    """All of these in one: where a model is made, whose parameters may be of another type."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype or before)
    try:
        with _marking(_TENSOR, tensor_parallelism), delay_param_initialization():
            yield
    finally:
        torch.set_default_dtype(before)


def set_partition(module: torch.nn.Module, index: int) -> None:
    """Put a module that there is already, and all below it, into a partition."""
    for each in module.modules():
        each.__dict__[_PARTITION] = index


def set_tensor_parallelism(module: torch.nn.Module, enabled: bool = True, **_options: Any) -> None:
    """Say of a module that there is already, and of all below it, whether they are split."""
    for each in module.modules():
        each.__dict__[_TENSOR] = enabled


def partition_of(module: torch.nn.Module, default: int) -> int:
    """The partition that a module belongs to."""
    return int(module.__dict__.get(_PARTITION, default))


def is_split(module: torch.nn.Module) -> bool:
    """Whether a module is to be split over tensor parallel ranks."""
    return bool(module.__dict__.get(_TENSOR, False))


@contextmanager
def _marking(name: str, value: Any) -> Iterator[None]:
    """Note something on every module that is made within: each calls the constructor of nn.Module first of all."""
    outer = torch.nn.Module.__init__

    def marked(module: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
        outer(module, *args, **kwargs)
        module.__dict__[name] = value

    torch.nn.Module.__init__ = marked
    try:
        yield
    finally:
        torch.nn.Module.__init__ = outer

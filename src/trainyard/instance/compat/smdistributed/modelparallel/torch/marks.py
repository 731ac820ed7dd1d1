"""Marks that a script sets on modules: the partition they belong to, and whether they are split."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

_PARTITION = "_smp_partition"
_TENSOR = "_smp_tensor_parallelism"


@contextmanager
def partition(index: int) -> Iterator[None]:
    """Assign modules that are created within to a partition. The innermost context wins."""
    with _marking(_PARTITION, index):
        yield


@contextmanager
def tensor_parallelism(enabled: bool = True, **_options: Any) -> Iterator[None]:
    """Split modules that are created within over the tensor parallel ranks, if possible."""
    with _marking(_TENSOR, enabled):
        yield


@contextmanager
def delay_param_initialization(enabled: bool = True) -> Iterator[None]:
    """Allocate parameters of modules that are created within only when the model is split, and only this rank's."""
    with ExitStack() as stack:
        if enabled:
            stack.enter_context(torch.device("meta"))
        yield


@contextmanager
def model_creation(
    tensor_parallelism: bool = False, dtype: torch.dtype | None = None, **_options: Any
) -> Iterator[None]:
    """Combine the contexts above for the creation of a model, whose parameters may have another type."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype or before)
    try:
        with _marking(_TENSOR, tensor_parallelism), delay_param_initialization():
            yield
    finally:
        torch.set_default_dtype(before)


def set_partition(module: torch.nn.Module, index: int) -> None:
    """Assign an existing module, and everything inside it, to a partition."""
    for each in module.modules():
        each.__dict__[_PARTITION] = index


def set_tensor_parallelism(module: torch.nn.Module, enabled: bool = True, **_options: Any) -> None:
    """Set whether an existing module, and everything inside it, is split."""
    for each in module.modules():
        each.__dict__[_TENSOR] = enabled


def partition_of(module: torch.nn.Module, default: int) -> int:
    """Return the partition of a module."""
    return int(module.__dict__.get(_PARTITION, default))


def is_split(module: torch.nn.Module) -> bool:
    """Whether a module should be split over tensor parallel ranks."""
    return bool(module.__dict__.get(_TENSOR, False))


@contextmanager
def _marking(name: str, value: Any) -> Iterator[None]:
    """Mark every module that is created within, by patching the constructor of nn.Module, which each calls first."""
    outer = torch.nn.Module.__init__

    def initialize_and_mark(module: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
        outer(module, *args, **kwargs)
        module.__dict__[name] = value

    torch.nn.Module.__init__ = initialize_and_mark
    try:
        yield
    finally:
        torch.nn.Module.__init__ = outer

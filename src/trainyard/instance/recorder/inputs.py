"""The inputs of a step, kept by reference; a tensor that is later changed in place is detected.

Batches come from a DataLoader, arguments are those the model is called with, and targets are what a loss compares its
output with. A replay replaces those of the script by the recorded ones.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional
from torch.utils import _pytree as pytree
from torch.utils.data import dataloader

_LOSSES = (
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "gaussian_nll_loss",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "mse_loss",
    "multi_margin_loss",
    "nll_loss",
    "poisson_nll_loss",
    "smooth_l1_loss",
)
_PLAIN = frozenset({type(None), bool, int, float, str, bytes})

Intercept = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class InputValue:
    """A value of the program, with the versions of its tensors at the time."""

    value: Any
    versions: tuple[int, ...] = ()

    @classmethod
    def of(cls, value: Any) -> "InputValue":
        return cls(value, tuple(tensor._version for tensor in tensors_in(value)))

    @property
    def has_changed(self) -> bool:
        """Whether one of its tensors has been written to since."""
        return tuple(tensor._version for tensor in tensors_in(self.value)) != self.versions


@dataclass(slots=True)
class StepInputs:
    """All inputs of one step, in the order of their arrival."""

    batches: list[InputValue] = field(default_factory=list)
    arguments: list[InputValue] = field(default_factory=list)
    targets: list[InputValue] = field(default_factory=list)

    def all(self) -> Iterable[InputValue]:
        return (*self.batches, *self.arguments, *self.targets)


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return the tensors of a nested value, in a fixed order."""
    if isinstance(value, torch.Tensor):
        return [value]
    kind = type(value)
    if kind in _PLAIN:
        return []
    # The common kinds; this is ten times as fast as pytree.
    if kind is tuple or kind is list or kind is dict:
        inner = value.values() if kind is dict else value
        return [tensor for each in inner for tensor in tensors_in(each)]
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def overwrite_tensors(value: Any, recorded: Sequence[torch.Tensor]) -> bool:
    """Copy recorded tensors into those of a value; return False if their shapes differ."""
    present = [tensor for tensor in tensors_in(value) if not tensor.requires_grad or tensor.is_leaf]
    if [tensor.shape for tensor in present] != [tensor.shape for tensor in recorded]:
        return False
    with torch.no_grad():
        for tensor, copy in zip(present, recorded, strict=True):
            tensor.copy_(copy)
    return True


def intercept_inputs(*, batches: Intercept, targets: Intercept) -> None:
    """From now on, pass each batch of a DataLoader and each target of a loss through a function.

    This covers losses called as functions and as modules. A second call replaces the functions of the first.
    """
    _interceptors.update(batches=batches, targets=targets)
    if _interceptors.setdefault("is_installed", False):
        return
    _interceptors["is_installed"] = True
    dataloader._BaseDataLoaderIter.__next__ = _wrap_loader(dataloader._BaseDataLoaderIter.__next__)
    for name in _LOSSES:
        loss = getattr(torch.nn.functional, name, None)
        if loss is not None:
            setattr(torch.nn.functional, name, _wrap_loss(loss))


_interceptors: dict[str, Any] = {}


def _wrap_loader(fetch: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(fetch)
    def fetch_and_give(loader: Any) -> Any:
        return _interceptors["batches"](fetch(loader))

    return fetch_and_give


def _wrap_loss(loss: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(loss)
    def give_and_compute(*args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling():
            target = args[1] if len(args) > 1 else kwargs.get("target")
            if isinstance(target, torch.Tensor) and target.grad_fn is None:
                _interceptors["targets"](target)
        return loss(*args, **kwargs)

    return give_and_compute

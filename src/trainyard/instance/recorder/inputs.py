"""What goes into a step from outside of the model, kept by reference: who changes a tensor in place can be found out.

A batch is what a DataLoader gives, the arguments of the model are what it is called with, and targets are what its
output is compared with. In a replay the recorded ones take the place of those that the script comes with.
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

Gives = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Kept:
    """Some value of the program, with the versions that its tensors had."""

    value: Any
    versions: tuple[int, ...] = ()

    @classmethod
    def of(cls, value: Any) -> "Kept":
        return cls(value, tuple(tensor._version for tensor in tensors_in(value)))

    @property
    def has_changed(self) -> bool:
        """Whether somebody wrote into one of its tensors since."""
        return tuple(tensor._version for tensor in tensors_in(self.value)) != self.versions


@dataclass(slots=True)
class StepInputs:
    """All of one step, in the order in which they came."""

    batches: list[Kept] = field(default_factory=list)
    arguments: list[Kept] = field(default_factory=list)
    targets: list[Kept] = field(default_factory=list)

    def all(self) -> Iterable[Kept]:
        return (*self.batches, *self.arguments, *self.targets)


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors of a nested value, in a fixed order."""
    if isinstance(value, torch.Tensor):
        return [value]
    kind = type(value)
    if kind in _PLAIN:
        return []
    if kind is tuple or kind is list or kind is dict:  # which most are, and this is ten times as fast
        inner = value.values() if kind is dict else value
        return [tensor for each in inner for tensor in tensors_in(each)]
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def overwrite(value: Any, recorded: Sequence[torch.Tensor]) -> bool:
    """Put recorded tensors into those of a value; whether all of them fitted."""
    present = [tensor for tensor in tensors_in(value) if not tensor.requires_grad or tensor.is_leaf]
    if [tensor.shape for tensor in present] != [tensor.shape for tensor in recorded]:
        return False
    with torch.no_grad():
        for tensor, copy in zip(present, recorded, strict=True):
            tensor.copy_(copy)
    return True


def follow(*, batches: Gives, targets: Gives) -> None:
    """Have each batch of a DataLoader, and each target of a loss, pass through a function from now on.

    Losses are followed whether they are called as functions or as modules. Who follows last is the only one.
    """
    _followed.update(batches=batches, targets=targets)
    if _followed.setdefault("is_installed", False):
        return
    _followed["is_installed"] = True
    dataloader._BaseDataLoaderIter.__next__ = _giving_batches(dataloader._BaseDataLoaderIter.__next__)
    for name in _LOSSES:
        loss = getattr(torch.nn.functional, name, None)
        if loss is not None:
            setattr(torch.nn.functional, name, _giving_targets(loss))


_followed: dict[str, Any] = {}


def _giving_batches(fetch: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(fetch)
    def fetch_and_give(loader: Any) -> Any:
        return _followed["batches"](fetch(loader))

    return fetch_and_give


def _giving_targets(loss: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(loss)
    def give_and_compute(*args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling():
            target = args[1] if len(args) > 1 else kwargs.get("target")
            if isinstance(target, torch.Tensor) and target.grad_fn is None:
                _followed["targets"](target)
        return loss(*args, **kwargs)

    return give_and_compute

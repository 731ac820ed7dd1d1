"""The inputs and outputs of chosen layers."""

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

import torch
from torch import nn

from trainyard.formats.tensors.contract import ABSENT, Column, Kind
from trainyard.instance.hook.collecting import Choice, Selection
from trainyard.instance.hook.pytorch import naming
from trainyard.instance.hook.pytorch.inert import Inert
from trainyard.instance.hook.pytorch.roots import Root

MOST_CALLS = 64  # of a layer in a step; what comes after is not looked at
_LOOKED_AHEAD = 4  # tensors of a layer whose names are tried to see whether anybody asks for it


class Side(StrEnum):
    INPUT = "input"
    OUTPUT = "output"

    @property
    def kind(self) -> Kind:
        return Kind.INPUT if self is Side.INPUT else Kind.OUTPUT


@dataclass(frozen=True, slots=True)
class Numbered:
    """One tensor of a layer in a step, by its number among them."""

    name: str
    choice: Choice


class Layer:
    """One side of a layer. Names are made once for each number.

    Where it is part of a compiled graph, it leaves its statistics in `slot`, and how many elements it had after them;
    `empty` is a slot in which there is nothing.
    """

    def __init__(self, prefix: str, side: Side, *, module: str, selection: Selection) -> None:
        self.prefix, self.side, self.module = prefix, side, module
        self.key = f"{prefix}_{side}"
        self.slot = self.empty = torch.empty(0)
        self.size = 0
        self._selection = selection
        self._numbered: list[Numbered] = []

    def tensor(self, number: int) -> Numbered:
        while len(self._numbered) <= number:
            name = f"{self.key}_{len(self._numbered)}"
            self._numbered.append(Numbered(name, self._selection.choice(name)))
        return self._numbered[number]

    @cached_property
    def is_asked(self) -> bool:
        return any(self._selection.is_asked(self.tensor(number).name) for number in range(_LOOKED_AHEAD))

    def make_slot(self, device: torch.device) -> None:
        self.empty = torch.full((len(Column) + 1,), ABSENT, device=device)
        self.slot = self.empty.clone()


Take = Callable[[Layer, Any], None]


@dataclass(frozen=True, slots=True)
class Hung:
    """The layers that are listened to, and how to stop."""

    layers: list[Layer]
    handles: list[torch.utils.hooks.RemovableHandle]


def hang_on_layers(root: Root, selection: Selection, *, take: Take) -> Hung:
    """Listen to the layers of a model of which anything is asked, losses excepted, which are listened to as such."""
    hung = Hung([], [])
    model = root.model
    first = None if model is None else next(model.parameters(), None)
    for name, module in model.named_modules() if model is not None else ():
        path = naming.path(name)
        if isinstance(module, nn.modules.loss._Loss):
            continue
        for side in Side:
            layer = Layer(root.prefix(path), side, module=path, selection=selection)
            if layer.is_asked:
                layer.make_slot(torch.device("cpu") if first is None else first.device)
                hung.layers.append(layer)
                hung.handles.append(_hang(module, layer, take))
    return hung


def _hang(module: nn.Module, layer: Layer, take: Take) -> torch.utils.hooks.RemovableHandle:
    # An input is taken before, since a layer may change it in place.
    if layer.side is Side.INPUT:
        return module.register_forward_pre_hook(_Before(module, layer, take), with_kwargs=True)
    return module.register_forward_hook(_After(module, layer, take))


class _Before(Inert):
    def __init__(self, module: nn.Module, layer: Layer, take: Take) -> None:
        self._module, self._layer, self._take = weakref.ref(module), layer, take

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if torch.compiler.is_compiling():
            _leave_statistics(self._layer.slot, (args, kwargs))
        elif self._module() is module:
            self._take(self._layer, (args, dict(kwargs)))


class _After(Inert):
    def __init__(self, module: nn.Module, layer: Layer, take: Take) -> None:
        self._module, self._layer, self._take = weakref.ref(module), layer, take

    def __call__(self, module: nn.Module, _args: tuple[Any, ...], output: Any) -> None:
        if torch.compiler.is_compiling():
            _leave_statistics(self._layer.slot, output)
        elif self._module() is module:
            self._take(self._layer, output)


def _leave_statistics(slot: torch.Tensor, value: Any) -> None:
    """Traced by torch.compile: what is done here is done in the graph."""
    tensor = _first(value)
    if tensor is None or not tensor.numel() or tensor.is_complex():
        return
    with torch.no_grad():
        x = tensor.detach().float()
        is_nan, is_infinite = torch.isnan(x), torch.isinf(x)
        extremes = [x.mean(), x.std(correction=0), x.abs().mean(), x.amin(), x.amax()]
        counts = [(x == 0).sum(), is_nan.sum(), is_infinite.sum(), torch.full((), x.numel(), device=x.device)]
        slot.copy_(torch.stack([each.float() for each in extremes + counts]))


def _first(value: Any) -> torch.Tensor | None:
    if isinstance(value, torch.Tensor):
        return value
    parts = list(value.values()) if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else []
    for part in parts:
        found = _first(part)
        if found is not None:
            return found
    return None

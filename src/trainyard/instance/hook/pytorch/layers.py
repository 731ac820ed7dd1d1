"""The inputs and outputs of the layers that are recorded."""

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

import torch
from torch import nn

from trainyard.formats.tensors.contract import ABSENT, Kind, Statistic
from trainyard.instance.hook.pytorch import naming
from trainyard.instance.hook.pytorch.patches import InertHook
from trainyard.instance.hook.pytorch.roots import Root
from trainyard.instance.hook.selection import Selection, TensorSettings

# Further calls of a layer in the same step are ignored.
MAX_CALLS_PER_STEP = 64
# How many tensors of a layer are checked to decide whether the layer is recorded at all.
_CHECKED_TENSORS = 4


class Side(StrEnum):
    INPUT = "input"
    OUTPUT = "output"

    @property
    def kind(self) -> Kind:
        return Kind.INPUT if self is Side.INPUT else Kind.OUTPUT


@dataclass(frozen=True, slots=True)
class LayerTensor:
    """One of the tensors that a layer has in a step."""

    name: str
    settings: TensorSettings


class Layer:
    """One side of a layer: its inputs or its outputs. Caches the names of its tensors.

    In a compiled graph, the layer writes its statistics to `slot`, followed by its element count. `empty` is a slot
    without anything in it.
    """

    def __init__(self, prefix: str, side: Side, *, module: str, selection: Selection) -> None:
        self.prefix, self.side, self.module = prefix, side, module
        self.key = f"{prefix}_{side}"
        self.slot = self.empty = torch.empty(0)
        self.size = 0
        self._selection = selection
        self._tensors: list[LayerTensor] = []

    def tensor(self, number: int) -> LayerTensor:
        while len(self._tensors) <= number:
            name = f"{self.key}_{len(self._tensors)}"
            self._tensors.append(LayerTensor(name, self._selection.settings(name)))
        return self._tensors[number]

    @cached_property
    def is_selected(self) -> bool:
        return any(self._selection.is_selected(self.tensor(number).name) for number in range(_CHECKED_TENSORS))

    def make_slot(self, device: torch.device) -> None:
        self.empty = torch.full((len(Statistic) + 1,), ABSENT, device=device)
        self.slot = self.empty.clone()


ObserveLayer = Callable[[Layer, Any], None]


@dataclass(frozen=True, slots=True)
class AttachedLayers:
    """The layers that the hook is attached to, and the handles that detach it."""

    layers: list[Layer]
    handles: list[torch.utils.hooks.RemovableHandle]


def attach_to_layers(root: Root, selection: Selection, *, observe: ObserveLayer) -> AttachedLayers:
    """Attach to the layers of a model that are recorded, except losses, which are observed separately."""
    attached = AttachedLayers([], [])
    model = root.model
    first = None if model is None else next(model.parameters(), None)
    for name, module in model.named_modules() if model is not None else ():
        path = naming.path(name)
        if isinstance(module, nn.modules.loss._Loss):
            continue
        for side in Side:
            layer = Layer(root.prefix(path), side, module=path, selection=selection)
            if layer.is_selected:
                layer.make_slot(torch.device("cpu") if first is None else first.device)
                attached.layers.append(layer)
                attached.handles.append(_attach(module, layer, observe))
    return attached


def _attach(module: nn.Module, layer: Layer, observe: ObserveLayer) -> torch.utils.hooks.RemovableHandle:
    # Inputs are observed before the call, because a layer may change them in place.
    if layer.side is Side.INPUT:
        return module.register_forward_pre_hook(_InputHook(module, layer, observe), with_kwargs=True)
    return module.register_forward_hook(_OutputHook(module, layer, observe))


class _InputHook(InertHook):
    def __init__(self, module: nn.Module, layer: Layer, observe: ObserveLayer) -> None:
        self._module, self._layer, self._observe = weakref.ref(module), layer, observe

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if torch.compiler.is_compiling():
            _write_statistics(self._layer.slot, (args, kwargs))
        elif self._module() is module:
            self._observe(self._layer, (args, dict(kwargs)))


class _OutputHook(InertHook):
    def __init__(self, module: nn.Module, layer: Layer, observe: ObserveLayer) -> None:
        self._module, self._layer, self._observe = weakref.ref(module), layer, observe

    def __call__(self, module: nn.Module, _args: tuple[Any, ...], output: Any) -> None:
        if torch.compiler.is_compiling():
            _write_statistics(self._layer.slot, output)
        elif self._module() is module:
            self._observe(self._layer, output)


def _write_statistics(slot: torch.Tensor, value: Any) -> None:
    """Write statistics to a slot. torch.compile traces this, so it runs inside the graph."""
    tensor = _first_tensor(value)
    if tensor is None or not tensor.numel() or tensor.is_complex():
        return
    with torch.no_grad():
        x = tensor.detach().float()
        is_nan, is_infinite = torch.isnan(x), torch.isinf(x)
        extremes = [x.mean(), x.std(correction=0), x.abs().mean(), x.amin(), x.amax()]
        counts = [(x == 0).sum(), is_nan.sum(), is_infinite.sum(), torch.full((), x.numel(), device=x.device)]
        slot.copy_(torch.stack([each.float() for each in extremes + counts]))


def _first_tensor(value: Any) -> torch.Tensor | None:
    if isinstance(value, torch.Tensor):
        return value
    parts = list(value.values()) if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else []
    for part in parts:
        tensor = _first_tensor(part)
        if tensor is not None:
            return tensor
    return None

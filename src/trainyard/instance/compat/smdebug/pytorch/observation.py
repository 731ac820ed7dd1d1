"""Hooks on modules and parameters, and the capture that observes many tensors at once."""

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from trainyard.formats.tensors.contract import Kind
from trainyard.instance.hook.pytorch.patches import InertHook
from trainyard.instance.hook.pytorch.tensor_capture import TensorCapture
from trainyard.instance.hook.recording import HookRecording
from trainyard.instance.hook.selection import TensorSettings
from trainyard.instance.hook.steps import OpenStep

ObserveValue = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class NamedTensor:
    """A parameter or its gradient, with its name and what to record of it."""

    name: str
    kind: Kind
    module: str
    settings: TensorSettings
    parameter: torch.Tensor


class CallInputHook(InertHook):
    """Observes the inputs of a module. In a copy of the module, as DataParallel makes, it does nothing."""

    def __init__(self, module: nn.Module, observe: ObserveValue) -> None:
        self._module, self._observe = weakref.ref(module), observe

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if not torch.compiler.is_compiling() and self._module() is module:
            self._observe((args, dict(kwargs)))


class CallOutputHook(InertHook):
    """Observes the output of a module, except in its copies."""

    def __init__(self, module: nn.Module, observe: ObserveValue) -> None:
        self._module, self._observe = weakref.ref(module), observe

    def __call__(self, module: nn.Module, _args: tuple[Any, ...], output: Any) -> None:
        if not torch.compiler.is_compiling() and self._module() is module:
            self._observe(output)


class GradientHook(InertHook):
    """Observes the gradient of a parameter."""

    def __init__(self, named: NamedTensor, observe: Callable[[NamedTensor, torch.Tensor], None]) -> None:
        self._named, self._observe = named, observe

    def __call__(self, gradient: torch.Tensor) -> None:
        if not torch.compiler.is_compiling():
            self._observe(self._named, gradient)


class BatchTensorCapture(TensorCapture):
    """Observes many tensors in one call, which is much cheaper than one by one."""

    def __init__(self, recording: HookRecording) -> None:
        super().__init__(recording)
        # Reducers expect the same tuple object in every step.
        self._tuples: dict[tuple[int, ...], tuple[int, ...]] = {}

    def observe_named(self, step: OpenStep, tensors: Sequence[tuple[NamedTensor, torch.Tensor]]) -> None:
        plain: dict[int, torch.Tensor] = {}
        with_histogram: dict[int, torch.Tensor] = {}
        for named, tensor in tensors:
            request = self._recording.save_request(named.settings, step)
            if request is None and not self._recording.is_observed(named.settings, step):
                continue
            place = self._place(step, named.name, tensor, kind=named.kind, module=named.module)
            (with_histogram if request is not None and request.has_histogram else plain)[place] = tensor
            if request is not None:
                self._save(step, named.name, tensor, place=place, request=request)
        for group, has_histograms in ((plain, False), (with_histogram, True)):
            places = tuple(group)
            if places:
                cached = self._tuples.setdefault(places, places)
                self._reduction.reduce(step, cached, list(group.values()), has_histograms=has_histograms)

    def observe_result(self, step: OpenStep, prefix: str, tensor: torch.Tensor) -> str:
        """Observe a result under its prefix's next name, and return that name. A loss per sample is saved whole."""
        key = f"{prefix}_output"
        number = step.calls.get(key, 0)
        step.calls[key] = number + 1
        name = f"{key}_{number}"
        settings = self._recording.selection.settings(name)
        is_loss = settings.is_scalar and tensor.numel() == 1
        kind = Kind.LOSS if is_loss else Kind.OUTPUT
        self._observe(step, name, tensor, kind=kind, module="", settings=replace(settings, is_scalar=is_loss))
        return name

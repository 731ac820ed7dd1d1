"""Observes the calls of registered models. Each call is a step.

Weights are those before the call. Gradients are those of each backward, before they are accumulated.
"""

import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from trainyard.formats.tensors.contract import Kind
from trainyard.instance.hook.contract import StepObserver
from trainyard.instance.hook.pytorch import patches
from trainyard.instance.hook.pytorch.layers import Layer, Side
from trainyard.instance.hook.pytorch.roots import ModuleRegistry, Root
from trainyard.instance.hook.recording import HookRecording, StepObservers
from trainyard.instance.hook.steps import OpenStep

from .observation import BatchTensorCapture, CallInputHook, CallOutputHook, GradientHook, NamedTensor


class ModelCapture:
    """Attaches to torch for a hook. A failure never reaches the program: it ends the recording.

    `begin` begins a step of the hook and returns its recording, or None if nothing is recorded. `advance` is called
    after each forward and each backward.
    """

    def __init__(self, begin: Callable[[], HookRecording | None], advance: Callable[[], None]) -> None:
        self._begin, self._advance = begin, advance
        self._recording: HookRecording | None = None
        self._capture: BatchTensorCapture | None = None
        self._tops: dict[Root, weakref.ref[nn.Module]] = {}
        self._weights: dict[Root, list[NamedTensor]] = {}
        self._gradients: list[tuple[NamedTensor, torch.Tensor]] = []
        self._modules = ModuleRegistry()
        self._optimizers: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._observers: StepObservers | None = None
        self._calls = 0
        self.names: weakref.WeakKeyDictionary[nn.Module, str] = weakref.WeakKeyDictionary()

    def register(self, module: nn.Module) -> None:
        """Count the calls of a model. The first call attaches to everything of it that is recorded."""
        name = module._get_name()
        for path, each in module.named_modules():
            self.names[each] = path or name
        if not self._tops:
            patches.attach(self)
        self._tops[Root(module, name, self, is_first=True)] = weakref.ref(module)

    def has(self, module: nn.Module) -> bool:
        return any(top() is module for top in self._tops.values())

    def register_loss(self, module: nn.Module) -> None:
        name = self.names[module] = module._get_name()

        def observe_inputs(value: Any) -> None:
            self._guard(lambda step, capture: capture.observe_layer(step, self._layer(name, Side.INPUT), value))

        module.register_forward_pre_hook(CallInputHook(module, observe_inputs), with_kwargs=True)
        module.register_forward_hook(CallOutputHook(module, lambda output: self.record(name, output)))

    def record(self, name: str, value: Any) -> None:
        """Record a result under a name that the program chooses, such as a loss."""
        self._guard(lambda step, capture: self._record(step, capture, name=name, value=value))

    def finish(self) -> None:
        """Finish the open step."""
        self._observe_gradients()
        self._guard(lambda step, capture: capture.finish(step))

    def close(self) -> None:
        patches.detach(self)
        for root in self._tops:
            root.detach()

    # Implements roots.ForwardListener and patches.TorchListener.

    def enter(self, root: Root, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if not _is_of_training():
            return
        self._calls += 1
        recording = self._begin()
        if recording is None:
            return
        if self._capture is None:
            self._recording, self._capture = recording, BatchTensorCapture(recording)
            self._observers = StepObservers(recording)
        if root not in self._weights:
            self._guard(lambda _step, _capture: self._attach(root, recording))
            # Hooks just attached to the model itself run from its next call on.
            inputs = self._layer(root.name, Side.INPUT)
            self._guard(lambda step, capture: capture.observe_layer(step, inputs, (args, dict(kwargs))))
        self._guard(lambda step, capture: self._open(step, capture, root=root, batch=(args, kwargs)))

    # The output is observed like that of any layer.
    def leave(self, root: Root, output: Any) -> None:  # noqa: ARG002
        self._advance()

    def after_backward(self) -> None:
        self._observe_gradients()
        self._advance()

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizers.add(optimizer)
        self._guard(lambda step, _: self._notify(lambda observer: observer.end_step(step.number)))
        # If there were no calls, the model was wrapped or compiled after it was registered.
        if not self._calls:
            for root in self._tops:
                if root.model is not None:
                    root.attach(self._modules.wrapper_of(root.model))
        self._calls = 0

    def observe_module(self, module: nn.Module) -> None:
        self._modules.add(module)

    def before_step(
        self,
        optimizer: torch.optim.Optimizer,  # noqa: ARG002
        closure: patches.Closure | None,
    ) -> patches.Closure | None:
        return closure

    def observe_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Ignore it: an optimizer is remembered when it steps."""

    def skip_step(self) -> None:
        """Ignore it: a call is a step, whatever follows it."""

    def observe_loss(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        """Ignore it: only registered losses are observed."""

    def before_backward(self, _tensors: Any) -> None:
        """Ignore it: only registered losses are observed."""

    def abandon_backward(self) -> None:
        """Ignore it: there are no gradients to observe."""

    # Everything below runs inside a step.

    def _guard(self, work: Callable[[OpenStep, BatchTensorCapture], None]) -> None:
        recording, capture = self._recording, self._capture
        if recording is None or capture is None or recording.is_off or recording.open_step is None:
            return
        began = time.perf_counter_ns()
        try:
            work(recording.open_step, capture)
        # Whatever failed, the training must continue.
        except Exception as error:
            recording.fail(error)
        finally:
            recording.throttle.spend(time.perf_counter_ns() - began)

    def _open(
        self,
        step: OpenStep,
        capture: BatchTensorCapture,
        *,
        root: Root,
        batch: tuple[tuple[Any, ...], Mapping[str, Any]],
    ) -> None:
        models, optimizers = [each.model for each in self._tops if each.model is not None], list(self._optimizers)
        self._notify(
            lambda observer: observer.begin_step(step.number, mode=step.mode, models=models, optimizers=optimizers)
        )
        self._notify(lambda observer: observer.batch(root.model, *batch))
        capture.observe_named(step, [(each, each.parameter) for each in self._weights[root]])

    def _record(self, step: OpenStep, capture: BatchTensorCapture, *, name: str, value: Any) -> None:
        if not isinstance(value, torch.Tensor):
            capture.observe_layer(step, self._layer(name, Side.OUTPUT), value)
            return
        tensor = capture.observe_result(step, name, value.detach())
        self._notify(lambda observer: observer.loss(tensor, value.detach()))

    def _observe_gradients(self) -> None:
        gradients, self._gradients = self._gradients, []
        if gradients:
            self._guard(lambda step, capture: capture.observe_named(step, gradients))

    def _attach(self, root: Root, recording: HookRecording) -> None:
        """Attach to the layers and parameters of a model that are recorded."""
        self._weights[root] = []
        top = self._tops[root]()
        if top is None:
            return
        for path, module in top.named_modules():
            for side in Side:
                self._attach_to_layer(module, self._layer(path or root.name, side, module=path))
        for named in _parameters(root.name, top, recording):
            if named.kind is not Kind.GRADIENT:
                self._weights[root].append(named)
            elif named.parameter.requires_grad:
                named.parameter.register_hook(GradientHook(named, self._queue_gradient))

    def _queue_gradient(self, named: NamedTensor, gradient: torch.Tensor) -> None:
        """Queue a gradient: all are observed together after the backward."""
        self._gradients.append((named, gradient.detach()))

    def _attach_to_layer(self, module: nn.Module, layer: Layer) -> None:
        if not layer.is_selected:
            return

        def observe(value: Any) -> None:
            if _is_of_training():
                self._guard(lambda step, capture: capture.observe_layer(step, layer, value))

        # Inputs are observed before the call, because a layer may change them in place.
        if layer.side is Side.INPUT:
            module.register_forward_pre_hook(CallInputHook(module, observe), with_kwargs=True)
        else:
            module.register_forward_hook(CallOutputHook(module, observe))

    def _layer(self, prefix: str, side: Side, *, module: str = "") -> Layer:
        assert self._recording is not None, "a step has begun"
        return Layer(prefix, side, module=module, selection=self._recording.selection)

    def _notify(self, call: Callable[[StepObserver], None]) -> None:
        assert self._observers is not None, "a step has begun"
        self._observers.notify(call)


def _is_of_training() -> bool:
    """Whether the program made this call, rather than a trace or a backward that recomputes activations."""
    return not patches.is_in_backward() and torch._C._get_tracing_state() is None


def _parameters(root: str, model: nn.Module, recording: HookRecording) -> Iterator[NamedTensor]:
    """Yield the recorded parameters of a model and their gradients."""
    for path, parameter in model.named_parameters():
        kind = Kind.BIAS if path.rpartition(".")[2].startswith("bias") else Kind.WEIGHT
        for name, own in ((f"{root}_{path}", kind), (f"gradient/{root}_{path}", Kind.GRADIENT)):
            if recording.selection.is_selected(name):
                settings = recording.selection.settings(name)
                yield NamedTensor(name, own, path.rpartition(".")[0], settings, parameter)

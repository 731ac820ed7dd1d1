"""Takes what happens in the calls of registered models into steps, each of which is one call.

Weights are those before the call, gradients what each backward brings, before it is added to what was there.
"""

import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from trainyard.formats.tensors.contract import Kind
from trainyard.instance.hook.contract import StepObserver
from trainyard.instance.hook.observing import Observers
from trainyard.instance.hook.pytorch import patches
from trainyard.instance.hook.pytorch.layers import Layer, Side
from trainyard.instance.hook.pytorch.roots import Modules, Root
from trainyard.instance.hook.recording import Recording
from trainyard.instance.hook.steps import OpenStep

from .listening import AfterCall, BeforeCall, OnGradient
from .taking import ManyCapturing, Named


class Capture:
    """Listens to torch for a hook. Nothing that fails in it reaches the program: it ends the recording.

    `begin` begins a step of the hook and returns its recording, or None where nothing is recorded. `advance` is called
    whenever a forward or a backward is over.
    """

    def __init__(self, begin: Callable[[], Recording | None], advance: Callable[[], None]) -> None:
        self._begin, self._advance = begin, advance
        self._recording: Recording | None = None
        self._capturing: ManyCapturing | None = None
        self._tops: dict[Root, weakref.ref[nn.Module]] = {}
        self._weights: dict[Root, list[Named]] = {}
        self._gradients: list[tuple[Named, torch.Tensor]] = []
        self._modules = Modules()
        self._optimizers: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._observers: Observers | None = None
        self._calls = 0
        self.names: weakref.WeakKeyDictionary[nn.Module, str] = weakref.WeakKeyDictionary()

    def register(self, module: nn.Module) -> None:
        """Count the calls of a model, and from the first on listen to all of it that is asked for."""
        name = module._get_name()
        for path, each in module.named_modules():
            self.names[each] = path or name
        if not self._tops:
            patches.listen(self)
        self._tops[Root(module, name, self, is_first=True)] = weakref.ref(module)

    def has(self, module: nn.Module) -> bool:
        return any(top() is module for top in self._tops.values())

    def register_loss(self, module: nn.Module) -> None:
        name = self.names[module] = module._get_name()

        def take_inputs(value: Any) -> None:
            self._guard(lambda step, capturing: capturing.take_layer(step, self._layer(name, Side.INPUT), value))

        module.register_forward_pre_hook(BeforeCall(module, take_inputs), with_kwargs=True)
        module.register_forward_hook(AfterCall(module, lambda output: self.record(name, output)))

    def record(self, name: str, value: Any) -> None:
        """A result that the program calls by this name, such as a loss."""
        self._guard(lambda step, capturing: self._record(step, capturing, name=name, value=value))

    def finish(self) -> None:
        """The open step is over."""
        self._take_gradients()
        self._guard(lambda step, capturing: capturing.finish(step))

    def close(self) -> None:
        patches.leave(self)
        for root in self._tops:
            root.remove()

    # What torch tells: roots.ModelWatcher and patches.Listener.

    def enter(self, root: Root, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if not _is_of_training():
            return
        self._calls += 1
        recording = self._begin()
        if recording is None:
            return
        if self._capturing is None:
            self._recording, self._capturing = recording, ManyCapturing(recording)
            self._observers = Observers(recording)
        if root not in self._weights:
            self._guard(lambda _step, _capturing: self._hang(root, recording))
            # What is hung on the model itself is called from its next call on.
            inputs = self._layer(root.name, Side.INPUT)
            self._guard(lambda step, capturing: capturing.take_layer(step, inputs, (args, dict(kwargs))))
        self._guard(lambda step, capturing: self._open(step, capturing, root=root, batch=(args, kwargs)))

    def leave(self, root: Root, output: Any) -> None:  # noqa: ARG002  # outputs are taken as those of any layer
        self._advance()

    def after_backward(self) -> None:
        self._take_gradients()
        self._advance()

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizers.add(optimizer)
        self._guard(lambda step, _: self._observe(lambda observer: observer.end_step(step.number)))
        if not self._calls:  # the model was wrapped or compiled after it was registered
            for root in self._tops:
                if root.model is not None:
                    root.hang(self._modules.wrapper_of(root.model))
        self._calls = 0

    def meet_module(self, module: nn.Module) -> None:
        self._modules.add(module)

    def before_step(
        self,
        optimizer: torch.optim.Optimizer,  # noqa: ARG002
        closure: patches.Closure | None,
    ) -> patches.Closure | None:
        return closure

    def meet_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """One that steps is met then."""

    def skip_step(self) -> None:
        """A call is a step, whatever follows it."""

    def see_loss(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        """Only losses that are registered are taken."""

    def before_backward(self, loss: torch.Tensor) -> None:
        """And no others."""

    # The rest happens inside of a step.

    def _guard(self, work: Callable[[OpenStep, ManyCapturing], None]) -> None:
        recording, capturing = self._recording, self._capturing
        if recording is None or capturing is None or recording.is_off or recording.open_step is None:
            return
        began = time.perf_counter_ns()
        try:
            work(recording.open_step, capturing)
        except Exception as error:  # whatever it is, the training goes on
            recording.fail(error)
        finally:
            recording.throttle.spend(time.perf_counter_ns() - began)

    def _open(
        self, step: OpenStep, capturing: ManyCapturing, *, root: Root, batch: tuple[tuple[Any, ...], Mapping[str, Any]]
    ) -> None:
        models, optimizers = [each.model for each in self._tops if each.model is not None], list(self._optimizers)
        self._observe(
            lambda observer: observer.begin_step(step.number, mode=step.mode, models=models, optimizers=optimizers)
        )
        self._observe(lambda observer: observer.batch(root.model, *batch))
        capturing.take_named(step, [(each, each.parameter) for each in self._weights[root]])

    def _record(self, step: OpenStep, capturing: ManyCapturing, *, name: str, value: Any) -> None:
        if not isinstance(value, torch.Tensor):
            capturing.take_layer(step, self._layer(name, Side.OUTPUT), value)
            return
        tensor = capturing.take_result(step, name, value.detach())
        self._observe(lambda observer: observer.loss(tensor, value.detach()))

    def _take_gradients(self) -> None:
        taken, self._gradients = self._gradients, []
        if taken:
            self._guard(lambda step, capturing: capturing.take_named(step, taken))

    def _hang(self, root: Root, recording: Recording) -> None:
        """Listen to the layers and parameters of a model of which anything is asked."""
        self._weights[root] = []
        top = self._tops[root]()
        if top is None:
            return
        for path, module in top.named_modules():
            for side in Side:
                self._hang_on(module, self._layer(path or root.name, side, module=path))
        for named in _parameters(root.name, top, recording):
            if named.kind is not Kind.GRADIENT:
                self._weights[root].append(named)
            elif named.parameter.requires_grad:
                named.parameter.register_hook(OnGradient(named, self._gradients_of_now))

    def _gradients_of_now(self, named: Named, gradient: torch.Tensor) -> None:
        """They are taken together, when the backward is over."""
        self._gradients.append((named, gradient.detach()))

    def _hang_on(self, module: nn.Module, layer: Layer) -> None:
        if not layer.is_asked:
            return

        def take(value: Any) -> None:
            if _is_of_training():
                self._guard(lambda step, capturing: capturing.take_layer(step, layer, value))

        if layer.side is Side.INPUT:  # which is taken before, since a layer may change it in place
            module.register_forward_pre_hook(BeforeCall(module, take), with_kwargs=True)
        else:
            module.register_forward_hook(AfterCall(module, take))

    def _layer(self, prefix: str, side: Side, *, module: str = "") -> Layer:
        assert self._recording is not None, "a step has begun"
        return Layer(prefix, side, module=module, selection=self._recording.selection)

    def _observe(self, tell: Callable[[StepObserver], None]) -> None:
        assert self._observers is not None, "a step has begun"
        self._observers.tell(tell)


def _is_of_training() -> bool:
    """Whether a call is one of the program: not of a trace, nor of activations that a backward computes again."""
    return not patches.is_in_backward() and torch._C._get_tracing_state() is None


def _parameters(root: str, model: nn.Module, recording: Recording) -> Iterator[Named]:
    """The parameters of a model and their gradients, of which anything is asked."""
    for path, parameter in model.named_parameters():
        kind = Kind.BIAS if path.rpartition(".")[2].startswith("bias") else Kind.WEIGHT
        for name, own in ((f"{root}_{path}", kind), (f"gradient/{root}_{path}", Kind.GRADIENT)):
            if recording.selection.is_asked(name):
                choice = recording.selection.choice(name)
                yield Named(name, own, path.rpartition(".")[0], choice, parameter)

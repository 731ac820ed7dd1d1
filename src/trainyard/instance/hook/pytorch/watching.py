"""Follows a training in torch from step to step.

A step of training begins with the first forward of a model after the last optimizer step, and ends with an optimizer
step: forwards in between, as gradients are accumulated, belong to one step. Where no optimizer steps, a change of the
parameters ends it. A step of evaluation is one forward. A model in training mode under `no_grad` (the generator, while
a discriminator learns) begins no step. Two optimizers that step one after the other belong to one step; with a forward
in between, as in adversarial training, each has its own.
"""

import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from trainyard.formats.tensors.contract import Kind, Mode
from trainyard.instance.hook import process
from trainyard.instance.hook.observing import Observers
from trainyard.instance.hook.pytorch import patches
from trainyard.instance.hook.pytorch.capturing import Capturing
from trainyard.instance.hook.pytorch.layers import Layer, Side, hang_on_layers
from trainyard.instance.hook.pytorch.models import Models
from trainyard.instance.hook.pytorch.patches import Closure
from trainyard.instance.hook.pytorch.roots import Root
from trainyard.instance.hook.recording import SCALAR, Recording
from trainyard.instance.hook.steps import OpenStep

FUNCTIONAL_LOSS = "loss"  # the name of what backward() is called on and no loss module made: loss_output_0
_MOST_ACCUMULATED = 64  # forwards in a step of a program whose optimizer has never stepped
_STEADY = 2  # steps with one optimizer each, after which one is handed over as soon as its optimizer has stepped

_transform: Callable[[], object] = getattr(
    torch._C._functorch, "peek_interpreter_stack", lambda: None
)  # none before 2.1


class TorchHook:
    """Captures a training. Everything it does in the program's thread is timed, and nothing raises into it.

    `finds_models` looks for models by itself; `waits_for_more` keeps a step open until the next begins, so that a
    program may add to it after its optimizer has stepped.
    """

    def __init__(self, recording: Recording, *, finds_models: bool = True, waits_for_more: bool = False) -> None:
        self.recording = recording
        self._capturing = Capturing(recording)
        self._observers = Observers(recording)
        self._waits = waits_for_more
        self._handles: list[torch.utils.hooks.RemovableHandle] = []
        self._mode: Mode | None = None
        self._thread: int | None = None
        self._losses: list[weakref.ref[torch.Tensor]] = []
        self._loss_inputs: dict[str, Layer] = {}
        self._early: list[tuple[str, float]] = []  # scalars told before a step
        self._steady = 0
        self._has_stepped = False  # any optimizer, ever
        self._is_manual = False  # the program changes its parameters without one
        self._reset_step()
        self._models = Models(recording, self, finds=finds_models, hang=self._hang)
        process.release(recording)  # which is closed here, with the step that is open
        process.bind(self)
        patches.listen(self)

    def watch(self, model: nn.Module, *, loss: nn.Module | None = None) -> None:
        """Take a model as one that is trained, with its loss module if that is not one of torch's."""
        self._guard(lambda: self._watch(model))
        if loss is not None:
            patches.hang_on_loss(loss)

    def set_mode(self, mode: Mode | None) -> None:
        """What the program does from now on; None is told by the model's own mode."""
        self._mode = mode

    def save_scalar(self, name: str, value: float) -> None:
        self._guard(lambda: self._save_scalar(name, value))

    def save_tensor(self, name: str, value: Any) -> None:
        self._guard(lambda: self._save_tensor(name, value))

    def close(self) -> None:
        """Let go of the program and write what is left."""
        process.release(self)
        patches.leave(self)
        self._guard(self._finish)
        for handle in self._handles:
            handle.remove()
        self._models.remove()
        self.recording.close()

    def forget(self) -> None:
        """This is a forked child, which is none of the training."""
        patches.leave(self)
        self.recording.forget()

    def meet_module(self, module: nn.Module) -> None:
        self._models.meet_module(module)

    def meet_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        self._guard(lambda: self._models.meet_optimizer(optimizer))

    def enter(self, root: Root, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if self._is_ours():
            self._guard(lambda: self._enter(root, args, kwargs))

    def leave(self, _root: Root, output: Any) -> None:
        step = self.recording.open_step
        if step is not None and step.mode is not Mode.TRAIN and self._is_ours():
            self._guard(lambda: self._leave(step, output))

    def see_loss(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if self._is_ours():
            self._guard(lambda: self._see_loss(module, args, output))

    def before_backward(self, loss: torch.Tensor) -> None:
        if self._is_ours():
            self._guard(lambda: self._before_backward(loss))

    def after_backward(self) -> None:
        if not self._has_stepped and self._is_ours():
            self._guard(self._after_backward)

    def before_step(self, optimizer: torch.optim.Optimizer, closure: Closure | None) -> Closure | None:
        if not self._has_stepped:
            self._thread = None  # what this thread does is the training, whoever came first
        if not self._is_ours():
            return closure
        if closure is None:
            self._guard(lambda: self._before_step(optimizer))
            return None
        return self._taking_after(closure, optimizer)

    def after_step(self, optimizer: torch.optim.Optimizer) -> None:
        if self._is_ours():
            self._guard(lambda: self._after_step(optimizer))

    def skip_step(self) -> None:
        if self._is_ours():
            self._guard(self._skip_step)

    def _guard(self, work: Callable[[], None]) -> None:
        if self.recording.is_off:
            return
        began = time.perf_counter_ns()
        try:
            work()
        except Exception as error:
            self.recording.fail(error)
        finally:
            self.recording.throttle.spend(time.perf_counter_ns() - began)

    def _is_ours(self) -> bool:
        """Whether this is the thread that trains, and outside of a trace and a functional transform."""
        if self.recording.is_off or torch._C._get_tracing_state() is not None:
            return False
        if _transform() is not None:
            return False
        ident = threading.get_ident()
        if self._thread is None:
            self._thread = ident
        return self._thread == ident

    def _reset_step(self) -> None:
        self._forwards, self._backwards, self._steps = 0, 0, 0
        self._version = -1

    def _watch(self, model: nn.Module) -> None:
        self._models.add(model)

    def _hang(self, root: Root) -> None:
        """A model is watched from now on: its layers are as well, as far as they are asked for."""
        hung = hang_on_layers(root, self.recording.selection, take=self._take_layer)
        self._handles += hung.handles
        self._capturing.slots.add(hung.layers)

    def _enter(self, root: Root, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        mode = None if patches.is_in_backward() else self._mode_of(root)
        if mode is None:
            return
        if self._begins_step(root, mode):
            self._begin(mode)
        step = self.recording.open_step
        if step is None:
            return
        self._forwards += 1
        if not self._has_stepped:
            self._version = _version(root)
        self._observers.tell(lambda observer: observer.batch(root.model, args, kwargs))

    def _mode_of(self, root: Root) -> Mode | None:
        if self._mode is not None:
            return self._mode
        model = root.model
        if model is None or (model.training and not torch.is_grad_enabled()):
            return None
        is_training = model.training or (root.trains_in_eval_mode and torch.is_grad_enabled())
        return Mode.TRAIN if is_training else Mode.EVAL

    def _begins_step(self, root: Root, mode: Mode) -> bool:
        """Whether a forward is the first of a step: the one that is open has ended, or is of another sort."""
        step = self.recording.open_step
        if step is None or step.mode is not mode or mode is not Mode.TRAIN:
            return True
        if self._steps or self._has_stepped or not self._backwards:
            return self._steps > 0
        is_over = self._forwards >= _MOST_ACCUMULATED or _version(root) != self._version or _has_no_gradient(root)
        self._is_manual = self._is_manual or is_over
        return is_over

    def _begin(self, mode: Mode) -> None:
        self._finish()
        self.recording.begin(mode)
        step = self.recording.open_step
        if step is None:
            return
        for name, value in self._early:
            self.recording.set_scalar(step, f"{SCALAR}{name}", value, kind=Kind.SCALAR)
        self._early.clear()
        if self._observers:
            known = {"models": self._models.models, "optimizers": self._models.optimizers}
            self._observers.tell(lambda observer: observer.begin_step(step.number, mode=mode, **known))

    def _finish(self) -> None:
        step = self.recording.open_step
        if step is not None:
            if step.mode is Mode.TRAIN and self._steps:
                self._steady = self._steady + 1 if self._steps == 1 else 0
                self._waits = self._waits or self._steps > 1
            elif step.mode is not Mode.TRAIN:
                self._observers.tell(lambda observer: observer.end_step(step.number))
            self._capturing.finish(step)
            self.recording.finish()
        self._losses.clear()
        self._reset_step()

    def _leave(self, step: OpenStep, output: Any) -> None:
        """A model that computes its own loss, as those of transformers do, gives it out: the only way to see it where
        no backward follows."""
        if torch.is_grad_enabled():
            return
        loss = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
        if isinstance(loss, torch.Tensor) and loss.numel() == 1:
            self._take_loss(step, FUNCTIONAL_LOSS, loss)

    def _take_layer(self, layer: Layer, value: Any) -> None:
        step = self.recording.open_step
        if step is None or self._steps or patches.is_in_backward():
            return
        if not step.is_full and not step.due:  # decided here, since a model may have thousands of layers
            step.calls[layer.key] = 1
            step.lacks += 1
        elif self._is_ours():
            self._guard(lambda: self._capturing.take_layer(step, layer, value))

    def _see_loss(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if patches.is_in_backward() or not isinstance(output, torch.Tensor):
            return
        step = self._step_for_loss() if output.requires_grad else self.recording.open_step
        if step is None or self._steps:
            return
        name = type(module).__name__
        inputs = self._loss_inputs.get(name)
        if inputs is None:
            inputs = Layer(name, Side.INPUT, module="", selection=self.recording.selection)
            self._loss_inputs[name] = inputs
        if inputs.is_asked:
            self._capturing.take_layer(step, inputs, args)
        self._take_loss(step, name, output)

    def _before_backward(self, loss: torch.Tensor) -> None:
        step = self._step_for_loss()
        if step is None or self._steps:
            return
        self._backwards += 1
        if not any(reference() is loss for reference in self._losses):
            self._take_loss(step, FUNCTIONAL_LOSS, loss)

    def _step_for_loss(self) -> OpenStep | None:
        """A loss begins a step where the model is no module, or cannot be seen; but not where others are watched."""
        is_over = self.recording.open_step is None or self._steps > 0
        if is_over and (self._models.finds or not self._models.roots):
            self._begin(self._mode or Mode.TRAIN)
        return self.recording.open_step

    def _take_loss(self, step: OpenStep, prefix: str, loss: torch.Tensor) -> None:
        name = self._capturing.take_loss(step, prefix, loss.detach())
        self._losses.append(weakref.ref(loss))
        self._observers.tell(lambda observer: observer.loss(name, loss.detach()))

    def _after_backward(self) -> None:
        """Where no optimizer will tell, the gradients are there now."""
        step = self.recording.open_step
        is_manual = self._is_manual or not self._models.optimizers
        if step is not None and is_manual:
            self._capturing.take_parameters(step, self._models.plan_of_all())

    def _taking_after(self, closure: Closure, optimizer: torch.optim.Optimizer) -> Closure:
        """The first time that an optimizer has its gradients computed, its parameters are not stepped yet."""
        is_taken = False

        def compute() -> Any:
            nonlocal is_taken
            loss = closure()
            if not is_taken:
                is_taken = True
                self._guard(lambda: self._before_step(optimizer))
            return loss

        return compute

    def _before_step(self, optimizer: torch.optim.Optimizer) -> None:
        if not self._models.meet_step(optimizer):
            return
        self._has_stepped = True
        step = self.recording.open_step
        if step is None:
            # A second optimizer may have come after its step was handed over: from now on, steps wait for such.
            self._waits = self._waits or self._steady >= _STEADY
            self._begin(self._mode or Mode.TRAIN)
        elif step.mode is not Mode.TRAIN and self._mode is None:
            self._retrain()
        step = self.recording.open_step
        if step is not None:
            scale = getattr(optimizer, "grad_scale", None)  # where it unscales gradients itself
            self._capturing.take_parameters(step, self._models.plan(optimizer), scale=scale)

    def _retrain(self) -> None:
        """What looked like an evaluation is a training in evaluation mode, as where batch norms are frozen."""
        self.recording.relabel(Mode.TRAIN)
        for root in self._models.roots:
            root.trains_in_eval_mode = root.trains_in_eval_mode or root.calls > 0

    def _after_step(self, optimizer: torch.optim.Optimizer) -> None:
        step = self.recording.open_step
        if step is None or not self._models.is_stepped_by(optimizer):
            return
        self._steps += 1
        self._observers.tell(lambda observer: observer.end_step(step.number))
        if not self._forwards:
            self._models.look_again(optimizer)
        if not self._waits and self._steady >= _STEADY:
            self._finish()

    def _skip_step(self) -> None:
        """The gradients were not finite and the optimizer did not step: what was taken is taken again."""
        step = self.recording.open_step
        if step is not None and not self._steps and self._backwards:
            step.calls.clear()
            self._losses.clear()
            self._reset_step()

    def _save_scalar(self, name: str, value: float) -> None:
        try:
            number = float(value)
        except (TypeError, ValueError, RuntimeError):
            self.recording.note(f'The scalar "{name}" is no single number, and is not saved.')
            return
        step = self.recording.open_step
        if step is None:
            self._early.append((name, number))
        else:
            self.recording.set_scalar(step, f"{SCALAR}{name}", number, kind=Kind.SCALAR)

    def _save_tensor(self, name: str, value: Any) -> None:
        step = self.recording.open_step
        try:
            tensor = value if isinstance(value, torch.Tensor) else torch.as_tensor(value)
        except (TypeError, ValueError, RuntimeError):
            self.recording.note(f'"{name}" cannot be made a tensor, and is not saved.')
            return
        if step is not None:
            self._capturing.take_custom(step, name, tensor.detach())


def _version(root: Root) -> int:
    """Changes whenever a parameter is changed in place."""
    model = root.model
    return 0 if model is None else sum(each._version for each in model.parameters() if each.requires_grad)


def _has_no_gradient(root: Root) -> bool:
    model = root.model
    return model is None or all(parameter.grad is None for parameter in model.parameters())

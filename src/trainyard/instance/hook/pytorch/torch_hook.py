"""Follows a torch training from step to step.

A training step begins with the first forward of a model after the last optimizer step, and ends with an optimizer step:
forwards in between, which accumulate gradients, belong to one step. Without an optimizer, a change of the parameters
ends the step. An evaluation step is one forward. A model in training mode under `no_grad` (a generator while its
discriminator learns) begins no step. Two optimizers that step one after the other share one step; with a forward in
between, as in adversarial training, each has its own.
"""

import threading
import time
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from trainyard.formats.tensors.contract import Kind, Mode
from trainyard.instance.hook import process
from trainyard.instance.hook.pytorch import patches
from trainyard.instance.hook.pytorch.layers import Layer, Side, attach_to_layers
from trainyard.instance.hook.pytorch.models import WatchedModels
from trainyard.instance.hook.pytorch.patches import Closure
from trainyard.instance.hook.pytorch.roots import Root
from trainyard.instance.hook.pytorch.tensor_capture import TensorCapture
from trainyard.instance.hook.recording import SCALAR_PREFIX, HookRecording, StepObservers
from trainyard.instance.hook.steps import OpenStep

# The prefix for a loss that no loss module computed, on which backward() is called: loss_output_0.
FUNCTIONAL_LOSS = "loss"
# Forwards in one step of a program whose optimizer has never stepped.
_MAX_ACCUMULATED_FORWARDS = 64
# After this many steps with one optimizer each, a step is handed over as soon as its optimizer has stepped.
_STEADY_STEPS = 2

# Missing before torch 2.1.
_current_transform: Callable[[], object] = getattr(torch._C._functorch, "peek_interpreter_stack", lambda: None)


class TorchHook:
    """Captures a training. Everything it does on the program's thread is timed, and no error reaches the program.

    `finds_models` finds models automatically. With `waits_for_more`, the program can add to a step after its optimizer
    has stepped, until the next step begins.
    """

    def __init__(self, recording: HookRecording, *, finds_models: bool = True, waits_for_more: bool = False) -> None:
        self.recording = recording
        self._capture = TensorCapture(recording)
        self._observers = StepObservers(recording)
        # A step that may be amended is handed over before the program adds to it.
        self._is_amendable, self._waits = waits_for_more, waits_for_more
        self._handles: list[torch.utils.hooks.RemovableHandle] = []
        self._mode: Mode | None = None
        self._thread: int | None = None
        self._losses: list[weakref.ref[torch.Tensor]] = []
        self._loss_inputs: dict[str, Layer] = {}
        # Scalars that the program saved before a step began.
        self._early_scalars: list[tuple[str, float]] = []
        self._steady = 0
        # Whether any optimizer has ever stepped.
        self._has_stepped = False
        # Whether the program changes its parameters without an optimizer.
        self._is_manual = False
        self._forwards, self._backwards, self._steps = 0, 0, 0
        self._version = -1
        recording.before_flush = self._hand_over_to_reader
        self._models = WatchedModels(recording, self, finds=finds_models, attach=self._attach)
        # From now on, `close` closes the recording, after finishing the open step.
        process.release(recording)
        process.bind(self)
        patches.attach(self)

    def watch(self, model: nn.Module, *, loss: nn.Module | None = None) -> None:
        """Watch a model that is trained, with its loss module if that is not one of torch's."""
        self._guard(lambda: self._watch(model))
        if loss is not None:
            patches.attach_to_loss(loss)

    def set_mode(self, mode: Mode | None) -> None:
        """Set the mode from now on. With None, the model's own mode decides."""
        self._mode = mode

    def save_scalar(self, name: str, value: float) -> None:
        self._guard(lambda: self._save_scalar(name, value))

    def save_tensor(self, name: str, value: Any) -> None:
        self._guard(lambda: self._save_tensor(name, value))

    def close(self) -> None:
        """Detach from the program and write the remaining steps."""
        process.release(self)
        patches.detach(self)
        self._guard(self._finish)
        for handle in self._handles:
            handle.remove()
        self._models.detach()
        self.recording.close()

    def forget(self) -> None:
        """Detach without writing, in a forked child, which is not part of the training."""
        patches.detach(self)
        self.recording.forget()

    def observe_module(self, module: nn.Module) -> None:
        self._models.observe_module(module)

    def observe_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        self._guard(lambda: self._models.observe_optimizer(optimizer))

    def enter(self, root: Root, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if self._is_ours():
            self._guard(lambda: self._enter(root, args, kwargs))

    def leave(self, _root: Root, output: Any) -> None:
        step = self.recording.open_step
        if step is not None and step.mode is not Mode.TRAIN and self._is_ours():
            self._guard(lambda: self._leave(step, output))

    def observe_loss(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if self._is_ours():
            self._guard(lambda: self._observe_loss(module, args, output))

    def before_backward(self, tensors: Any) -> None:
        for loss in patches.losses_of(tensors) if self._is_ours() else ():
            self._guard(partial(self._before_backward, loss))

    def abandon_backward(self) -> None:
        """Ignore it: what was observed before it stays."""

    def after_backward(self) -> None:
        if not self._has_stepped and self._is_ours():
            self._guard(self._after_backward)

    def before_step(self, optimizer: torch.optim.Optimizer, closure: Closure | None) -> Closure | None:
        if not self._has_stepped:
            # The thread that steps an optimizer is the training thread, even if another ran a forward first.
            self._thread = None
        if not self._is_ours():
            return closure
        if closure is None:
            self._guard(lambda: self._before_step(optimizer))
            return None
        return self._observe_after(closure, optimizer)

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

    def _hand_over_to_reader(self) -> None:
        """Hand over a step whose optimizer has stepped, because the program is about to read it."""
        step = self.recording.open_step
        if step is not None and self._steps and self._thread == threading.get_ident():
            self._guard(lambda: self._hand_over(step))

    def _hand_over(self, step: OpenStep) -> None:
        """Finish a step to which the program may still add."""
        step.may_be_amended = True
        self._finish()

    def _reopen(self) -> OpenStep | None:
        """Return the open step, or the one that was handed over early."""
        step = self.recording.open_step or self.recording.reopen()
        if step is not None and step.amends:
            # The next forward begins another step.
            self._steps = max(self._steps, 1)
        return step

    def _is_ours(self) -> bool:
        """Whether this is the training thread, outside of any trace or functional transform."""
        if self.recording.is_off or torch._C._get_tracing_state() is not None:
            return False
        if _current_transform() is not None:
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

    def _attach(self, root: Root) -> None:
        """Attach to the recorded layers of a model."""
        attached = attach_to_layers(root, self.recording.selection, observe=self._observe_layer)
        self._handles += attached.handles
        self._capture.slots.add(attached.layers)

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
        self._observers.notify(lambda observer: observer.batch(root.model, args, kwargs))

    def _mode_of(self, root: Root) -> Mode | None:
        if self._mode is not None:
            return self._mode
        model = root.model
        if model is None or (model.training and not torch.is_grad_enabled()):
            return None
        is_training = model.training or (root.trains_in_eval_mode and torch.is_grad_enabled())
        return Mode.TRAIN if is_training else Mode.EVAL

    def _begins_step(self, root: Root, mode: Mode) -> bool:
        """Whether a forward is the first of a step: the open step has ended, or is of another mode."""
        step = self.recording.open_step
        if step is None or step.mode is not mode or mode is not Mode.TRAIN:
            return True
        if self._steps or self._has_stepped or not self._backwards:
            return self._steps > 0
        is_over = (
            self._forwards >= _MAX_ACCUMULATED_FORWARDS or _version(root) != self._version or _has_no_gradient(root)
        )
        self._is_manual = self._is_manual or is_over
        return is_over

    def _begin(self, mode: Mode) -> None:
        self._finish()
        self.recording.begin(mode)
        step = self.recording.open_step
        if step is None:
            return
        for name, value in self._early_scalars:
            self.recording.set_scalar(step, f"{SCALAR_PREFIX}{name}", value, kind=Kind.SCALAR)
        self._early_scalars.clear()
        if self._observers:
            known = {"models": self._models.models, "optimizers": self._models.optimizers}
            self._observers.notify(lambda observer: observer.begin_step(step.number, mode=mode, **known))

    def _finish(self) -> None:
        step = self.recording.open_step
        if step is not None:
            if step.mode is Mode.TRAIN and self._steps and not step.amends:
                self._steady = self._steady + 1 if self._steps == 1 else 0
                self._waits = self._waits or self._steps > 1
            elif step.mode is not Mode.TRAIN:
                self._observers.notify(lambda observer: observer.end_step(step.number))
            self._capture.finish(step)
            self.recording.finish()
        self._losses.clear()
        self._reset_step()

    def _leave(self, step: OpenStep, output: Any) -> None:
        """Observe the loss in the output of a model that computes its own, as those of transformers do.

        Without a backward, this is the only way to observe it.
        """
        if torch.is_grad_enabled():
            return
        loss = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
        if isinstance(loss, torch.Tensor) and loss.numel() == 1:
            self._record_loss(step, FUNCTIONAL_LOSS, loss)

    def _observe_layer(self, layer: Layer, value: Any) -> None:
        step = self.recording.open_step
        if step is None or self._steps or patches.is_in_backward():
            return
        # Decided here, because a model may have thousands of layers.
        if not step.is_full and not step.due:
            step.calls[layer.key] = 1
            step.lacks += 1
        elif self._is_ours():
            self._guard(lambda: self._capture.observe_layer(step, layer, value))

    def _observe_loss(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
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
        if inputs.is_selected:
            self._capture.observe_layer(step, inputs, args)
        self._record_loss(step, name, output)

    def _before_backward(self, loss: torch.Tensor) -> None:
        step = self._step_for_loss()
        if step is None or self._steps:
            return
        self._backwards += 1
        if not any(reference() is loss for reference in self._losses):
            self._record_loss(step, FUNCTIONAL_LOSS, loss)

    def _step_for_loss(self) -> OpenStep | None:
        """Return the open step, or begin one if the model is not a module or cannot be observed.

        A hook that watches only models named by the program begins none.
        """
        is_over = self.recording.open_step is None or self._steps > 0
        if is_over and (self._models.finds or not self._models.roots):
            self._begin(self._mode or Mode.TRAIN)
        return self.recording.open_step

    def _record_loss(self, step: OpenStep, prefix: str, loss: torch.Tensor) -> None:
        name = self._capture.observe_loss(step, prefix, loss.detach())
        self._losses.append(weakref.ref(loss))
        self._observers.notify(lambda observer: observer.loss(name, loss.detach()))

    def _after_backward(self) -> None:
        """Observe gradients now, if there is no optimizer whose step would trigger it."""
        step = self.recording.open_step
        is_manual = self._is_manual or not self._models.optimizers
        if step is not None and is_manual:
            self._capture.observe_parameters(step, self._models.plan_of_all())

    def _observe_after(self, closure: Closure, optimizer: torch.optim.Optimizer) -> Closure:
        """Wrap a closure to observe the parameters after its first call, when they have not been stepped yet."""
        is_observed = False

        def compute() -> Any:
            nonlocal is_observed
            loss = closure()
            if not is_observed:
                is_observed = True
                self._guard(lambda: self._before_step(optimizer))
            return loss

        return compute

    def _before_step(self, optimizer: torch.optim.Optimizer) -> None:
        if not self._models.observe_step(optimizer):
            return
        self._has_stepped = True
        step = self._reopen()
        if step is None:
            # A second optimizer may have stepped after the step was handed over: from now on, steps wait for it.
            self._waits = self._waits or self._steady >= _STEADY_STEPS
            self._begin(self._mode or Mode.TRAIN)
        elif step.mode is not Mode.TRAIN and self._mode is None:
            self._relabel_as_training()
        step = self.recording.open_step
        if step is not None:
            # Set if the optimizer unscales gradients itself.
            scale = getattr(optimizer, "grad_scale", None)
            self._capture.observe_parameters(step, self._models.plan(optimizer), scale=scale)

    def _relabel_as_training(self) -> None:
        """Relabel an evaluation step: the program trains in evaluation mode, for example to freeze batch norms."""
        self.recording.relabel(Mode.TRAIN)
        for root in self._models.roots:
            root.trains_in_eval_mode = root.trains_in_eval_mode or root.calls > 0

    def _after_step(self, optimizer: torch.optim.Optimizer) -> None:
        step = self.recording.open_step
        if step is None or not self._models.is_stepped_by(optimizer):
            return
        self._steps += 1
        self._observers.notify(lambda observer: observer.end_step(step.number))
        if not self._forwards:
            self._models.retry_attaching(optimizer)
        if self._is_amendable:
            self._hand_over(step)
        elif not self._waits and self._steady >= _STEADY_STEPS:
            self._finish()

    def _skip_step(self) -> None:
        """Start the step over: the gradients were not finite and the optimizer did not step."""
        step = self.recording.open_step
        if step is not None and not self._steps and self._backwards:
            step.calls.clear()
            self._losses.clear()
            self._reset_step()

    def _save_scalar(self, name: str, value: float) -> None:
        try:
            number = float(value)
        except (TypeError, ValueError, RuntimeError):
            self.recording.note(f'The scalar "{name}" is not a single number and is not saved.')
            return
        step = self._reopen()
        if step is None:
            self._early_scalars.append((name, number))
        else:
            self.recording.set_scalar(step, f"{SCALAR_PREFIX}{name}", number, kind=Kind.SCALAR)

    def _save_tensor(self, name: str, value: Any) -> None:
        step = self._reopen()
        try:
            tensor = value if isinstance(value, torch.Tensor) else torch.as_tensor(value)
        except (TypeError, ValueError, RuntimeError):
            self.recording.note(f'"{name}" cannot be converted to a tensor and is not saved.')
            return
        if step is not None:
            self._capture.observe_custom(step, name, tensor.detach())


def _version(root: Root) -> int:
    """Return a number that changes whenever a parameter is changed in place."""
    model = root.model
    return 0 if model is None else sum(each._version for each in model.parameters() if each.requires_grad)


def _has_no_gradient(root: Root) -> bool:
    model = root.model
    return model is None or all(parameter.grad is None for parameter in model.parameters())

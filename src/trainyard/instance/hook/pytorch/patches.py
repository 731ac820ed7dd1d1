"""Attaches listeners to torch: through its global hooks, and by patching the few functions that have none.

Torch stays unchanged until a listener attaches. Patches are installed once and call the original. Under torch.compile
they stay out of the graph and cause no graph break.
"""

import functools
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from typing import Any, Protocol

import torch
from torch import nn
from torch.compiler import is_compiling
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

Closure = Callable[[], Any]

# Accepts any arguments, returns None, and can be unpickled without torch or Trainyard.
_NO_OP: Callable[..., None] = nullcontext().__exit__


class InertHook:
    """A module hook that pickles and deep copies of its module replace by a no-op.

    A model that is saved whole (`torch.save(model)`), copied (for a moving average) or sent to another process must not
    change, and must load where Trainyard is not installed.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (nullcontext(), "__exit__")

    def __deepcopy__(self, memo: dict[int, Any]) -> Callable[..., None]:
        return _NO_OP


class TorchListener(Protocol):
    """Receives what a program does with torch, on the program's own thread. No method may raise."""

    def observe_module(self, module: nn.Module) -> None:
        """Observe a module that was given a parameter or a child."""

    def observe_optimizer(self, optimizer: torch.optim.Optimizer) -> None: ...

    def before_step(self, optimizer: torch.optim.Optimizer, closure: Closure | None) -> Closure | None:
        """Observe an optimizer about to step. The returned closure replaces the one passed in, if there was one."""

    def after_step(self, optimizer: torch.optim.Optimizer) -> None: ...

    def skip_step(self) -> None:
        """Observe the end of a gradient scaler's iteration, in which its optimizer may not have stepped."""

    def observe_loss(self, module: nn.Module, args: tuple[Any, ...], output: Any, /) -> None:
        """Observe the call of a module that computes a loss."""

    def before_backward(self, tensors: Any, /) -> None:
        """Observe a backward about to begin, as the program calls it; `losses_of` has its losses."""

    def after_backward(self) -> None: ...

    def abandon_backward(self) -> None:
        """Observe a backward that raised; `after_backward` is not called."""


def attach(listener: TorchListener) -> None:
    global _listeners
    _install()
    _listeners = (*_listeners, listener)


def detach(listener: TorchListener) -> None:
    global _listeners
    _listeners = tuple(each for each in _listeners if each is not listener)


def attach_to_loss(module: nn.Module) -> None:
    """Attach to a module as a loss, once."""
    if not any(isinstance(each, _LossCall) for each in module._forward_hooks.values()):
        module.register_forward_hook(_LossCall())


# How many backwards are running, one in the other.
backward_depth = 0

_listeners: tuple[TorchListener, ...] = ()
_is_installed: list[bool] = []


class _LossCall(InertHook):
    """The forward hook of a loss module."""

    def __call__(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if is_compiling():
            return
        for listener in _listeners:
            listener.observe_loss(module, args, output)


def _install() -> None:
    if _is_installed:
        return
    _is_installed.append(True)
    nn.modules.module.register_module_module_registration_hook(_observe_module)
    nn.modules.module.register_module_parameter_registration_hook(_observe_module)
    register_optimizer_step_pre_hook(_before_step)
    register_optimizer_step_post_hook(_after_step)
    _replace(torch.optim.Optimizer, "__init__", _with_observed_optimizer)
    _replace(nn.modules.loss._Loss, "__init__", _with_attached_loss)
    _replace(torch.autograd, "backward", _with_observed_backward)
    # Before torch 2.3 it was in torch.cuda.amp.
    scaler = getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler
    _replace(scaler, "scale", _with_unscaled_loss)
    _replace(scaler, "update", _with_observed_update)
    _replace(torch.jit, "script", _with_hooks_removed)


def _replace(owner: object, name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    original = getattr(owner, name)
    setattr(owner, name, functools.wraps(original)(wrap(original)))


def _observe_module(module: nn.Module, _name: str, _part: object) -> None:
    for listener in _listeners:
        listener.observe_module(module)


def _before_step(
    optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    if is_compiling():
        return None
    given = closure = kwargs.get("closure", args[1] if len(args) > 1 else None) if kwargs or len(args) > 1 else None
    for listener in _listeners:
        closure = listener.before_step(optimizer, closure)
    if closure is given:
        return None
    return _with_closure(args, kwargs, closure)


def _with_closure(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], closure: Closure | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if "closure" in kwargs:
        return args, {**kwargs, "closure": closure}
    return (args[0], closure, *args[2:]), dict(kwargs)


def _after_step(optimizer: torch.optim.Optimizer, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
    if is_compiling():
        return
    for listener in _listeners:
        listener.after_step(optimizer)


def _with_observed_optimizer(original: Callable[..., None]) -> Callable[..., None]:
    def initialize(self: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        for listener in _listeners:
            listener.observe_optimizer(self)

    return initialize


def _with_attached_loss(original: Callable[..., None]) -> Callable[..., None]:
    def initialize(self: nn.Module, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if _listeners:
            attach_to_loss(self)

    return initialize


def _with_observed_backward(original: Callable[..., None]) -> Callable[..., None]:
    def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
        global backward_depth
        if is_compiling() or not _listeners or backward_depth:
            original(tensors, *args, **kwargs)
            return
        for listener in _listeners:
            listener.before_backward(tensors)
        # Lets listeners ignore the forwards that torch.utils.checkpoint repeats during backward.
        backward_depth += 1
        try:
            original(tensors, *args, **kwargs)
        except BaseException:
            for listener in _listeners:
                listener.abandon_backward()
            raise
        finally:
            backward_depth -= 1
        for listener in _listeners:
            listener.after_backward()

    return backward


def losses_of(tensors: Any) -> list[torch.Tensor]:
    """Return the losses of a backward: the tensors with one element, without what scaled them."""
    given = (tensors,) if isinstance(tensors, torch.Tensor) else tensors if isinstance(tensors, Iterable) else ()
    return [
        getattr(each, "_trainyard_loss", each) for each in given if isinstance(each, torch.Tensor) and each.numel() == 1
    ]


def is_in_backward() -> bool:
    return backward_depth > 0


def _with_unscaled_loss(original: Callable[..., Any]) -> Callable[..., Any]:
    def scale(self: Any, outputs: Any) -> Any:
        scaled = original(self, outputs)
        if _listeners and isinstance(outputs, torch.Tensor) and scaled is not outputs:
            scaled._trainyard_loss = outputs
        return scaled

    return scale


def _with_observed_update(original: Callable[..., None]) -> Callable[..., None]:
    def update(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if self.is_enabled():
            for listener in _listeners:
                listener.skip_step()

    return update


def _with_hooks_removed(original: Callable[..., Any]) -> Callable[..., Any]:
    """Remove our hooks during torch.jit.script, which compiles the hooks of modules too and cannot compile ours."""

    def script(obj: Any, *args: Any, **kwargs: Any) -> Any:
        removed = _remove_hooks(obj) if isinstance(obj, nn.Module) else []
        try:
            # `script` resolves names in its caller's frame, which is now one frame further up.
            kwargs["_frames_up"] = kwargs.get("_frames_up", 0) + 1
            return original(obj, *args, **kwargs)
        finally:
            for hooks, items in removed:
                hooks.update(items)

    return script


def _remove_hooks(module: nn.Module) -> list[tuple[dict[int, Any], dict[int, Any]]]:
    removed = []
    for each in module.modules():
        for hooks in (each._forward_hooks, each._forward_pre_hooks):
            ours = {key: hook for key, hook in hooks.items() if isinstance(hook, InertHook)}
            for key in ours:
                del hooks[key]
            removed.append((hooks, ours))
    return removed

"""Where torch is listened to: at its own global hooks, and at the few functions for which it has none.

Nothing is taken from torch while nobody listens; what is put in its place is put there once and calls the original.
Under torch.compile all of it is left out of the graph, and breaks none.
"""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from trainyard.instance.hook.pytorch.inert import Inert

Closure = Callable[[], Any]


class Listener(Protocol):
    """Is told what a program does with torch, on its own thread. Nothing of it may raise."""

    def meet_module(self, module: nn.Module) -> None:
        """A module has got a parameter or a child."""

    def meet_optimizer(self, optimizer: torch.optim.Optimizer) -> None: ...

    def before_step(self, optimizer: torch.optim.Optimizer, closure: Closure | None) -> Closure | None:
        """An optimizer is about to step; what is returned takes the place of the closure, if there was one."""

    def after_step(self, optimizer: torch.optim.Optimizer) -> None: ...

    def skip_step(self) -> None:
        """A gradient scaler has ended an iteration; its optimizer may not have stepped."""

    def see_loss(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        """A module that computes a loss was called."""

    def before_backward(self, loss: torch.Tensor) -> None: ...

    def after_backward(self) -> None: ...


def listen(listener: Listener) -> None:
    global _listeners
    _install()
    _listeners = (*_listeners, listener)


def leave(listener: Listener) -> None:
    global _listeners
    _listeners = tuple(each for each in _listeners if each is not listener)


def hang_on_loss(module: nn.Module) -> None:
    """Listen to a module as to a loss, once."""
    if not any(isinstance(each, _LossCall) for each in module._forward_hooks.values()):
        module.register_forward_hook(_LossCall())


_listeners: tuple[Listener, ...] = ()
_installed: list[bool] = []
_backward_depth = 0


class _LossCall(Inert):
    """Is called by a loss after its forward."""

    def __call__(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if torch.compiler.is_compiling():
            return
        for listener in _listeners:
            listener.see_loss(module, args, output)


def _install() -> None:
    if _installed:
        return
    _installed.append(True)
    nn.modules.module.register_module_module_registration_hook(_meet_module)
    nn.modules.module.register_module_parameter_registration_hook(_meet_module)
    register_optimizer_step_pre_hook(_before_step)
    register_optimizer_step_post_hook(_after_step)
    _replace(torch.optim.Optimizer, "__init__", _meeting_optimizers)
    _replace(nn.modules.loss._Loss, "__init__", _hanging_on_losses)
    _replace(torch.autograd, "backward", _telling_of_backward)
    scaler = getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler  # where it was before torch 2.3
    _replace(scaler, "scale", _remembering_losses)
    _replace(scaler, "update", _telling_of_updates)
    _replace(torch.jit, "script", _without_hooks)


def _replace(owner: object, name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    original = getattr(owner, name)
    setattr(owner, name, functools.wraps(original)(wrap(original)))


def _meet_module(module: nn.Module, _name: str, _part: object) -> None:
    for listener in _listeners:
        listener.meet_module(module)


def _before_step(
    optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    if torch.compiler.is_compiling():
        return None
    given = closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
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
    if torch.compiler.is_compiling():
        return
    for listener in _listeners:
        listener.after_step(optimizer)


def _meeting_optimizers(original: Callable[..., None]) -> Callable[..., None]:
    def initialize(self: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        for listener in _listeners:
            listener.meet_optimizer(self)

    return initialize


def _hanging_on_losses(original: Callable[..., None]) -> Callable[..., None]:
    def initialize(self: nn.Module, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if _listeners:
            hang_on_loss(self)

    return initialize


def _telling_of_backward(original: Callable[..., None]) -> Callable[..., None]:
    def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
        global _backward_depth
        if torch.compiler.is_compiling() or not _listeners or _backward_depth:
            original(tensors, *args, **kwargs)
            return
        _tell_of_backward(tensors)
        _backward_depth += 1  # activations that are computed again, by torch.utils.checkpoint, are no second forward
        try:
            original(tensors, *args, **kwargs)
        finally:
            _backward_depth -= 1
        for listener in _listeners:
            listener.after_backward()

    return backward


def _tell_of_backward(tensors: Any) -> None:
    losses = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors) if isinstance(tensors, Iterable) else []
    for loss in losses:
        if isinstance(loss, torch.Tensor) and loss.numel() == 1:
            for listener in _listeners:
                listener.before_backward(getattr(loss, "_trainyard_loss", loss))


def is_in_backward() -> bool:
    return _backward_depth > 0


def _remembering_losses(original: Callable[..., Any]) -> Callable[..., Any]:
    def scale(self: Any, outputs: Any) -> Any:
        scaled = original(self, outputs)
        if _listeners and isinstance(outputs, torch.Tensor) and scaled is not outputs:
            scaled._trainyard_loss = outputs
        return scaled

    return scale


def _telling_of_updates(original: Callable[..., None]) -> Callable[..., None]:
    def update(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if self.is_enabled():
            for listener in _listeners:
                listener.skip_step()

    return update


def _without_hooks(original: Callable[..., Any]) -> Callable[..., Any]:
    """torch.jit.script compiles the hooks of modules as well, which ours are not made for."""

    def script(obj: Any, *args: Any, **kwargs: Any) -> Any:
        taken_off = _take_off(obj) if isinstance(obj, nn.Module) else []
        try:
            # It looks for names in the frame that called it, so many frames up; this one is one more.
            kwargs["_frames_up"] = kwargs.get("_frames_up", 0) + 1
            return original(obj, *args, **kwargs)
        finally:
            for hooks, items in taken_off:
                hooks.update(items)

    return script


def _take_off(module: nn.Module) -> list[tuple[dict[int, Any], dict[int, Any]]]:
    taken_off = []
    for each in module.modules():
        for hooks in (each._forward_hooks, each._forward_pre_hooks):
            ours = {key: hook for key, hook in hooks.items() if isinstance(hook, Inert)}
            for key in ours:
                del hooks[key]
            taken_off.append((hooks, ours))
    return taken_off

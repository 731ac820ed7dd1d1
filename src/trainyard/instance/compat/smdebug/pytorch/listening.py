"""What modules and parameters call. A copy of a module, or one of DataParallel, has it too, and tells nothing."""

import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from trainyard.instance.hook.pytorch.inert import Inert

from .taking import Named

Take = Callable[[Any], None]


class BeforeCall(Inert):
    """Tells with what a module is called."""

    def __init__(self, module: nn.Module, take: Take) -> None:
        self._module, self._take = weakref.ref(module), take

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if not torch.compiler.is_compiling() and self._module() is module:
            self._take((args, dict(kwargs)))


class AfterCall(Inert):
    """Tells what a module has made of it."""

    def __init__(self, module: nn.Module, take: Take) -> None:
        self._module, self._take = weakref.ref(module), take

    def __call__(self, module: nn.Module, _args: tuple[Any, ...], output: Any) -> None:
        if not torch.compiler.is_compiling() and self._module() is module:
            self._take(output)


class OnGradient(Inert):
    """Tells the gradient of a parameter."""

    def __init__(self, named: Named, take: Callable[[Named, torch.Tensor], None]) -> None:
        self._named, self._take = named, take

    def __call__(self, gradient: torch.Tensor) -> None:
        if not torch.compiler.is_compiling():
            self._take(self._named, gradient)

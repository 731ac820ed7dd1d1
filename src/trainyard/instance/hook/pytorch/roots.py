"""Which modules a program calls to train: the outermost that hold the parameters of its optimizers."""

import gc
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

import torch
from torch import nn

from trainyard.instance.hook.pytorch import naming
from trainyard.instance.hook.pytorch.inert import Inert

_MOST_SEARCHES = 3


class ModelWatcher(Protocol):
    def enter(self, root: "Root", args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """A model is about to run."""

    def leave(self, root: "Root", output: Any) -> None:
        """It has run."""


class Root:
    """A model that is called by the program, in whatever it is wrapped.

    The outermost of its wrappers that is called counts, and what that calls in turn does not.
    """

    def __init__(self, top: nn.Module, name: str, watcher: ModelWatcher, *, is_first: bool) -> None:
        self._wrappers: list[weakref.ref[nn.Module]] = []
        self._handles: list[torch.utils.hooks.RemovableHandle] = []
        self._inner = weakref.ref(naming.chain(top)[-1])
        self._watcher = watcher
        self._active = -1  # which wrapper is running
        self.name = name
        self.is_first = is_first
        self.calls = 0
        self.trains_in_eval_mode = False
        self.hang(top)

    @property
    def model(self) -> nn.Module | None:
        """The model itself; None when the program has let go of it."""
        return self._inner()

    def prefix(self, path: str) -> str:
        """What tensors of a layer are called after: its path, with the model's name where there are several models."""
        if not path:
            return self.name
        return path if self.is_first else f"{self.name}.{path}"

    def hang(self, top: nn.Module) -> None:
        """Listen to a wrapper and all that it wraps, in place of what was listened to."""
        for handle in self._handles:
            handle.remove()
        modules = naming.chain(top)
        self._wrappers = [weakref.ref(module) for module in modules]
        self._handles, self._active = [], -1
        for position, module in enumerate(modules):
            entry, leaving = _Entry(self, position), _Leaving(self, position)
            self._handles.append(module.register_forward_pre_hook(entry, with_kwargs=True))
            self._handles.append(module.register_forward_hook(leaving))
            compiled = module._compiled_call_impl
            if compiled is not None and not isinstance(compiled, _CompiledCall):
                module._compiled_call_impl = _CompiledCall(compiled, entry, leaving, module)

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()

    def enter(self, position: int, module: nn.Module, *, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        # One that raised never left: being called again, or from further out, tells.
        if self._wrappers[position]() is not module or (0 <= self._active < position):
            return
        self._active = position
        self.calls += 1
        self._watcher.enter(self, args, kwargs)

    def leave(self, position: int, module: nn.Module, output: Any) -> None:
        if self._active == position and self._wrappers[position]() is module:
            self._active = -1
            self._watcher.leave(self, output)


class Modules:
    """The modules that have been made, and which of them are the outermost around some parameters."""

    def __init__(self) -> None:
        self._seen: dict[int, weakref.ref[nn.Module]] = {}
        self._searches = 0

    def add(self, module: nn.Module) -> None:
        key = id(module)
        if key not in self._seen:
            self._seen[key] = weakref.ref(module, lambda _: self._seen.pop(key, None))

    def tops(self, parameters: Iterable[torch.Tensor], *, searches: bool) -> list[nn.Module]:
        """The outermost modules that hold any of these.

        Where one was not seen being made, it `searches` all objects of the process, which takes a moment; a program
        whose parameters are in no module is searched a few times only.
        """
        wanted = {id(parameter) for parameter in parameters}
        found = _outermost(self._alive(), wanted)
        if searches and self._searches < _MOST_SEARCHES and wanted - _held_by(found):
            self._searches += 1
            for module in all_modules():
                self.add(module)
            found = _outermost(self._alive(), wanted)
        return found

    def wrapper_of(self, module: nn.Module) -> nn.Module:
        """The outermost module that wraps this one and nothing else."""
        for outer in self._alive():
            if module in naming.chain(outer)[1:]:
                return self.wrapper_of(outer)
        return module

    def _alive(self) -> list[nn.Module]:
        return [module for reference in list(self._seen.values()) if (module := reference()) is not None]


def trained_children(module: nn.Module, parameters: Iterable[torch.Tensor]) -> list[nn.Module]:
    """The children that hold any of these parameters."""
    wanted = {id(parameter) for parameter in parameters}
    return [child for child in module.children() if wanted & _held_by([child])]


class _Entry(Inert):
    def __init__(self, root: Root, position: int) -> None:
        self._root, self._position = root, position

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not torch.compiler.is_compiling():
            self._root.enter(self._position, module, args=args, kwargs=kwargs)


class _Leaving(Inert):
    def __init__(self, root: Root, position: int) -> None:
        self._root, self._position = root, position

    def __call__(self, module: nn.Module, _args: tuple[Any, ...], output: Any) -> None:
        if not torch.compiler.is_compiling():
            self._root.leave(self._position, module, output)


class _CompiledCall:
    """The call of a module that was compiled in place: its hooks are in the graph, where they do nothing."""

    def __init__(self, call: Callable[..., Any], entry: _Entry, leaving: _Leaving, module: nn.Module) -> None:
        self._call, self._entry, self._leaving = call, entry, leaving
        self._module = weakref.ref(module)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        module = self._module()
        if module is None or torch.compiler.is_compiling():
            return self._call(*args, **kwargs)
        self._entry(module, args, kwargs)
        output = self._call(*args, **kwargs)
        self._leaving(module, args, output)
        return output


def _outermost(modules: list[nn.Module], wanted: set[int]) -> list[nn.Module]:
    inside = {id(child) for module in modules for child in module._modules.values()}
    return [module for module in modules if id(module) not in inside and wanted & _held_by([module])]


def _held_by(modules: Iterable[nn.Module]) -> set[int]:
    return {id(parameter) for module in modules for parameter in module.parameters()}


def all_modules() -> Iterator[nn.Module]:
    """Copies and unpickled modules are made without a call that could be listened to."""
    for each in gc.get_objects():
        if issubclass(type(each), nn.Module) and "_modules" in each.__dict__:
            yield each

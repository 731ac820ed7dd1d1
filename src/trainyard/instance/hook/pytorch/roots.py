"""Finds the root modules of a program: the outermost ones that hold the parameters of its optimizers."""

import gc
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

import torch
from torch import nn
from torch.compiler import is_compiling

from trainyard.instance.hook.pytorch import naming
from trainyard.instance.hook.pytorch.patches import InertHook

_MAX_SEARCHES = 3


class ForwardListener(Protocol):
    """Receives the forwards of root modules."""

    def enter(self, root: "Root", args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Observe a model about to run."""

    def leave(self, root: "Root", output: Any) -> None:
        """Observe the output of a model that has run."""


class Root:
    """A model that the program calls, with its wrappers.

    Only the outermost wrapper that the program calls counts, not the calls that it makes in turn. `wrappers` begins
    with the outermost one, and `active` is the position of the one that is running, -1 if none is.
    """

    def __init__(self, top: nn.Module, name: str, listener: ForwardListener, *, is_first: bool) -> None:
        self.wrappers: list[weakref.ref[nn.Module]] = []
        self._handles: list[torch.utils.hooks.RemovableHandle] = []
        self._inner = weakref.ref(naming.chain(top)[-1])
        self.listener = listener
        self.active = -1
        self.name = name
        self.is_first = is_first
        self.calls = 0
        self.trains_in_eval_mode = False
        self.attach(top)

    @property
    def model(self) -> nn.Module | None:
        """The model itself, or None once the program has dropped it."""
        return self._inner()

    @property
    def outermost(self) -> nn.Module | None:
        """The outermost wrapper, or the model itself if nothing wraps it."""
        return self.wrappers[0]()

    def prefix(self, path: str) -> str:
        """Return the name prefix of a layer's tensors: its path, with the model's name if there are several models."""
        if not path:
            return self.name
        return path if self.is_first else f"{self.name}.{path}"

    def attach(self, top: nn.Module) -> None:
        """Attach to a wrapper and everything it wraps, and detach from the previous ones."""
        for handle in self._handles:
            handle.remove()
        modules = naming.chain(top)
        self.wrappers = [weakref.ref(module) for module in modules]
        self._handles, self.active = [], -1
        for position, module in enumerate(modules):
            entering, leaving = _EnterHook(self, position), _LeaveHook(self, position)
            self._handles.append(module.register_forward_pre_hook(entering, with_kwargs=True))
            self._handles.append(module.register_forward_hook(leaving))
            compiled = module._compiled_call_impl
            if compiled is not None and not isinstance(compiled, _CompiledCall):
                module._compiled_call_impl = _CompiledCall(compiled, entering, leaving, module)

    def detach(self) -> None:
        for handle in self._handles:
            handle.remove()


class ModuleRegistry:
    """Knows the modules that were created, and finds the outermost ones that hold given parameters."""

    def __init__(self) -> None:
        self._modules: dict[int, weakref.ref[nn.Module]] = {}
        self._searches = 0

    def add(self, module: nn.Module) -> None:
        key = id(module)
        if key not in self._modules:
            self._modules[key] = weakref.ref(module, lambda _: self._modules.pop(key, None))

    def tops(self, parameters: Iterable[torch.Tensor], *, searches: bool) -> list[nn.Module]:
        """Return the outermost modules that hold any of these parameters.

        If `searches` is set and a parameter is in no known module, search all objects of the process. This is slow, so
        it happens a few times only: the parameters of a program may be in no module.
        """
        wanted = {id(parameter) for parameter in parameters}
        outermost = _outermost(self._alive(), wanted)
        if searches and self._searches < _MAX_SEARCHES and wanted - _held_by(outermost):
            self._searches += 1
            for module in all_modules():
                self.add(module)
            outermost = _outermost(self._alive(), wanted)
        return outermost

    def tops_with_gradients(self) -> list[nn.Module]:
        """Return the outermost of the modules that were created and hold parameters with gradients."""
        alive = self._alive()
        parameters = {parameter for module in alive for parameter in module._parameters.values()}
        return _outermost(alive, {id(each) for each in parameters if each is not None and each.grad is not None})

    def wrapper_of(self, module: nn.Module) -> nn.Module:
        """Return the outermost module that wraps this one and nothing else."""
        for outer in self._alive():
            if module in naming.chain(outer)[1:]:
                return self.wrapper_of(outer)
        return module

    def _alive(self) -> list[nn.Module]:
        return [module for reference in list(self._modules.values()) if (module := reference()) is not None]


def parameters_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def trained_children(module: nn.Module, parameters: Iterable[torch.Tensor]) -> list[nn.Module]:
    """Return the children that hold any of these parameters."""
    wanted = {id(parameter) for parameter in parameters}
    return [child for child in module.children() if wanted & _held_by([child])]


class _RootHook(InertHook):
    """A hook of one of the modules of a root. It runs at each forward, so it calls little besides the listener."""

    def __init__(self, root: Root, position: int) -> None:
        self._root, self._position = root, position
        self._wrapper = root.wrappers[position]


class _EnterHook(_RootHook):
    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if is_compiling():
            return
        root = self._root
        # A wrapper that raised never left: it is called again, or one further out is.
        if 0 <= root.active < self._position or self._wrapper() is not module:
            return
        root.active = self._position
        root.calls += 1
        root.listener.enter(root, args, kwargs)


class _LeaveHook(_RootHook):
    def __call__(self, module: nn.Module, _args: tuple[Any, ...], output: Any) -> None:
        if is_compiling():
            return
        root = self._root
        if root.active == self._position and self._wrapper() is module:
            root.active = -1
            root.listener.leave(root, output)


class _CompiledCall:
    """The call of a module that was compiled in place: hooks in its graph do nothing, so this calls them outside it."""

    def __init__(self, call: Callable[..., Any], entering: _EnterHook, leaving: _LeaveHook, module: nn.Module) -> None:
        self._call, self._entering, self._leaving = call, entering, leaving
        self._module = weakref.ref(module)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        module = self._module()
        if module is None or is_compiling():
            return self._call(*args, **kwargs)
        self._entering(module, args, kwargs)
        output = self._call(*args, **kwargs)
        self._leaving(module, args, output)
        return output


def _outermost(modules: list[nn.Module], wanted: set[int]) -> list[nn.Module]:
    inside = {id(child) for module in modules for child in module._modules.values()}
    return [module for module in modules if id(module) not in inside and wanted & _held_by([module])]


def _held_by(modules: Iterable[nn.Module]) -> set[int]:
    return {id(parameter) for module in modules for parameter in module.parameters()}


def all_modules() -> Iterator[nn.Module]:
    """Yield all modules of the process. Copied and unpickled ones are created without a call to observe."""
    for each in gc.get_objects():
        if issubclass(type(each), nn.Module) and "_modules" in each.__dict__:
            yield each

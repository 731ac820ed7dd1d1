"""The order in which a model calls its modules, as torch.fx finds it without running them."""

import dis
import inspect
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from torch import fx

_FACTORIES = ("arange", "empty", "eye", "full", "linspace", "ones", "rand", "randn", "zeros")
CONTAINERS = (torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict)


class Untraceable(RuntimeError):
    """The code between the modules cannot be followed without running it."""


def traced(model: torch.nn.Module, whole: Collection[str], *, given: Collection[str]) -> fx.Graph:
    """The graph of a model, into whose modules named in `whole` it does not look.

    Arguments that have a default and are not among those `given` are taken as their defaults. The graph is that of the
    mode, training or evaluation, in which the model is.
    """
    parameters = inspect.signature(model.forward).parameters.values()
    spread = [each.name for each in parameters if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    if spread:
        raise Untraceable(f"the model takes any number of arguments ({', '.join(spread)}): name each of them")
    fixed = {
        each.name: each.default for each in parameters if each.default is not each.empty and each.name not in given
    }
    try:
        tracer = _Tracer(whole)
        with _factories_traced():
            return tracer.trace(model, concrete_args=fixed or None)
    except Exception as error:  # whatever the code does that a symbol cannot stand for
        raise Untraceable(f"{type(error).__name__}: {error}") from error


def modules_at(model: torch.nn.Module, depth: int) -> list[str]:
    """The names of modules so far below the model, or of those above that have none below; containers do not count."""
    found: list[str] = []
    for name, child in model.named_children():
        inner = depth if isinstance(child, CONTAINERS) else depth - 1
        has_children = next(child.children(), None) is not None
        if inner > 0 and has_children:
            found += [f"{name}.{each}" for each in modules_at(child, inner)]
        else:
            found.append(name)
    return found


@contextmanager
def _factories_traced() -> Iterator[None]:
    """Let functions that make tensors take symbols, such as the length of an input, which torch.fx leaves out."""
    originals = {name: getattr(torch, name) for name in _FACTORIES}
    for name, original in originals.items():
        setattr(torch, name, _with_symbols(original))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(torch, name, original)


def _with_symbols(original: Callable[..., Any]) -> Callable[..., Any]:
    def made(*args: Any, **kwargs: Any) -> Any:
        found: list[fx.Proxy] = []
        fx.node.map_aggregate((args, kwargs), lambda each: found.append(each) if isinstance(each, fx.Proxy) else None)
        if not found:
            return original(*args, **kwargs)
        return found[0].tracer.create_proxy("call_function", original, args, kwargs)

    return made


class _Tracer(fx.Tracer):  # type: ignore[misc]  # mypy does not read torch
    def __init__(self, whole: Collection[str]) -> None:
        super().__init__()
        self._whole = frozenset(whole)

    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:  # noqa: ARG002
        """Look into those that have a whole one below them, and into no other."""
        below = f"{module_qualified_name}."
        return not any(name.startswith(below) for name in self._whole)

    def to_bool(self, obj: fx.Proxy) -> bool:
        """Let assertions be checked when the model runs; what else depends on a value cannot be followed."""
        line = sys._getframe(2)  # behind Proxy.__bool__, which calls this
        if not _is_assertion(line):
            return bool(super().to_bool(obj))
        where = f"An assertion in {line.f_code.co_filename}, line {line.f_lineno}, does not hold."
        self.create_proxy("call_function", torch._assert, (obj, where), {})
        return True


def _is_assertion(frame: FrameType) -> bool:
    """Whether the code that asks for a truth just now raises an AssertionError otherwise.

    torch.fx can follow assertions by itself, but not those of Python 3.11 and later.
    """
    coming = [each for each in dis.get_instructions(frame.f_code) if each.offset >= frame.f_lasti][:3]
    return any(each.opname == "LOAD_ASSERTION_ERROR" or each.argval is AssertionError for each in coming)

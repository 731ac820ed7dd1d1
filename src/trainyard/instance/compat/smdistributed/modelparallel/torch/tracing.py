"""Traces the order in which a model calls its modules, by torch.fx, without running them."""

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
    """The code between the modules cannot be traced without running it."""


def trace_model(model: torch.nn.Module, whole: Collection[str], *, given: Collection[str]) -> fx.Graph:
    """Trace a model, treating the modules named in `whole` as leaves.

    Arguments with a default that are not among those `given` are replaced by their defaults. The graph depends on the
    model's mode, training or evaluation.
    """
    parameters = inspect.signature(model.forward).parameters.values()
    spread = [each.name for each in parameters if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    if spread:
        raise Untraceable(f"the model takes variable arguments ({', '.join(spread)}): name each argument")
    fixed = {
        each.name: each.default for each in parameters if each.default is not each.empty and each.name not in given
    }
    try:
        tracer = _Tracer(whole)
        with _traceable_factories():
            return tracer.trace(model, concrete_args=fixed or None)
    # The code may use a symbolic value in any unsupported way.
    except Exception as error:
        raise Untraceable(f"{type(error).__name__}: {error}") from error


def modules_at(model: torch.nn.Module, depth: int) -> list[str]:
    """Return the names of modules at this depth, or of leaves above it. Containers do not count as a level."""
    names: list[str] = []
    for name, child in model.named_children():
        inner = depth if isinstance(child, CONTAINERS) else depth - 1
        has_children = next(child.children(), None) is not None
        if inner > 0 and has_children:
            names += [f"{name}.{each}" for each in modules_at(child, inner)]
        else:
            names.append(name)
    return names


@contextmanager
def _traceable_factories() -> Iterator[None]:
    """Let tensor factories accept symbolic values, such as the length of an input, which torch.fx does not support."""
    originals = {name: getattr(torch, name) for name in _FACTORIES}
    for name, original in originals.items():
        setattr(torch, name, _with_symbols(original))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(torch, name, original)


def _with_symbols(original: Callable[..., Any]) -> Callable[..., Any]:
    def make_tensor(*args: Any, **kwargs: Any) -> Any:
        symbols: list[fx.Proxy] = []
        fx.node.map_aggregate((args, kwargs), lambda each: symbols.append(each) if isinstance(each, fx.Proxy) else None)
        if not symbols:
            return original(*args, **kwargs)
        return symbols[0].tracer.create_proxy("call_function", original, args, kwargs)

    return make_tensor


class _Tracer(fx.Tracer):  # type: ignore[misc]  # mypy does not read torch
    def __init__(self, whole: Collection[str]) -> None:
        super().__init__()
        self._whole = frozenset(whole)

    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:  # noqa: ARG002
        """Trace into modules that contain a whole one, and into no others."""
        below = f"{module_qualified_name}."
        return not any(name.startswith(below) for name in self._whole)

    def to_bool(self, obj: fx.Proxy) -> bool:
        """Defer assertions to when the model runs; anything else that depends on a value cannot be traced."""
        # The caller of Proxy.__bool__, which calls this.
        line = sys._getframe(2)
        if not _is_assertion(line):
            return bool(super().to_bool(obj))
        where = f"An assertion in {line.f_code.co_filename}, line {line.f_lineno}, failed."
        self.create_proxy("call_function", torch._assert, (obj, where), {})
        return True


def _is_assertion(frame: FrameType) -> bool:
    """Whether the code that evaluates a condition raises AssertionError if it is false.

    torch.fx can trace assertions itself, but not those of Python 3.11 and later.
    """
    following = [each for each in dis.get_instructions(frame.f_code) if each.offset >= frame.f_lasti][:3]
    return any(each.opname == "LOAD_ASSERTION_ERROR" or each.argval is AssertionError for each in following)

"""How the arguments of a step are split into those of its microbatches."""

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class Splitting:
    """Which arguments stay whole, by name, and along which axis the others are split: the first unless said."""

    whole: Collection[str] = ()
    axes: Mapping[str, int] = field(default_factory=dict)

    def split(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], count: int
    ) -> list[Any]:
        """The arguments of each microbatch, as bound to the signature of the function."""
        signature = inspect.signature(function)
        bound = signature.bind(*args, **kwargs)
        parts = {
            name: [value] * count
            if name in self.whole
            else _parts(value, count, axis=self.axes.get(name, 0), name=name)
            for name, value in bound.arguments.items()
        }
        return [
            inspect.BoundArguments(signature, {name: each[number] for name, each in parts.items()})
            for number in range(count)
        ]


def _parts(value: Any, count: int, *, axis: int, name: str) -> list[Any]:
    if hasattr(value, "smp_slice"):
        return [value.smp_slice(count, number, axis) for number in range(count)]
    if isinstance(value, torch.Tensor):
        return _slices(value, count, axis=axis, name=name)
    if isinstance(value, Mapping):
        parts = {key: _parts(each, count, axis=axis, name=f"{name}[{key!r}]") for key, each in value.items()}
        return [_like(value, {key: each[number] for key, each in parts.items()}) for number in range(count)]
    if isinstance(value, (list, tuple, set)):
        rows = [_parts(each, count, axis=axis, name=f"{name}[{at}]") for at, each in enumerate(value)]
        return [_like(value, [row[number] for row in rows]) for number in range(count)]
    return [value] * count


def _slices(tensor: torch.Tensor, count: int, *, axis: int, name: str) -> list[torch.Tensor]:
    if tensor.dim() == 0:
        return [tensor] * count
    length = tensor.size(axis)
    if length % count or not length:
        raise ValueError(
            f"The argument {name} of a step has {length} examples, which cannot be split into {count} microbatches of "
            "the same size. Let the data loader drop the last batch, or name the argument in non_split_inputs."
        )
    return list(tensor.split(length // count, dim=axis))


def _like(value: Any, parts: Any) -> Any:
    if hasattr(value, "_fields"):  # a named tuple
        return type(value)(*parts)
    return parts if type(value) in (dict, list) else type(value)(parts)

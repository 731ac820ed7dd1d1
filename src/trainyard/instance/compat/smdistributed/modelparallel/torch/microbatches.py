"""Splits the arguments of a step into microbatches, and merges their outputs."""

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class BatchSplit:
    """How to split arguments: the names of those to keep whole, and the axes of the others, by default the first."""

    whole: Collection[str] = ()
    axes: Mapping[str, int] = field(default_factory=dict)

    def split(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], count: int
    ) -> list[Any]:
        """Return the arguments of each microbatch, bound to the signature of the function."""
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
            "equal size. Let the data loader drop the last batch, or add the argument to non_split_inputs."
        )
    return list(tensor.split(length // count, dim=axis))


def _like(value: Any, parts: Any) -> Any:
    # Named tuples take their fields as separate arguments.
    if hasattr(value, "_fields"):
        return type(value)(*parts)
    return parts if type(value) in (dict, list) else type(value)(parts)


class StepOutput:
    """A tensor that a step returns, one for each microbatch."""

    def __init__(self, outputs: Sequence[torch.Tensor]) -> None:
        self.outputs = list(outputs)

    def reduce_mean(self) -> torch.Tensor:
        """Return the mean over microbatches."""
        return torch.stack(self._as_float()).mean(0)

    def reduce_sum(self) -> torch.Tensor:
        """Return the sum over microbatches."""
        return torch.stack(self.outputs).sum(0)

    def concat(self) -> torch.Tensor:
        """Return all of them concatenated along the batch."""
        return torch.cat(self.outputs)

    def stack(self) -> torch.Tensor:
        """Return all of them along a new first dimension."""
        return torch.stack(self.outputs)

    def __getitem__(self, microbatch: int) -> torch.Tensor:
        return self.outputs[microbatch]

    def __len__(self) -> int:
        return len(self.outputs)

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(self.outputs)

    def __repr__(self) -> str:
        return f"StepOutput({self.outputs!r})"

    def _as_float(self) -> list[torch.Tensor]:
        return [each if each.is_floating_point() or each.is_complex() else each.float() for each in self.outputs]


def merge_outputs(results: Sequence[Any], *, detach: bool = True) -> Any:
    """Merge the results of microbatches, keeping their structure: tensors become a StepOutput, other values lists."""
    first = results[0]
    if first is None and all(each is None for each in results):
        return None
    if isinstance(first, torch.Tensor):
        return StepOutput([each.detach() if detach else each for each in results])
    if isinstance(first, dict):
        return {name: merge_outputs([each[name] for each in results], detach=detach) for name in first}
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(merge_outputs(each, detach=detach) for each in zip(*results, strict=True)))
    if isinstance(first, (list, tuple)):
        return type(first)(merge_outputs(each, detach=detach) for each in zip(*results, strict=True))
    return list(results)

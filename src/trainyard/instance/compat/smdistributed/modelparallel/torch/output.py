"""What a step returns: the values of all its microbatches, as one."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch


class StepOutput:
    """A tensor that a step has returned, in one version for each microbatch."""

    def __init__(self, outputs: Sequence[torch.Tensor]) -> None:
        self.outputs = list(outputs)

    def reduce_mean(self) -> torch.Tensor:
        """Their mean."""
        return torch.stack(self._as_float()).mean(0)

    def reduce_sum(self) -> torch.Tensor:
        """Their sum."""
        return torch.stack(self.outputs).sum(0)

    def concat(self) -> torch.Tensor:
        """All of them along the batch."""
        return torch.cat(self.outputs)

    def stack(self) -> torch.Tensor:
        """All of them along a new first dimension."""
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


def merged(results: Sequence[Any], *, detach: bool = True) -> Any:
    """What the microbatches returned, in the shape of one of them: tensors as a StepOutput, other values as lists."""
    first = results[0]
    if first is None and all(each is None for each in results):
        return None
    if isinstance(first, torch.Tensor):
        return StepOutput([each.detach() if detach else each for each in results])
    if isinstance(first, dict):
        return {name: merged([each[name] for each in results], detach=detach) for name in first}
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(merged(each, detach=detach) for each in zip(*results, strict=True)))
    if isinstance(first, (list, tuple)):
        return type(first)(merged(each, detach=detach) for each in zip(*results, strict=True))
    return list(results)

"""Keeps gradients and weights equal on all ranks that hold them."""

from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist

from .placement import DATA, PIPELINE, REDUCED_DATA, TENSOR
from .shards import is_shard, local
from .world import ModelParallelWorld

_BUCKET_BYTES = 25 * 1024 * 1024


def average(parameters: Sequence[torch.nn.Parameter], world: ModelParallelWorld) -> None:
    """Average the gradients over all data parallel ranks.

    Those of a shard are already the sum over its group, unless all ranks of the group had the same examples.
    """
    count = 1 if world.configuration.prescaled_batch else world.length(TENSOR)
    split = [each for each in parameters if is_shard(each)]
    whole = [each for each in parameters if not is_shard(each)]
    for each in split:
        if each.grad is not None:
            local(each.grad).div_(count)
    _reduce(split, world, kind=REDUCED_DATA)
    _reduce(whole, world, kind=DATA)


def sum_tied(tied: Sequence[torch.Tensor | None], world: ModelParallelWorld, *, likes: Sequence[torch.Tensor]) -> None:
    """Sum the gradients of parameters that several stages hold. None stands for one that this stage does not hold."""
    for parameter, like in zip(tied, likes, strict=True):
        known = parameter is not None and parameter.grad is not None
        total = local(parameter.grad) if known else torch.zeros_like(like, device=world.device)  # type: ignore[union-attr]
        dist.all_reduce(total, group=world.groups[PIPELINE])
        if parameter is not None and not known:
            parameter.grad = total


def broadcast_in_group(tensors: Iterable[torch.Tensor], world: ModelParallelWorld, *, kind: str) -> None:
    """Broadcast values from the first rank of a group."""
    source = world.members(kind)[0]
    for tensor in tensors:
        dist.broadcast(local(tensor.detach()), src=source, group=world.groups[kind])


def broadcast_from_stage(tensor: torch.Tensor, world: ModelParallelWorld, *, first: int) -> None:
    """Broadcast a value from one stage to all."""
    dist.broadcast(local(tensor.detach()), src=world.members(PIPELINE)[first], group=world.groups[PIPELINE])


def _reduce(parameters: Sequence[torch.nn.Parameter], world: ModelParallelWorld, *, kind: str) -> None:
    count = world.length(kind)
    trained = [each for each in parameters if each.requires_grad]
    if count == 1 or not trained:
        return
    for bucket in _buckets(_gradients_of_any(trained, world, kind=kind)):
        flat = torch.cat([each.flatten() for each in bucket])
        dist.all_reduce(flat, group=world.groups[kind])
        flat /= count
        for gradient, part in zip(bucket, flat.split([each.numel() for each in bucket]), strict=True):
            gradient.copy_(part.view_as(gradient))


def _gradients_of_any(
    parameters: Sequence[torch.nn.Parameter], world: ModelParallelWorld, *, kind: str
) -> list[torch.Tensor]:
    """Return the gradients that any rank has, with zeros if this one has none."""
    known = torch.tensor([each.grad is not None for each in parameters], dtype=torch.uint8, device=world.device)
    dist.all_reduce(known, op=dist.ReduceOp.MAX, group=world.groups[kind])
    used = [each for each, is_known in zip(parameters, known.tolist(), strict=True) if is_known]
    for each in used:
        if each.grad is None:
            each.grad = torch.zeros_like(each)
    return [local(each.grad) for each in used]


def _buckets(gradients: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
    """Group gradients by type, into buckets large enough to be worth a message."""
    by_type: dict[torch.dtype, list[list[torch.Tensor]]] = {}
    filled: dict[torch.dtype, int] = {}
    for gradient in gradients:
        size = gradient.numel() * gradient.element_size()
        rows = by_type.setdefault(gradient.dtype, [])
        if not rows or filled[gradient.dtype] + size > _BUCKET_BYTES:
            rows.append([])
            filled[gradient.dtype] = 0
        rows[-1].append(gradient)
        filled[gradient.dtype] += size
    return [bucket for rows in by_type.values() for bucket in rows]

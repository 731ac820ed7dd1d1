"""Collectives by their Horovod names, over torch.distributed.

All ranks must post the same collectives in the same order. Names are accepted, but not used to match collectives.
"""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any

import torch
import torch.distributed as dist

from .ordered_group import CollectiveWork, OrderedGroup, PostedCollective
from .world import ProcessSet, global_process_set, rank, require_global, size, world


class ReduceOp(Enum):
    """How the tensors of the ranks are combined."""

    AVERAGE = "Average"
    SUM = "Sum"
    ADASUM = "Adasum"
    MIN = "Min"
    MAX = "Max"
    PRODUCT = "Product"


Average, Sum, Adasum, Min, Max, Product = ReduceOp

_TORCH_OPS = {
    Average: dist.ReduceOp.SUM,
    Sum: dist.ReduceOp.SUM,
    Min: dist.ReduceOp.MIN,
    Max: dist.ReduceOp.MAX,
    Product: dist.ReduceOp.PRODUCT,
}


class Handle:
    """A collective in progress; `synchronize` waits for it and returns its result."""

    def __init__(self, works: Sequence[CollectiveWork], finish: Callable[[], Any]) -> None:
        self.works = works
        self.result = cache(finish)


@dataclass(frozen=True, slots=True)
class ScaledReduction:
    """A reduction: the operation, and the factors to apply before and after it."""

    op: ReduceOp
    before: float = 1.0
    after: float = 1.0

    @property
    def divisor(self) -> int:
        return size() if self.op is Average else 1


def poll(handle: Handle) -> bool:
    """Whether the collective has finished."""
    return all(work.is_completed() for work in handle.works)


def synchronize(handle: Handle) -> Any:
    """Wait for the collective and return its result."""
    for work in handle.works:
        work.wait()
    return handle.result()


def reduction(
    op: ReduceOp | None, average: bool | None, prescale_factor: float = 1.0, postscale_factor: float = 1.0
) -> ScaledReduction:
    """Return the reduction that these arguments describe; the default is the average."""
    if op is not None and average is not None:
        raise ValueError("Both op and the deprecated average are given; leave average out.")
    operation = op or (Average if average is None or average else Sum)
    if operation is Adasum:
        raise NotImplementedError("op=hvd.Adasum is not supported; use hvd.Average or hvd.Sum.")
    return ScaledReduction(operation, prescale_factor, postscale_factor)


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,  # noqa: ARG001
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start to reduce a tensor over all ranks, in place."""
    require_global(process_set)
    return _reduce(tensor, reduction(op, average, prescale_factor, postscale_factor))


def allreduce_async(tensor: torch.Tensor, *arguments: Any, **options: Any) -> Handle:
    """Start to reduce a tensor over all ranks into a new one. Takes the arguments of `allreduce_async_`."""
    return allreduce_async_(tensor.detach().clone(), *arguments, **options)


def allreduce_(tensor: torch.Tensor, *arguments: Any, **options: Any) -> torch.Tensor:
    """Reduce a tensor over all ranks, in place. Takes the arguments of `allreduce_async_`."""
    synchronize(allreduce_async_(tensor, *arguments, **options))
    return tensor


def grouped_allreduce_async_(tensors: Sequence[torch.Tensor], *arguments: Any, **options: Any) -> Handle:
    """Start to reduce several tensors, in place. Takes the arguments of `allreduce_async_`."""
    handles = [allreduce_async_(tensor, *arguments, **options) for tensor in tensors]
    return Handle([work for each in handles for work in each.works], lambda: [each.result() for each in handles])


def grouped_allreduce_async(tensors: Sequence[torch.Tensor], *arguments: Any, **options: Any) -> Handle:
    """Start to reduce several tensors into new ones. Takes the arguments of `allreduce_async_`."""
    return grouped_allreduce_async_([tensor.detach().clone() for tensor in tensors], *arguments, **options)


def grouped_allreduce_(tensors: Sequence[torch.Tensor], *arguments: Any, **options: Any) -> list[torch.Tensor]:
    """Reduce several tensors, in place. Takes the arguments of `allreduce_async_`."""
    synchronize(grouped_allreduce_async_(tensors, *arguments, **options))
    return list(tensors)


def broadcast_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,  # noqa: ARG001
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start to broadcast a tensor from the root, in place."""
    require_global(process_set)
    if world().position.is_alone:
        return Handle((), lambda: tensor)
    dense = tensor.detach().contiguous()
    work = _group().post(
        PostedCollective("broadcast"),
        lambda group: dist.broadcast(as_bytes(dense), root_rank, group=group, async_op=True),
    )
    return Handle((work,), lambda: _copy_back(dense, tensor))


def broadcast_async(tensor: torch.Tensor, root_rank: int, *arguments: Any, **options: Any) -> Handle:
    """Start to broadcast a tensor from the root into a new one. Takes the arguments of `broadcast_async_`."""
    return broadcast_async_(tensor.detach().clone(), root_rank, *arguments, **options)


def broadcast_(tensor: torch.Tensor, root_rank: int, *arguments: Any, **options: Any) -> torch.Tensor:
    """Broadcast a tensor from the root, in place. Takes the arguments of `broadcast_async_`."""
    synchronize(broadcast_async_(tensor, root_rank, *arguments, **options))
    return tensor


def allgather_async(
    tensor: torch.Tensor,
    name: str | None = None,  # noqa: ARG001
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start to concatenate the tensors of all ranks. They may differ in their first dimension."""
    require_global(process_set)
    rows = tensor.detach().reshape(1) if tensor.ndim == 0 else tensor.detach()
    if world().position.is_alone:
        return Handle((), rows.clone)
    lengths = _lengths(rows)
    row = tuple(rows.shape[1:])
    padded = rows.new_zeros((max(lengths), *row))
    padded[: len(rows)] = rows
    parts = [torch.empty_like(padded) for _ in lengths]
    work = _group().post(
        PostedCollective("allgather"),
        lambda group: dist.all_gather([as_bytes(part) for part in parts], as_bytes(padded), group=group, async_op=True),
    )
    return Handle((work,), lambda: torch.cat([part[:n] for part, n in zip(parts, lengths, strict=True)]))


def alltoall_async(
    tensor: torch.Tensor,
    splits: torch.Tensor | Sequence[int] | None = None,
    name: str | None = None,  # noqa: ARG001
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Start to send some of the rows to each rank: `splits` says how many, by default equally many to all.

    The result is the rows that this rank received and, if `splits` is given, how many came from each.
    """
    require_global(process_set)
    sent = _splits(tensor, splits)
    if world().position.is_alone:
        return Handle((), lambda: _with_splits(tensor.detach().clone(), sent, splits))
    received = _exchange_splits(sent)
    source = tensor.detach().contiguous()
    output = source.new_empty((int(received.sum()), *source.shape[1:]))
    work = _group().post(
        PostedCollective("alltoall"),
        lambda group: dist.all_to_all_single(
            output, source, received.tolist(), sent.tolist(), group=group, async_op=True
        ),
    )
    return Handle((work,), lambda: _with_splits(output, received, splits))


def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,  # noqa: ARG001
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle:
    """Start to reduce a tensor over all ranks and give each its share of rows; the first ranks may get one more."""
    reduced = allreduce_async(
        tensor,
        op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        process_set=process_set,
    )
    start, rows = share(len(tensor), rank())
    return Handle(reduced.works, lambda: reduced.result()[start : start + rows].clone())


def share(rows: int, of: int) -> tuple[int, int]:
    """Return the first row of a rank, and how many rows it has."""
    least, more = divmod(rows, size())
    return of * least + min(of, more), least + (of < more)


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Wait until all ranks have called this."""
    allreduce_(torch.zeros(1), op=Sum, process_set=process_set)


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return a dense tensor as bytes: back ends do not support every type, but all support bytes."""
    return tensor.reshape(-1).view(torch.uint8)


def reduce_flat(tensor: torch.Tensor, group: OrderedGroup, *, what: str, op: ReduceOp) -> CollectiveWork:
    """Start to reduce a dense tensor in place, without factors."""
    entry = (
        PostedCollective.of_sum(what, tensor) if op in (Average, Sum) else PostedCollective(f"{what} with {op.value}")
    )
    return group.post(entry, lambda group: dist.all_reduce(tensor, op=_TORCH_OPS[op], group=group, async_op=True))


def _reduce(tensor: torch.Tensor, scaling: ScaledReduction) -> Handle:
    dense = tensor.detach().contiguous()
    if scaling.before != 1.0:
        dense.mul_(scaling.before)
    works = () if world().position.is_alone else (reduce_flat(dense, _group(), what="allreduce", op=scaling.op),)
    return Handle(works, lambda: _copy_back(_scale(dense, scaling), tensor))


def _scale(tensor: torch.Tensor, scaling: ScaledReduction) -> torch.Tensor:
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        return tensor.mul_(scaling.after / scaling.divisor) if scaling.after != scaling.divisor else tensor
    if scaling.divisor != 1:
        tensor.div_(scaling.divisor, rounding_mode="floor")
    return tensor.mul_(scaling.after) if scaling.after != 1.0 else tensor


def _copy_back(dense: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    if dense.data_ptr() != tensor.data_ptr():
        tensor.detach().copy_(dense)
    return tensor


def _group() -> OrderedGroup:
    return world().groups[0]


def _lengths(rows: torch.Tensor) -> list[int]:
    """Return how many rows each rank has. Raises ValueError on all ranks if the rows themselves differ."""
    kind = zlib.crc32(repr((tuple(rows.shape[1:]), str(rows.dtype))).encode())
    mine = torch.tensor([len(rows), kind], device=rows.device)
    gathered = [torch.empty_like(mine) for _ in range(size())]
    _group().post(
        PostedCollective("allgather"), lambda group: dist.all_gather(gathered, mine, group=group, async_op=True)
    ).wait()
    if any(int(each[1]) != kind for each in gathered):
        raise ValueError(
            f"The tensors of the ranks differ in more than their first dimension; the one of rank {rank()} has rows of "
            f"shape {tuple(rows.shape[1:])} and type {rows.dtype}."
        )
    return [int(each[0]) for each in gathered]


def _splits(tensor: torch.Tensor, splits: torch.Tensor | Sequence[int] | None) -> torch.Tensor:
    if splits is None:
        if len(tensor) % size():
            raise ValueError(f"{len(tensor)} rows cannot be split evenly among {size()} ranks; pass splits.")
        return torch.full((size(),), len(tensor) // size())
    sent = torch.as_tensor(splits, dtype=torch.int64).cpu()
    if len(sent) != size() or int(sent.sum()) != len(tensor):
        raise ValueError(f"splits must be {size()} numbers that add up to {len(tensor)}, not {sent.tolist()}.")
    return sent


def _exchange_splits(sent: torch.Tensor) -> torch.Tensor:
    received = torch.empty_like(sent)
    _group().post(
        PostedCollective("alltoall"), lambda group: dist.all_to_all_single(received, sent, group=group, async_op=True)
    ).wait()
    return received


def _with_splits(output: torch.Tensor, received: torch.Tensor, splits: Any) -> Any:
    return output if splits is None else (output, received.to(torch.int32))

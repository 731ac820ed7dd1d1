"""Collectives by their Horovod names, over torch.distributed.

All ranks post the same collectives in the same order; names are accepted and do not match them up.
"""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any

import torch
import torch.distributed as dist

from .lanes import Entry, Lane, Work
from .process_sets import ProcessSet, global_process_set, require_global
from .world import rank, size, world


class ReduceOp(Enum):
    """How the tensors of the ranks become one."""

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
    """A collective under way; `synchronize` waits for it and gives its result."""

    def __init__(self, works: Sequence[Work], finish: Callable[[], Any]) -> None:
        self.works = works
        self.result = cache(finish)


@dataclass(frozen=True, slots=True)
class Reduction:
    """How to reduce: the operation, and factors before and after it."""

    op: ReduceOp
    before: float = 1.0
    after: float = 1.0

    @property
    def divisor(self) -> int:
        return size() if self.op is Average else 1


def poll(handle: Handle) -> bool:
    """Whether the collective is done."""
    return all(work.is_completed() for work in handle.works)


def synchronize(handle: Handle) -> Any:
    """Wait for the collective; its result."""
    for work in handle.works:
        work.wait()
    return handle.result()


def reduction(
    op: ReduceOp | None, average: bool | None, prescale_factor: float = 1.0, postscale_factor: float = 1.0
) -> Reduction:
    """The operation that these arguments mean; without any it is the average."""
    if op is not None and average is not None:
        raise ValueError("Both op and the deprecated average are given; leave average out.")
    chosen = op or (Average if average is None or average else Sum)
    if chosen is Adasum:
        raise NotImplementedError("op=hvd.Adasum is not served; use hvd.Average or hvd.Sum.")
    return Reduction(chosen, prescale_factor, postscale_factor)


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,  # noqa: ARG001
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Begin to reduce a tensor of all ranks, in place."""
    require_global(process_set)
    return _reduce(tensor, reduction(op, average, prescale_factor, postscale_factor))


def allreduce_async(tensor: torch.Tensor, *arguments: Any, **options: Any) -> Handle:
    """Begin to reduce a tensor of all ranks into another one. Takes what `allreduce_async_` takes."""
    return allreduce_async_(tensor.detach().clone(), *arguments, **options)


def allreduce_(tensor: torch.Tensor, *arguments: Any, **options: Any) -> torch.Tensor:
    """Reduce a tensor of all ranks, in place. Takes what `allreduce_async_` takes."""
    synchronize(allreduce_async_(tensor, *arguments, **options))
    return tensor


def grouped_allreduce_async_(tensors: Sequence[torch.Tensor], *arguments: Any, **options: Any) -> Handle:
    """Begin to reduce several tensors, in place. Takes what `allreduce_async_` takes."""
    handles = [allreduce_async_(tensor, *arguments, **options) for tensor in tensors]
    return Handle([work for each in handles for work in each.works], lambda: [each.result() for each in handles])


def grouped_allreduce_async(tensors: Sequence[torch.Tensor], *arguments: Any, **options: Any) -> Handle:
    """Begin to reduce several tensors into others. Takes what `allreduce_async_` takes."""
    return grouped_allreduce_async_([tensor.detach().clone() for tensor in tensors], *arguments, **options)


def grouped_allreduce_(tensors: Sequence[torch.Tensor], *arguments: Any, **options: Any) -> list[torch.Tensor]:
    """Reduce several tensors, in place. Takes what `allreduce_async_` takes."""
    synchronize(grouped_allreduce_async_(tensors, *arguments, **options))
    return list(tensors)


def broadcast_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,  # noqa: ARG001
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Begin to make a tensor what it is on the root, in place."""
    require_global(process_set)
    if world().place.is_alone:
        return Handle((), lambda: tensor)
    dense = tensor.detach().contiguous()
    work = _lane().post(
        Entry("broadcast"), lambda group: dist.broadcast(as_bytes(dense), root_rank, group=group, async_op=True)
    )
    return Handle((work,), lambda: _copied_back(dense, tensor))


def broadcast_async(tensor: torch.Tensor, root_rank: int, *arguments: Any, **options: Any) -> Handle:
    """Begin to send a tensor of the root to all. Takes what `broadcast_async_` takes."""
    return broadcast_async_(tensor.detach().clone(), root_rank, *arguments, **options)


def broadcast_(tensor: torch.Tensor, root_rank: int, *arguments: Any, **options: Any) -> torch.Tensor:
    """Make a tensor what it is on the root, in place. Takes what `broadcast_async_` takes."""
    synchronize(broadcast_async_(tensor, root_rank, *arguments, **options))
    return tensor


def allgather_async(
    tensor: torch.Tensor,
    name: str | None = None,  # noqa: ARG001
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Begin to put the tensors of all ranks one after another. They may differ in their first dimension."""
    require_global(process_set)
    rows = tensor.detach().reshape(1) if tensor.ndim == 0 else tensor.detach()
    if world().place.is_alone:
        return Handle((), rows.clone)
    lengths = _lengths(rows)
    row = tuple(rows.shape[1:])
    padded = rows.new_zeros((max(lengths), *row))
    padded[: len(rows)] = rows
    parts = [torch.empty_like(padded) for _ in lengths]
    work = _lane().post(
        Entry("allgather"),
        lambda group: dist.all_gather([as_bytes(part) for part in parts], as_bytes(padded), group=group, async_op=True),
    )
    return Handle((work,), lambda: torch.cat([part[:n] for part, n in zip(parts, lengths, strict=True)]))


def alltoall_async(
    tensor: torch.Tensor,
    splits: torch.Tensor | Sequence[int] | None = None,
    name: str | None = None,  # noqa: ARG001
    process_set: ProcessSet = global_process_set,
) -> Handle:
    """Begin to send a part of the rows to each rank: `splits` says how many to which, by default to all as many.

    The result is what the ranks have sent to this one and, where `splits` is given, how many rows each.
    """
    require_global(process_set)
    sent = _splits(tensor, splits)
    if world().place.is_alone:
        return Handle((), lambda: _with_splits(tensor.detach().clone(), sent, splits))
    received = _exchanged(sent)
    source = tensor.detach().contiguous()
    output = source.new_empty((int(received.sum()), *source.shape[1:]))
    work = _lane().post(
        Entry("alltoall"),
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
    """Begin to reduce a tensor of all ranks, of which each gets its share of rows; the first get one more."""
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
    """Where the rows of a rank begin, and how many they are."""
    least, more = divmod(rows, size())
    return of * least + min(of, more), least + (of < more)


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Wait until all ranks are here."""
    allreduce_(torch.zeros(1), op=Sum, process_set=process_set)


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of a dense tensor: back ends do not know every type, but all know bytes."""
    return tensor.reshape(-1).view(torch.uint8)


def reduce_flat(tensor: torch.Tensor, lane: Lane, *, what: str, op: ReduceOp) -> Work:
    """Begin to reduce a dense tensor in place, without factors."""
    entry = Entry.of_sum(what, tensor) if op in (Average, Sum) else Entry(f"{what} with {op.value}")
    return lane.post(entry, lambda group: dist.all_reduce(tensor, op=_TORCH_OPS[op], group=group, async_op=True))


def _reduce(tensor: torch.Tensor, how: Reduction) -> Handle:
    dense = tensor.detach().contiguous()
    if how.before != 1.0:
        dense.mul_(how.before)
    works = () if world().place.is_alone else (reduce_flat(dense, _lane(), what="allreduce", op=how.op),)
    return Handle(works, lambda: _copied_back(_scaled(dense, how), tensor))


def _scaled(tensor: torch.Tensor, how: Reduction) -> torch.Tensor:
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        return tensor.mul_(how.after / how.divisor) if how.after != how.divisor else tensor
    if how.divisor != 1:
        tensor.div_(how.divisor, rounding_mode="floor")
    return tensor.mul_(how.after) if how.after != 1.0 else tensor


def _copied_back(dense: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    if dense.data_ptr() != tensor.data_ptr():
        tensor.detach().copy_(dense)
    return tensor


def _lane() -> Lane:
    return world().lanes[0]


def _lengths(rows: torch.Tensor) -> list[int]:
    """How many rows each rank has; ValueError on all of them where the rows themselves differ."""
    kind = zlib.crc32(repr((tuple(rows.shape[1:]), str(rows.dtype))).encode())
    mine = torch.tensor([len(rows), kind], device=rows.device)
    all_of_them = [torch.empty_like(mine) for _ in range(size())]
    _lane().post(
        Entry("allgather"), lambda group: dist.all_gather(all_of_them, mine, group=group, async_op=True)
    ).wait()
    if any(int(each[1]) != kind for each in all_of_them):
        raise ValueError(
            f"The tensors of the ranks differ in more than their first dimension; that of rank {rank()} has rows of "
            f"shape {tuple(rows.shape[1:])} and type {rows.dtype}."
        )
    return [int(each[0]) for each in all_of_them]


def _splits(tensor: torch.Tensor, splits: torch.Tensor | Sequence[int] | None) -> torch.Tensor:
    if splits is None:
        if len(tensor) % size():
            raise ValueError(f"{len(tensor)} rows cannot be split evenly among {size()} ranks; give splits.")
        return torch.full((size(),), len(tensor) // size())
    sent = torch.as_tensor(splits, dtype=torch.int64).cpu()
    if len(sent) != size() or int(sent.sum()) != len(tensor):
        raise ValueError(f"splits must be {size()} numbers with the sum {len(tensor)}, not {sent.tolist()}.")
    return sent


def _exchanged(sent: torch.Tensor) -> torch.Tensor:
    received = torch.empty_like(sent)
    _lane().post(
        Entry("alltoall"), lambda group: dist.all_to_all_single(received, sent, group=group, async_op=True)
    ).wait()
    return received


def _with_splits(output: torch.Tensor, received: torch.Tensor, asked: Any) -> Any:
    return output if asked is None else (output, received.to(torch.int32))

"""Collectives that wait for their result, through which gradients flow back as in Horovod."""

from collections.abc import Sequence
from typing import Any

import torch

from .compression import Compression, Compressor
from .mpi_ops import (
    Average,
    ReduceOp,
    Reduction,
    Sum,
    allgather_async,
    allreduce_,
    alltoall_async,
    broadcast_async,
    reducescatter_async,
    reduction,
    share,
    synchronize,
)
from .process_sets import ProcessSet, global_process_set, require_global
from .world import rank, size


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,  # noqa: ARG001
    compression: type[Compressor] = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """The tensors of all ranks, reduced to one."""
    require_global(process_set)
    how = reduction(op, average, prescale_factor, postscale_factor)
    sent, context = compression.compress(tensor)
    return compression.decompress(_AllReduce.apply(sent, how), context)


def grouped_allreduce(tensors: Sequence[torch.Tensor], *arguments: Any, **options: Any) -> list[torch.Tensor]:
    """Several tensors, each reduced. Takes what `allreduce` takes."""
    return [allreduce(tensor, *arguments, **options) for tensor in tensors]


def allgather(
    tensor: torch.Tensor,
    name: str | None = None,  # noqa: ARG001
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """The tensors of all ranks one after another; they may differ in their first dimension."""
    require_global(process_set)
    gathered: torch.Tensor = _AllGather.apply(tensor)
    return gathered


def grouped_allgather(tensors: Sequence[torch.Tensor], *arguments: Any, **options: Any) -> list[torch.Tensor]:
    """Several tensors, each gathered. Takes what `allgather` takes."""
    return [allgather(tensor, *arguments, **options) for tensor in tensors]


def broadcast(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,  # noqa: ARG001
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """The tensor of the root."""
    require_global(process_set)
    sent: torch.Tensor = _Broadcast.apply(tensor, root_rank)
    return sent


def alltoall(
    tensor: torch.Tensor,
    splits: torch.Tensor | Sequence[int] | None = None,
    name: str | None = None,  # noqa: ARG001
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The rows that the ranks send to this one and, where `splits` says how many go to each, how many came."""
    require_global(process_set)
    sent = splits if splits is not None else [len(tensor) // size()] * size()
    output, received = _AllToAll.apply(tensor, sent)
    return output if splits is None else (output, received)


def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,  # noqa: ARG001
    compression: type[Compressor] = Compression.none,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """The share of this rank in the reduced tensors of all."""
    require_global(process_set)
    sent, context = compression.compress(tensor)
    how = reduction(op, None, prescale_factor, postscale_factor)
    return compression.decompress(_ReduceScatter.apply(sent, how), context)


class _AllReduce(torch.autograd.Function):  # type: ignore[misc]  # mypy does not read torch
    """The gradient is reduced as the tensor was."""

    @staticmethod
    def forward(context: Any, tensor: torch.Tensor, how: Reduction) -> torch.Tensor:
        context.how = how
        return _reduced(tensor, how)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Any:
        return _reduced(gradient, context.how), None


class _AllGather(torch.autograd.Function):  # type: ignore[misc]  # mypy does not read torch
    """The gradient is the rank's part of the average."""

    @staticmethod
    def forward(context: Any, tensor: torch.Tensor) -> torch.Tensor:
        context.shape = tensor.shape
        return synchronize(allgather_async(tensor))

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Any:
        rows = context.shape[0] if context.shape else 1
        lengths = synchronize(allgather_async(torch.tensor([rows])))
        average = _reduced(gradient, Reduction(Average))
        return average.narrow(0, int(lengths[: rank()].sum()), rows).reshape(context.shape)


class _Broadcast(torch.autograd.Function):  # type: ignore[misc]  # mypy does not read torch
    """The gradient of the root is the average, that of the others nothing."""

    @staticmethod
    def forward(context: Any, tensor: torch.Tensor, root_rank: int) -> torch.Tensor:
        context.root_rank = root_rank
        return synchronize(broadcast_async(tensor, root_rank))

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Any:
        average = _reduced(gradient, Reduction(Average))
        return (average if rank() == context.root_rank else torch.zeros_like(average)), None


class _AllToAll(torch.autograd.Function):  # type: ignore[misc]  # mypy does not read torch
    """The gradient goes back to where the rows came from."""

    @staticmethod
    def forward(context: Any, tensor: torch.Tensor, splits: Any) -> Any:
        output, received = synchronize(alltoall_async(tensor, splits))
        context.received = received
        context.mark_non_differentiable(received)
        return output, received

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor, _received: Any) -> Any:
        return synchronize(alltoall_async(gradient, context.received))[0], None


class _ReduceScatter(torch.autograd.Function):  # type: ignore[misc]  # mypy does not read torch
    """The gradient is that of all shares, averaged where the shares were."""

    @staticmethod
    def forward(context: Any, tensor: torch.Tensor, how: Reduction) -> torch.Tensor:
        context.how, context.rows = how, len(tensor)
        handle = reducescatter_async(tensor, op=how.op, prescale_factor=how.before, postscale_factor=how.after)
        return synchronize(handle)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Any:
        how = context.how
        start, rows = share(context.rows, rank())
        whole = gradient.new_zeros((context.rows, *gradient.shape[1:]))
        whole[start : start + rows] = gradient
        return _reduced(whole, Reduction(Sum)).mul_(how.before * how.after / how.divisor), None


def _reduced(tensor: torch.Tensor, how: Reduction) -> torch.Tensor:
    return allreduce_(tensor.detach().clone(), op=how.op, prescale_factor=how.before, postscale_factor=how.after)

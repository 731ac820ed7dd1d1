"""Synchronous collectives, through which gradients flow back as in Horovod."""

from collections.abc import Sequence
from typing import Any

import torch

from .compression import Compression, Compressor
from .mpi_ops import (
    Average,
    ReduceOp,
    ScaledReduction,
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
from .world import ProcessSet, global_process_set, rank, require_global, size


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
    """Reduce the tensors of all ranks to one."""
    require_global(process_set)
    scaling = reduction(op, average, prescale_factor, postscale_factor)
    sent, context = compression.compress(tensor)
    return compression.decompress(_AllReduce.apply(sent, scaling), context)


def grouped_allreduce(tensors: Sequence[torch.Tensor], *arguments: Any, **options: Any) -> list[torch.Tensor]:
    """Reduce several tensors. Takes the arguments of `allreduce`."""
    return [allreduce(tensor, *arguments, **options) for tensor in tensors]


def allgather(
    tensor: torch.Tensor,
    name: str | None = None,  # noqa: ARG001
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Concatenate the tensors of all ranks, which may differ in their first dimension."""
    require_global(process_set)
    gathered: torch.Tensor = _AllGather.apply(tensor)
    return gathered


def grouped_allgather(tensors: Sequence[torch.Tensor], *arguments: Any, **options: Any) -> list[torch.Tensor]:
    """Gather several tensors. Takes the arguments of `allgather`."""
    return [allgather(tensor, *arguments, **options) for tensor in tensors]


def broadcast(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,  # noqa: ARG001
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Return the root's tensor."""
    require_global(process_set)
    sent: torch.Tensor = _Broadcast.apply(tensor, root_rank)
    return sent


def alltoall(
    tensor: torch.Tensor,
    splits: torch.Tensor | Sequence[int] | None = None,
    name: str | None = None,  # noqa: ARG001
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Exchange rows between ranks. Returns the received rows and, if `splits` is given, how many came from each."""
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
    """Return this rank's share of the reduced tensor."""
    require_global(process_set)
    sent, context = compression.compress(tensor)
    scaling = reduction(op, None, prescale_factor, postscale_factor)
    return compression.decompress(_ReduceScatter.apply(sent, scaling), context)


class _AllReduce(torch.autograd.Function):  # type: ignore[misc]  # mypy does not read torch
    """The gradient is reduced like the tensor."""

    @staticmethod
    def forward(context: Any, tensor: torch.Tensor, scaling: ScaledReduction) -> torch.Tensor:
        context.scaling = scaling
        return _allreduce_copy(tensor, scaling)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Any:
        return _allreduce_copy(gradient, context.scaling), None


class _AllGather(torch.autograd.Function):  # type: ignore[misc]  # mypy does not read torch
    """The gradient is this rank's part of the average."""

    @staticmethod
    def forward(context: Any, tensor: torch.Tensor) -> torch.Tensor:
        context.shape = tensor.shape
        return synchronize(allgather_async(tensor))

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Any:
        rows = context.shape[0] if context.shape else 1
        lengths = synchronize(allgather_async(torch.tensor([rows])))
        average = _allreduce_copy(gradient, ScaledReduction(Average))
        return average.narrow(0, int(lengths[: rank()].sum()), rows).reshape(context.shape)


class _Broadcast(torch.autograd.Function):  # type: ignore[misc]  # mypy does not read torch
    """The root's gradient is the average; the others' is zero."""

    @staticmethod
    def forward(context: Any, tensor: torch.Tensor, root_rank: int) -> torch.Tensor:
        context.root_rank = root_rank
        return synchronize(broadcast_async(tensor, root_rank))

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Any:
        average = _allreduce_copy(gradient, ScaledReduction(Average))
        return (average if rank() == context.root_rank else torch.zeros_like(average)), None


class _AllToAll(torch.autograd.Function):  # type: ignore[misc]  # mypy does not read torch
    """The gradient goes back to the ranks that sent the rows."""

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
    """The gradient is that of all shares, averaged if the shares were."""

    @staticmethod
    def forward(context: Any, tensor: torch.Tensor, scaling: ScaledReduction) -> torch.Tensor:
        context.scaling, context.rows = scaling, len(tensor)
        handle = reducescatter_async(
            tensor, op=scaling.op, prescale_factor=scaling.before, postscale_factor=scaling.after
        )
        return synchronize(handle)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Any:
        scaling = context.scaling
        start, rows = share(context.rows, rank())
        whole = gradient.new_zeros((context.rows, *gradient.shape[1:]))
        whole[start : start + rows] = gradient
        return _allreduce_copy(whole, ScaledReduction(Sum)).mul_(scaling.before * scaling.after / scaling.divisor), None


def _allreduce_copy(tensor: torch.Tensor, scaling: ScaledReduction) -> torch.Tensor:
    return allreduce_(
        tensor.detach().clone(), op=scaling.op, prescale_factor=scaling.before, postscale_factor=scaling.after
    )

"""Fuses gradients into buckets, each reduced as soon as it is complete."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from .compression import Compressor
from .mpi_ops import ReduceOp, reduce_flat
from .ordered_group import CollectiveWork, OrderedGroup

# The sizes of torch's DistributedDataParallel: a small bucket first, so that sending begins early in the backward pass.
FIRST_BYTES = 1 << 20
BYTES = 25 << 20


class GradientBucket:
    """Parameters whose gradients are sent in one tensor.

    The gradients are followed by a flag for each parameter: one if this rank has a gradient, zero if not. So a rank
    learns whether another one used a parameter that it did not use itself. If no rank used it, it gets no gradient, as
    in a single process.
    """

    def __init__(self, parameters: Sequence[torch.Tensor]) -> None:
        self.parameters = parameters
        self.waiting = len(parameters)
        self.is_sent = False
        values = sum(p.numel() for p in parameters)
        first = parameters[0]
        self._flat = torch.zeros(values + len(parameters), dtype=first.dtype, device=first.device)
        self._flags = self._flat[values:]
        parts = torch.split(self._flat[:values], [p.numel() for p in parameters])
        self._views = [part.view(p.shape) for part, p in zip(parts, parameters, strict=True)]
        self._work: CollectiveWork | None = None
        self._sent = self._flat
        self._context: Any = None

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def send(self, group: OrderedGroup, *, op: ReduceOp, factor: float, compression: type[Compressor]) -> None:
        """Start to reduce the gradients as they are now, times a factor."""
        present = [(v, p.grad) for v, p in zip(self._views, self.parameters, strict=True) if p.grad is not None]
        torch._foreach_copy_([view for view, _ in present], [_dense(gradient) for _, gradient in present])
        self._flags.fill_(1)
        if len(present) < len(self.parameters):
            self._clear_absent()
        if factor != 1.0:
            self._flat.mul_(factor)
        self._sent, self._context = compression.compress(self._flat)
        self._work = reduce_flat(self._sent, group, what="DistributedOptimizer", op=op)
        self.is_sent = True

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def receive(self, *, factor: float, compression: type[Compressor]) -> None:
        """Wait for the reduced gradients, and assign them, times a factor, to the parameters."""
        assert self._work is not None, "send must be called before receive"
        self._work.wait()
        arrived = compression.decompress(self._sent, self._context)
        if arrived is not self._flat:
            self._flat.copy_(arrived)
        if factor != 1.0:
            self._flat.mul_(factor)
        self._assign_gradients()
        self._work, self._sent, self._context = None, self._flat, None
        self.is_sent, self.waiting = False, len(self.parameters)

    def _clear_absent(self) -> None:
        for number, parameter in enumerate(self.parameters):
            if parameter.grad is None:
                self._views[number].zero_()
                self._flags[number] = 0

    def _assign_gradients(self) -> None:
        pairs = list(zip(self.parameters, self._views, strict=True))
        present = [(p.grad, view) for p, view in pairs if p.grad is not None]
        torch._foreach_copy_([gradient for gradient, _ in present], [view for _, view in present])
        if len(present) == len(pairs):
            return
        for used, (parameter, view) in zip(self._flags.tolist(), pairs, strict=True):
            if used and parameter.grad is None:
                parameter.grad = view.clone()


def make_buckets(parameters: Iterable[torch.Tensor], limit: int | None = None) -> list[GradientBucket]:
    """Put the parameters, from last to first as their gradients arrive, into buckets of one type and device.

    A bucket is full once it reaches the limit: a large gradient goes with those before it, not with later ones, for
    which it would have to wait.
    """
    buckets: list[GradientBucket] = []
    open_buckets: dict[Any, list[torch.Tensor]] = {}
    for parameter in reversed(list(parameters)):
        kind = (parameter.dtype, parameter.device)
        together = open_buckets.setdefault(kind, [])
        together.append(parameter)
        limit_bytes = limit if limit is not None else BYTES if buckets else FIRST_BYTES
        if sum(p.numel() * p.element_size() for p in together) >= limit_bytes:
            buckets.append(GradientBucket(open_buckets.pop(kind)))
    return buckets + [GradientBucket(left) for left in open_buckets.values()]


def _dense(gradient: torch.Tensor) -> torch.Tensor:
    if gradient.layout == torch.strided:
        return gradient
    raise ValueError(
        "A gradient is sparse, but only dense gradients can be reduced: create the layer with sparse=False, or pass "
        "sparse_as_dense=True to DistributedOptimizer."
    )

"""Gradients in fused pieces, each reduced as soon as it is whole."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from .compression import Compressor
from .lanes import Lane, Work
from .mpi_ops import ReduceOp, reduce_flat

# As torch's own data parallelism has them: a small one first, so that the sending begins early in the backward pass.
FIRST_BYTES = 1 << 20
BYTES = 25 << 20


class Bucket:
    """Parameters whose gradients travel in one tensor.

    Behind the gradients it has a mark for each parameter: one where this rank has a gradient, zero where it has none.
    So a rank learns of a parameter that it did not use itself whether another one did; where nobody did, there is no
    gradient, as in a single process.
    """

    def __init__(self, parameters: Sequence[torch.Tensor]) -> None:
        self.parameters = parameters
        self.waiting = len(parameters)
        self.is_sent = False
        values = sum(p.numel() for p in parameters)
        first = parameters[0]
        self._flat = torch.zeros(values + len(parameters), dtype=first.dtype, device=first.device)
        self._marks = self._flat[values:]
        pieces = torch.split(self._flat[:values], [p.numel() for p in parameters])
        self._views = [piece.view(p.shape) for piece, p in zip(pieces, parameters, strict=True)]
        self._work: Work | None = None
        self._sent = self._flat
        self._context: Any = None

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def send(self, lane: Lane, *, op: ReduceOp, factor: float, compression: type[Compressor]) -> None:
        """Begin to reduce the gradients as they are now, times a factor."""
        present = [(v, p.grad) for v, p in zip(self._views, self.parameters, strict=True) if p.grad is not None]
        torch._foreach_copy_([view for view, _ in present], [_dense(gradient) for _, gradient in present])
        self._marks.fill_(1)
        if len(present) < len(self.parameters):
            self._clear_absent()
        if factor != 1.0:
            self._flat.mul_(factor)
        self._sent, self._context = compression.compress(self._flat)
        self._work = reduce_flat(self._sent, lane, what="DistributedOptimizer", op=op)
        self.is_sent = True

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def receive(self, *, factor: float, compression: type[Compressor]) -> None:
        """Wait for the gradients of all, and make them, times a factor, those of the parameters."""
        assert self._work is not None, "a bucket is received after it was sent"
        self._work.wait()
        arrived = compression.decompress(self._sent, self._context)
        if arrived is not self._flat:
            self._flat.copy_(arrived)
        if factor != 1.0:
            self._flat.mul_(factor)
        self._hand_out()
        self._work, self._sent, self._context = None, self._flat, None
        self.is_sent, self.waiting = False, len(self.parameters)

    def _clear_absent(self) -> None:
        for number, parameter in enumerate(self.parameters):
            if parameter.grad is None:
                self._views[number].zero_()
                self._marks[number] = 0

    def _hand_out(self) -> None:
        pairs = list(zip(self.parameters, self._views, strict=True))
        present = [(p.grad, view) for p, view in pairs if p.grad is not None]
        torch._foreach_copy_([gradient for gradient, _ in present], [view for _, view in present])
        if len(present) == len(pairs):
            return
        for used, (parameter, view) in zip(self._marks.tolist(), pairs, strict=True):
            if used and parameter.grad is None:
                parameter.grad = view.clone()


def in_buckets(parameters: Iterable[torch.Tensor], limit: int | None = None) -> list[Bucket]:
    """The parameters from the last to the first, as their gradients come, in buckets of one type and device.

    A bucket is full once it has as many bytes as the limit: a large gradient goes with those before it, not with those
    that come after, for which it would have to wait.
    """
    made: list[Bucket] = []
    open_ones: dict[Any, list[torch.Tensor]] = {}
    for parameter in reversed(list(parameters)):
        kind = (parameter.dtype, parameter.device)
        together = open_ones.setdefault(kind, [])
        together.append(parameter)
        most = limit if limit is not None else BYTES if made else FIRST_BYTES
        if sum(p.numel() * p.element_size() for p in together) >= most:
            made.append(Bucket(open_ones.pop(kind)))
    return made + [Bucket(left) for left in open_ones.values()]


def _dense(gradient: torch.Tensor) -> torch.Tensor:
    if gradient.layout == torch.strided:
        return gradient
    raise ValueError(
        "A gradient is sparse, and gradients are reduced as dense ones: make the layer with sparse=False, or pass "
        "sparse_as_dense=True to DistributedOptimizer."
    )

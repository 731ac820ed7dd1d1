"""Tells where in a backward the ranks of a distributed training wait for each other.

DistributedDataParallel reduces gradients during backward and waits at its end for the reductions that are not done,
which is when it meets the slowest rank. All of it happens in C++. But the engine of autograd runs callbacks at the end
of a backward in the order in which they were queued, so one that is queued first runs when this rank has computed.
"""

from collections.abc import Callable
from typing import Any

import torch


class BackwardEnd:
    """Calls back when a backward of this rank has computed its gradients, and has yet to wait for other ranks."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback
        self._handle: Any = None

    def watch(self, loss: torch.Tensor) -> None:
        """Watch the backward that is about to begin from a loss."""
        # A backward that failed was not forgotten.
        self.forget()
        if loss.requires_grad:
            self._handle = loss.register_hook(self._queue)

    def forget(self) -> None:
        """Forget the backward, which has ended."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _queue(self, _: torch.Tensor) -> None:
        engine: Any = torch.autograd.Variable._execution_engine
        engine.queue_callback(self._callback)


def is_rank_of_several() -> bool:
    """Whether this process is one of several ranks by now."""
    distributed = torch.distributed
    return bool(distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1)

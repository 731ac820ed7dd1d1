"""Models whose gradients are averaged over all ranks."""

from .distributed import DistributedDataParallel

__all__ = ["DistributedDataParallel"]

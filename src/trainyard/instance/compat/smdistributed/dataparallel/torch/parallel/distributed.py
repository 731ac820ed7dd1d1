"""The wrapper of a model, which is torch's own."""

from torch.nn.parallel import DistributedDataParallel

__all__ = ["DistributedDataParallel"]

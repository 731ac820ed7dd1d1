"""The model wrapper, which is torch's own."""

from torch.nn.parallel import DistributedDataParallel

__all__ = ["DistributedDataParallel"]

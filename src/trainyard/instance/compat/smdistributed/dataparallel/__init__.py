"""Data parallelism by the names of SageMaker's library, which is AWS's own; for PyTorch, over torch.distributed."""

__version__ = "2.5.0+trainyard"  # the interface is that of 2.5.0, with the older one that examples still use

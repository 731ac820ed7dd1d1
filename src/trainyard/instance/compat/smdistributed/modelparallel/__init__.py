"""Model parallelism by the names of SageMaker's library, which is AWS's own; for PyTorch, over torch.distributed."""

__version__ = "1.15.0+trainyard"  # the interface is that of 1.15.0, with the older names that examples still use

"""SageMaker's data parallel library, which is not public: its interface for PyTorch, over torch.distributed."""

# The interface is that of 2.5.0, plus the older one that examples still use.
__version__ = "2.5.0+trainyard"

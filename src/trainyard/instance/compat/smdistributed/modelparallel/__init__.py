"""SageMaker's model parallel library, which is not public: its interface for PyTorch, over torch.distributed."""

# The interface is that of 1.15.0, plus older names that examples still use.
__version__ = "1.15.0+trainyard"

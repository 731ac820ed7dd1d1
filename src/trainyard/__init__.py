"""A managed training service on machines you own, speaking the Amazon SageMaker API."""

__version__ = "0.1.0"

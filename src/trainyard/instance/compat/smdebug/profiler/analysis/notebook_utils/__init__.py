"""Charts of a profile."""

from .metrics_histogram import MetricsHistogram
from .step_histogram import StepHistogram
from .training_job import TrainingJob

__all__ = ["MetricsHistogram", "StepHistogram", "TrainingJob"]

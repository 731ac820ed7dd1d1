"""An import path of smdebug."""

from trainyard._sdk.profiling.training_job import TrainingJob

__all__ = ["TrainingJob"]

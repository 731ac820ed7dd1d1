"""The runs of experiments, at the module path of the sagemaker SDK."""

from trainyard.experiments import Run, list_runs, load_run

__all__ = ["Run", "list_runs", "load_run"]

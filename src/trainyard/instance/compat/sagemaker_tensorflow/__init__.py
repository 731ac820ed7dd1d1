"""Replaces sagemaker_tensorflow in environments that do not have it."""

from pathlib import Path

from trainyard_deferral import real_package

if real_package(__name__, str(Path(__file__).parents[1])) is None:
    from sagemaker_tensorflow.pipemode import PipeModeDataset, PipeModeDatasetException

    __all__ = ["PipeModeDataset", "PipeModeDatasetException"]

"""Training scripts for PyTorch."""

from typing import ClassVar, Unpack

from trainyard.distribution import Distribution
from trainyard.estimator import Framework, Hyperparameters
from trainyard.training_request import TrainingKeywords


class PyTorch(Framework):
    """Trains a script with PyTorch."""

    framework: ClassVar[str] = "pytorch"

    def __init__(
        self,
        entry_point: str | None = None,
        framework_version: str | None = None,
        py_version: str | None = None,
        source_dir: str | None = None,
        hyperparameters: Hyperparameters | None = None,
        image_uri: str | None = None,
        distribution: Distribution | None = None,
        **options: Unpack[TrainingKeywords],
    ) -> None:
        super().__init__(
            entry_point,
            source_dir,
            hyperparameters,
            framework_version=framework_version,
            py_version=py_version,
            image_uri=image_uri,
            distribution=distribution,
            **options,
        )

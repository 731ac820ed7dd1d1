"""An estimator and a processor for PyTorch scripts."""

from collections.abc import Sequence
from typing import Any, ClassVar

from trainyard._sdk.training.distribution import Distribution
from trainyard.estimator import Framework, Hyperparameters
from trainyard.processing import FrameworkProcessor

__all__ = ["PyTorch", "PyTorchProcessor"]

# As that of a package without files, so that Python asks the finder for `trainyard.pytorch.estimator` and the like.
__path__: list[str] = []


class PyTorch(Framework):
    """Trains your own script with PyTorch.

    Args:
        entry_point: The script to run: a path, or a path in `source_dir`.
        framework_version: Version of PyTorch. Default: the one that the yard has.
        py_version: Python of the image, such as `py312`. Default: that of the framework version.
        source_dir: A local folder with the script, or an S3 location of its archive.
        hyperparameters: Hyperparameters, which the script gets as arguments.
        image_uri: An image to use instead of that of PyTorch.
        distribution: How to launch a distributed job, such as `{"torch_distributed": {"enabled": True}}`.
        **options: The options of `TrainingOptions`.

    Raises:
        InvalidRequest: Without an `entry_point`.
        TypeError: For an argument that does not exist.
    """

    framework: ClassVar[str] = "pytorch"
    repository: ClassVar[str] = "pytorch-training"

    def __init__(
        self,
        entry_point: str | None = None,
        framework_version: str | None = None,
        py_version: str | None = None,
        source_dir: str | None = None,
        hyperparameters: Hyperparameters | None = None,
        image_uri: str | None = None,
        distribution: Distribution | None = None,
        **options: Any,
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


class PyTorchProcessor(FrameworkProcessor):
    """Runs a script with the image of PyTorch as a processing job.

    Args:
        framework_version: Version of PyTorch. Default: the one that the yard has.
        role: Name or ARN of the role that the job runs with. Default: the role of the caller.
        instance_count: Number of instances.
        instance_type: Type of the instances.
        py_version: Python of the image, such as `py312`. Default: that of the framework version.
        image_uri: An image to use instead of that of PyTorch.
        command: The command that runs the script. Default: `["python"]`.
        **options: The other options of `FrameworkProcessor` and `Processor`.
    """

    def __init__(
        self,
        framework_version: str | None = None,
        role: str | None = None,
        instance_count: int = 1,
        instance_type: str = "ml.m5.large",
        py_version: str | None = None,
        image_uri: str | None = None,
        command: Sequence[str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(
            PyTorch, framework_version, role, instance_count, instance_type, py_version, image_uri, command, **options
        )

"""An estimator for TensorFlow scripts."""

from typing import Any, ClassVar, Literal, Self

from trainyard._sdk.training.distribution import Distribution
from trainyard._sdk.training.stream import Description
from trainyard.estimator import Framework, Hyperparameters

__all__ = ["TensorFlow"]

# As that of a package without files, so that Python asks the finder for `trainyard.tensorflow.estimator` and the like.
__path__: list[str] = []


class TensorFlow(Framework):
    """Trains your own script with TensorFlow.

    Args:
        py_version: Python of the image, such as `py312`. Default: that of the framework version.
        framework_version: Version of TensorFlow. Default: the one that the yard has.
        model_dir: Where the script may store checkpoints of the model; it gets the location as a hyperparameter.
            `False` passes none. Default: a location below the output path of the job.
        image_uri: An image to use instead of that of TensorFlow.
        distribution: How to launch a distributed job, such as `{"mpi": {"enabled": True}}`.
        entry_point: The script to run: a path, or a path in `source_dir`.
        source_dir: A local folder with the script, or an S3 location of its archive.
        hyperparameters: Hyperparameters, which the script gets as arguments.
        **options: The options of `TrainingOptions`.

    Raises:
        InvalidRequest: Without an `entry_point`.
        TypeError: For an argument that does not exist.
    """

    framework: ClassVar[str] = "tensorflow"
    repository: ClassVar[str] = "tensorflow-training"

    def __init__(
        self,
        py_version: str | None = None,
        framework_version: str | None = None,
        model_dir: str | Literal[False] | None = None,
        image_uri: str | None = None,
        distribution: Distribution | None = None,
        *,
        entry_point: str | None = None,
        source_dir: str | None = None,
        hyperparameters: Hyperparameters | None = None,
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
        self.model_dir = model_dir

    def _launch_hyperparameters(self, job_name: str) -> dict[str, Any]:
        launch = super()._launch_hyperparameters(job_name)
        if self.model_dir is False:
            return launch
        default = "/opt/ml/model" if launch.get("sagemaker_mpi_enabled") else f"{self._job_output_path(job_name)}/model"
        return launch | {"model_dir": self.model_dir or default}

    @classmethod
    def _from_description(cls, description: Description, options: dict[str, Any]) -> Self:
        estimator = super()._from_description(description, options)
        model_dir = estimator._hyperparameters.pop("model_dir", False)
        default = f"{estimator._job_output_path(description['TrainingJobName'])}/model"
        estimator.model_dir = None if model_dir in (default, "/opt/ml/model") else model_dir
        return estimator

    def _job_output_path(self, job_name: str) -> str:
        return f"{self._output_path().rstrip('/')}/{job_name}"
